"""Produce inside of transactions: what is asked, appended and answered.

docs/spec/transactions.md checks T5.2 to T5.5, T5.8, T5.9; its traps T8.2 and T8.8 to T8.10. Codes
as Apache Kafka 3.9.1 gave them (tests/golden/txn-data.json, "answers").
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from barnabas.broker.handlers.produce import ProduceHandler
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.client.errors import known_code
from barnabas.protocol.errors import CorruptRequest, ErrorCode
from barnabas.protocol.messages import produce as messages
from barnabas.protocol.records.batch import build_batch, records
from barnabas.protocol.records.compression.codecs import Codec
from barnabas.protocol.records.control import Marker
from tests.handlers.coordinators import FakeVerifier, judging
from tests.handlers.peer import answered, call, over_the_wire
from tests.replication.logs import NOW_MS, a_batch, follow, lead, turns
from tests.replication.test_last_stable_offset import append, marker

PID = 7


@pytest.fixture
def verifier() -> FakeVerifier:
    return FakeVerifier()


@pytest.fixture
async def handler(replicas: ReplicaManager, verifier: FakeVerifier) -> ProduceHandler:
    for topic in ("t", "u"):
        lead(replicas, topic)
    return ProduceHandler(
        replicas,
        loop=asyncio.get_running_loop(),
        now_ms=lambda: NOW_MS,
        transactions=judging(verifier),
    )


def numbered(
    sequence: int = 0, *, producer: int = PID, epoch: int = 0, codec: Codec = Codec.NONE
) -> bytearray:
    return build_batch(
        [(b"key", b"value")],
        timestamp_ms=NOW_MS,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=True,
        codec=codec,
    )


def sending(
    handler: ProduceHandler,
    *sent: tuple[str, bytearray],
    version: int = 11,
    acks: int = -1,
    transactional_id: str | None = "mine",
) -> Any:
    request = messages.ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=5000,
        topic_data=[
            messages.Topic(
                name=topic, partition_data=[messages.Partition(index=0, records=bytes(batch))]
            )
            for topic, batch in sent
        ],
    )
    return handler.produce(call(request, version))


def codes(answer: Any, version: int = 11) -> list[int]:
    answer = over_the_wire(answer, version)
    return [result.error_code for topic in answer.responses for result in topic.partition_responses]


async def refused_with(
    handler: ProduceHandler, verifier: FakeVerifier, code: ErrorCode, version: int = 11
) -> int:
    verifier.code = code
    [told] = codes(await sending(handler, ("t", numbered()), version=version), version)
    return told


@pytest.mark.parametrize("codec", list(Codec))
async def test_the_first_batch_of_a_transaction_is_appended_when_its_coordinator_vouches_for_it(
    handler: ProduceHandler, replicas: ReplicaManager, verifier: FakeVerifier, codec: Codec
) -> None:
    """T8.9: whatever the codec."""
    under_way = asyncio.ensure_future(sending(handler, ("t", numbered(codec=codec))))
    await turns()
    [question] = verifier.questions
    assert (question.transactional_id, question.producer_id, question.producer_epoch) == (
        "mine",
        PID,
        0,
    )
    assert list(question.partitions) == [("t", 0)]
    partition = replicas.led("t", 0)
    assert partition.log.end_offset == 0
    verifier.answer(ErrorCode.NONE)
    assert codes(await under_way) == [0]
    assert [one.value for one in records(partition.read(0, bytes_max=9999, at_least_one=True))] == [
        b"value"
    ]


async def test_an_answer_for_a_request_that_was_given_up_is_dropped(
    handler: ProduceHandler, replicas: ReplicaManager, verifier: FakeVerifier
) -> None:
    """It raised where answers are handed to many requests, one after the other."""
    under_way = asyncio.ensure_future(sending(handler, ("t", numbered())))
    await turns()
    under_way.cancel()
    await asyncio.gather(under_way, return_exceptions=True)
    verifier.answer(ErrorCode.NONE)
    assert replicas.led("t", 0).log.end_offset == 0


async def test_what_waits_for_a_coordinator_is_kept_in_memory_of_its_own(
    handler: ProduceHandler, replicas: ReplicaManager, verifier: FakeVerifier
) -> None:
    memory = numbered()
    request = call(
        messages.ProduceRequest(
            transactional_id="mine",
            acks=-1,
            timeout_ms=5000,
            topic_data=[
                messages.Topic(name="t", partition_data=[messages.Partition(index=0, records=b"")])
            ],
        ),
        11,
    )
    request.request.topic_data[0].partition_data[0].records = memoryview(memory)
    under_way = asyncio.ensure_future(handler.produce(request))
    await turns()
    memory[:] = bytes(len(memory))  # the connection receives its next request there
    verifier.answer(ErrorCode.NONE)
    assert codes(await under_way) == [0]
    stored = replicas.led("t", 0).read(0, bytes_max=9999, at_least_one=True)
    assert [one.value for one in records(stored)] == [b"value"]


async def test_inside_of_an_open_transaction_nobody_is_asked(
    handler: ProduceHandler, replicas: ReplicaManager, verifier: FakeVerifier
) -> None:
    verifier.code = ErrorCode.NONE
    assert codes(await sending(handler, ("t", numbered()))) == [0]
    assert codes(answered(sending(handler, ("t", numbered(1))))) == [0]
    assert codes(answered(sending(handler, ("t", numbered(1))))) == [0]  # repeated: appended once
    assert replicas.led("t", 0).log.end_offset == 2
    assert len(verifier.questions) == 1


async def test_an_open_transaction_vouches_for_nobody_under_another_id(
    handler: ProduceHandler, replicas: ReplicaManager, verifier: FakeVerifier
) -> None:
    """Who may use an id of his own, and guesses a producer id and its next sequence."""
    verifier.code = ErrorCode.NONE
    assert codes(await sending(handler, ("t", numbered()))) == [0]
    verifier.code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    stranger = sending(handler, ("t", numbered(1)), transactional_id="another's")
    assert codes(await stranger) == [49]
    assert replicas.led("t", 0).log.end_offset == 1
    assert codes(answered(sending(handler, ("t", numbered(1))))) == [0]
    assert len(verifier.questions) == 2


async def test_a_new_leader_asks_once_about_what_is_open(
    handler: ProduceHandler, replicas: ReplicaManager, verifier: FakeVerifier
) -> None:
    """Whose transaction it is the log does not say; several batches may be under way."""
    append(replicas.led("t", 0), numbered())
    under_way = [
        asyncio.ensure_future(sending(handler, ("t", numbered(sequence)))) for sequence in (1, 2)
    ]
    await turns()
    assert len(verifier.questions) == 2
    for place in (0, 1):
        verifier.answer(ErrorCode.NONE, place)
    assert [codes(await one) for one in under_way] == [[0], [0]]
    assert codes(answered(sending(handler, ("t", numbered(3))))) == [0]
    assert len(verifier.questions) == 2


async def test_an_open_transaction_of_another_epoch_vouches_for_nothing(
    handler: ProduceHandler, replicas: ReplicaManager, verifier: FakeVerifier
) -> None:
    """See docs/spec/transactions.md §5.3: a made-up higher epoch is not taken."""
    verifier.code = ErrorCode.NONE
    assert codes(await sending(handler, ("t", numbered()))) == [0]
    verifier.code = ErrorCode.PRODUCER_FENCED
    assert codes(await sending(handler, ("t", numbered(epoch=1)))) == [47]
    assert replicas.led("t", 0).log.end_offset == 1
    assert codes(answered(sending(handler, ("t", numbered(1))))) == [0]


async def test_a_zombie_is_refused_without_a_question(
    handler: ProduceHandler, replicas: ReplicaManager, verifier: FakeVerifier
) -> None:
    """T8.2: the marker carries the next epoch."""
    fence = marker(PID, Marker.ABORT, epoch=1)
    append(replicas.led("t", 0), numbered(), fence)
    assert codes(answered(sending(handler, ("t", numbered(1))))) == [47]
    assert verifier.questions == []


@pytest.mark.parametrize(("version", "told"), [(9, 48), (10, 48), (11, 120)])
async def test_a_partition_that_was_not_added_takes_nothing(
    handler: ProduceHandler,
    replicas: ReplicaManager,
    verifier: FakeVerifier,
    version: int,
    told: int,
) -> None:
    """T5.2."""
    assert await refused_with(handler, verifier, ErrorCode.TRANSACTION_ABORTABLE, version) == told
    assert replicas.led("t", 0).log.end_offset == 0


@pytest.mark.parametrize(
    ("answer", "told"),
    [(51, 19), (13, 19), (14, 19), (15, 19), (16, 19), (90, 47), (49, 49), (47, 47), (48, 48)],
)
async def test_a_coordinators_answer_becomes_a_code_that_every_producer_knows(
    handler: ProduceHandler, verifier: FakeVerifier, answer: int, told: int
) -> None:
    """T8.10: no 13 reaches a client."""
    for version in (3, 9, 11):
        assert await refused_with(handler, verifier, known_code(answer), version) == told


async def test_a_marker_between_the_answer_and_the_append_keeps_the_batch_out(
    handler: ProduceHandler, replicas: ReplicaManager, verifier: FakeVerifier
) -> None:
    """T5.3, T5.9 and T8.8: the transaction is over, and is not begun again."""
    under_way = asyncio.ensure_future(sending(handler, ("t", numbered())))
    await turns()
    partition = replicas.led("t", 0)
    append(partition, marker(PID, Marker.ABORT))
    verifier.answer(ErrorCode.NONE)
    assert codes(await under_way) == [48]
    assert partition.last_stable_offset == partition.log.end_offset == 1


async def test_a_marker_between_the_answer_and_the_turn_that_appends_keeps_the_batch_out(
    handler: ProduceHandler, replicas: ReplicaManager, verifier: FakeVerifier
) -> None:
    under_way = asyncio.ensure_future(sending(handler, ("t", numbered())))
    await turns()
    verifier.answer(ErrorCode.NONE)
    append(replicas.led("t", 0), marker(PID, Marker.ABORT))
    assert codes(await under_way) == [48]


@pytest.mark.parametrize(("version", "told"), [(10, 48), (11, 120)])
async def test_a_batch_that_comes_after_the_end_does_not_hold_readers_back(
    handler: ProduceHandler,
    replicas: ReplicaManager,
    verifier: FakeVerifier,
    version: int,
    told: int,
) -> None:
    """T5.9."""
    partition = replicas.led("t", 0)
    append(partition, numbered(), marker(PID))
    verifier.code = ErrorCode.TRANSACTION_ABORTABLE
    late = sending(handler, ("t", numbered(1)), version=version)
    assert codes(await late, version) == [told]
    assert partition.last_stable_offset == 2


async def test_a_producer_retries_while_its_coordinator_is_away_and_keeps_its_order(
    handler: ProduceHandler, replicas: ReplicaManager, verifier: FakeVerifier
) -> None:
    """T5.4 and T5.5: what comes behind a batch that failed does not overtake it."""
    assert await refused_with(handler, verifier, ErrorCode.COORDINATOR_NOT_AVAILABLE) == 19
    verifier.code = ErrorCode.NONE
    assert codes(await sending(handler, ("t", numbered(1)))) == [45]
    assert codes(await sending(handler, ("t", numbered(0)))) == [0]
    assert codes(answered(sending(handler, ("t", numbered(1))))) == [0]
    stored = replicas.led("t", 0)
    assert stored.log.end_offset == 2
    assert len(verifier.questions) == 3


async def test_a_lower_sequence_lowers_what_may_come_first(
    handler: ProduceHandler, verifier: FakeVerifier
) -> None:
    """Golden: "produce seq 5 first (guard lowest 5), then"."""
    verifier.code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert codes(await sending(handler, ("t", numbered(5)))) == [19]
    verifier.code = ErrorCode.NONE
    assert codes(await sending(handler, ("t", numbered(0)))) == [0]


async def test_partitions_of_one_request_are_asked_about_together_and_judged_apart(
    handler: ProduceHandler, replicas: ReplicaManager, verifier: FakeVerifier
) -> None:
    verifier.codes = {("u", 0): ErrorCode.TRANSACTION_ABORTABLE}
    verifier.code = ErrorCode.NONE
    assert codes(await sending(handler, ("t", numbered()), ("u", numbered()))) == [0, 120]
    [question] = verifier.questions
    assert list(question.partitions) == [("t", 0), ("u", 0)]
    assert [replicas.led(topic, 0).log.end_offset for topic in ("t", "u")] == [1, 0]


async def test_a_request_is_answered_when_what_was_verified_is_committed(
    handler: ProduceHandler, replicas: ReplicaManager, verifier: FakeVerifier
) -> None:
    lead(replicas, "r", replicas=[1, 2], isr=[1, 2])
    verifier.code = ErrorCode.NONE
    under_way = asyncio.ensure_future(sending(handler, ("r", numbered()), ("t", numbered())))
    await turns()
    assert not under_way.done()
    replicas.led("r", 0).follower_fetched(2, 1, 0)
    assert codes(await under_way) == [0, 0]


async def test_leadership_that_ends_while_a_coordinator_is_asked_is_told(
    handler: ProduceHandler, replicas: ReplicaManager, verifier: FakeVerifier
) -> None:
    under_way = asyncio.ensure_future(sending(handler, ("t", numbered())))
    await turns()
    follow(replicas, "t")
    verifier.answer(ErrorCode.NONE)
    assert codes(await under_way) == [6]


@pytest.mark.parametrize("version", [3, 11])
async def test_a_transaction_without_an_id_is_refused(
    handler: ProduceHandler, replicas: ReplicaManager, verifier: FakeVerifier, version: int
) -> None:
    sent = ("t", numbered()), ("u", numbered())
    answer = answered(sending(handler, *sent, version=version, transactional_id=None))
    assert codes(answer, version) == [53, 53]
    assert verifier.questions == []


async def test_plain_batches_under_an_id_are_appended_as_ever(
    handler: ProduceHandler, replicas: ReplicaManager, verifier: FakeVerifier
) -> None:
    """T8.9: KAFKA-14916."""
    verifier.code = ErrorCode.NONE
    assert codes(answered(sending(handler, ("t", a_batch())))) == [0]
    assert codes(await sending(handler, ("t", a_batch()), ("u", numbered()))) == [0, 0]
    assert [list(one.partitions) for one in verifier.questions] == [[("u", 0)]]


@pytest.mark.parametrize("other", [numbered(producer=8), numbered(epoch=1)])
async def test_two_producers_in_one_request_are_refused_as_a_whole(
    handler: ProduceHandler, replicas: ReplicaManager, verifier: FakeVerifier, other: bytearray
) -> None:
    answer = answered(sending(handler, ("t", numbered()), ("u", other)))
    assert codes(answer) == [49, 49]
    assert [replicas.led(topic, 0).log.end_offset for topic in ("t", "u")] == [0, 0]


async def test_verification_is_switched_while_a_node_runs(
    handler: ProduceHandler, replicas: ReplicaManager, verifier: FakeVerifier
) -> None:
    """T5.8."""
    verifier.code = ErrorCode.TRANSACTION_ABORTABLE
    assert codes(await sending(handler, ("t", numbered()))) == [120]
    verifier.is_enabled = False
    assert codes(answered(sending(handler, ("t", numbered())))) == [0]
    append(replicas.led("t", 0), marker(PID))
    verifier.is_enabled = True
    assert codes(await sending(handler, ("t", numbered(1)))) == [120]


async def test_without_acks_a_verified_batch_is_appended_and_a_refused_one_closes_the_connection(
    handler: ProduceHandler, replicas: ReplicaManager, verifier: FakeVerifier
) -> None:
    verifier.code = ErrorCode.TRANSACTION_ABORTABLE
    with pytest.raises(CorruptRequest, match="TRANSACTION_ABORTABLE"):
        await sending(handler, ("t", numbered()), acks=0)
    verifier.code = ErrorCode.NONE
    assert await sending(handler, ("t", numbered()), acks=0) is None
    assert replicas.led("t", 0).log.end_offset == 1


async def test_a_large_batch_is_verified_and_holds_up_no_other_producer(
    replicas: ReplicaManager, verifier: FakeVerifier, handler: ProduceHandler
) -> None:
    large = build_batch(
        [(b"key", b"value" * 100_000)],
        timestamp_ms=NOW_MS,
        producer_id=PID,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    under_way = asyncio.ensure_future(sending(handler, ("t", large)))
    await verifier.asked.wait()
    assert codes(answered(sending(handler, ("t", a_batch()), transactional_id=None))) == [0]
    verifier.answer(ErrorCode.NONE)
    assert codes(await under_way) == [0]
    assert replicas.led("t", 0).log.end_offset == 2


@pytest.mark.parametrize("sequence", [0, 5, 2_000_000_000])
async def test_of_a_producer_whose_records_are_gone_any_sequence_is_taken(
    handler: ProduceHandler, replicas: ReplicaManager, verifier: FakeVerifier, sequence: int
) -> None:
    """T8.17: KAFKA-7190."""
    verifier.code = ErrorCode.NONE
    assert codes(await sending(handler, ("t", numbered(sequence)))) == [0]
    assert codes(answered(sending(handler, ("t", numbered(sequence + 1))))) == [0]
    assert codes(answered(sending(handler, ("t", numbered(sequence + 3))))) == [45]
    assert replicas.led("t", 0).log.end_offset == 2


async def test_sequences_go_on_from_one_transaction_to_the_next(
    handler: ProduceHandler, replicas: ReplicaManager, verifier: FakeVerifier
) -> None:
    """See docs/spec/transactions.md §5.2: an abort does not reset them, a new epoch does."""
    verifier.code = ErrorCode.NONE
    partition = replicas.led("t", 0)
    for sequence, kind in enumerate((Marker.COMMIT, Marker.ABORT, Marker.COMMIT)):
        assert codes(await sending(handler, ("t", numbered(sequence)))) == [0]
        append(partition, marker(PID, kind))
    assert codes(await sending(handler, ("t", numbered(4)))) == [45]
    append(partition, marker(PID, Marker.ABORT, epoch=1))
    assert codes(await sending(handler, ("t", numbered(3, epoch=1)))) == [45]
    assert codes(await sending(handler, ("t", numbered(0, epoch=1)))) == [0]


async def test_markers_of_clients_are_refused(
    handler: ProduceHandler, replicas: ReplicaManager, verifier: FakeVerifier
) -> None:
    append(replicas.led("t", 0), numbered())
    assert codes(answered(sending(handler, ("t", marker(PID))))) == [87]
    assert replicas.led("t", 0).last_stable_offset == 0


async def test_a_partition_that_is_added_while_its_batch_is_on_its_way_takes_the_retry(
    handler: ProduceHandler, replicas: ReplicaManager, verifier: FakeVerifier
) -> None:
    """T8.15: one that comes too early spoils neither its partition nor the others."""
    verifier.code = ErrorCode.NONE
    verifier.codes = {("u", 0): ErrorCode.TRANSACTION_ABORTABLE}
    assert codes(await sending(handler, ("t", numbered()), ("u", numbered()))) == [0, 120]
    verifier.codes = {}
    assert codes(await sending(handler, ("u", numbered()))) == [0]
    assert codes(answered(sending(handler, ("t", numbered(1)), ("u", numbered(1))))) == [0, 0]
