"""Produce in every version: acks, codes, what is stored and when it is answered."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from barnabas.broker.handlers.call import PendingResponse
from barnabas.broker.handlers.produce import ProduceHandler, rules_of
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.settings.log_config import FOREVER, LogConfig
from barnabas.protocol.errors import CorruptRequest, ErrorCode
from barnabas.protocol.messages import produce as messages
from barnabas.protocol.records import batch, message_set
from tests.handlers.coordinators import judging
from tests.handlers.peer import SomePeer, answered, call, over_the_wire
from tests.replication.logs import NOW_MS, ManualLogManager, a_batch, follow, lead

VERSIONS = range(3, 12)


@pytest.fixture
async def handler(replicas: ReplicaManager) -> ProduceHandler:
    return ProduceHandler(
        replicas,
        loop=asyncio.get_running_loop(),
        now_ms=lambda: NOW_MS,
        transactions=judging(),
    )


def request(
    *records: tuple[str, Any], acks: int = -1, timeout_ms: int = 5000
) -> messages.ProduceRequest:
    return messages.ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            messages.Topic(
                name=topic, partition_data=[messages.Partition(index=0, records=bytes(data))]
            )
            for topic, data in records
        ],
    )


def results(answer: Any) -> list[messages.PartitionResult]:
    return [one for topic in answer.responses for one in topic.partition_responses]


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_batch_is_appended_and_its_offset_answered(
    handler: ProduceHandler, replicas: ReplicaManager, version: int, acks: int
) -> None:
    lead(replicas, "t")
    for expected in (0, 3):
        answer = answered(handler.produce(call(request(("t", a_batch(3)), acks=acks), version)))
        [result] = results(over_the_wire(answer, version))
        assert (result.error_code, result.base_offset) == (0, expected)
        assert result.log_append_time_ms == -1
        assert result.log_start_offset == (0 if version >= 5 else -1)
    assert replicas.led("t", 0).high_watermark == 6


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1)])
async def test_messages_of_older_formats_become_a_batch(
    handler: ProduceHandler, replicas: ReplicaManager, version: int, magic: int
) -> None:
    lead(replicas, "t")
    records = list(batch.records(a_batch(2), 0))
    old = message_set.encode_messages(records, magic)
    answer = answered(handler.produce(call(request(("t", old), acks=1), version)))
    assert results(answer)[0].error_code == 0
    stored = replicas.led("t", 0).read(0, bytes_max=10_000, at_least_one=True)
    assert batch.magic(stored) == 2
    assert [record.value for record in batch.records(stored, 0)] == [b"value", b"value"]


async def test_a_topic_may_stamp_records_with_its_own_time(
    handler: ProduceHandler, replicas: ReplicaManager, shelf: ManualLogManager
) -> None:
    shelf.settings = {"message.timestamp.type": "LogAppendTime"}
    lead(replicas, "t")
    sent = a_batch(timestamp_ms=1000)
    answer = answered(handler.produce(call(request(("t", sent)), 9)))
    assert results(answer)[0].log_append_time_ms == NOW_MS


@pytest.mark.parametrize("acks", [-2, 2, 3])
async def test_other_acks_append_nothing(
    handler: ProduceHandler, replicas: ReplicaManager, acks: int
) -> None:
    lead(replicas, "t")
    answer = answered(handler.produce(call(request(("t", a_batch()), acks=acks), 8)))
    assert results(answer)[0].error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert replicas.led("t", 0).log.end_offset == 0


async def test_each_partition_has_its_own_code(
    handler: ProduceHandler, replicas: ReplicaManager
) -> None:
    for topic in ("t", "u", "v"):
        lead(replicas, topic)
    follow(replicas, "followed")
    damaged = a_batch()
    damaged[-1] ^= 1
    answer = answered(
        handler.produce(
            call(
                request(
                    ("nowhere", a_batch()),
                    ("elsewhere", a_batch()),
                    ("followed", a_batch()),
                    ("t", damaged),
                    ("u", a_batch()),
                    ("v", b""),
                ),
                7,
            )
        )
    )
    assert [result.error_code for result in results(answer)] == [3, 6, 6, 2, 0, 87]
    assert [result.base_offset for result in results(answer)] == [-1, -1, -1, -1, 0, -1]


@pytest.mark.parametrize(
    ("topic", "code"), [("__consumer_offsets", 0), ("__transaction_state", 17)]
)
async def test_only_the_admin_client_writes_to_internal_topics_and_only_group_offsets(
    handler: ProduceHandler, replicas: ReplicaManager, topic: str, code: int
) -> None:
    """docs/spec/transactions.md §1.1: a client id decides nobody's transaction."""
    lead(replicas, topic)
    wanted = request((topic, a_batch()))
    refused = answered(handler.produce(call(wanted, 9)))
    assert results(refused)[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    asked = answered(handler.produce(call(wanted, 9, client_id="__admin_client")))
    assert results(asked)[0].error_code == code


async def test_bad_records_are_named_one_by_one(
    handler: ProduceHandler, replicas: ReplicaManager, shelf: ManualLogManager
) -> None:
    shelf.settings = {"cleanup.policy": "compact"}
    lead(replicas, "t")
    sent = batch.build_batch([(b"k", b"v"), (None, b"v")], timestamp_ms=NOW_MS)
    answer = answered(handler.produce(call(request(("t", sent)), 8)))
    [result] = results(over_the_wire(answer, 8))
    assert result.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in result.record_errors] == [1]
    assert result.error_message
    assert results(over_the_wire(answer, 7))[0].error_code == ErrorCode.INVALID_RECORD


async def test_what_is_sent_again_is_answered_as_before(
    handler: ProduceHandler, replicas: ReplicaManager
) -> None:
    lead(replicas, "t")

    def sent(sequence: int) -> bytearray:
        return batch.build_batch(
            [(None, b"v")],
            timestamp_ms=NOW_MS,
            producer_id=9,
            producer_epoch=0,
            base_sequence=sequence,
        )

    offsets = []
    for sequence in (0, 1, 1):
        answer = answered(handler.produce(call(request(("t", sent(sequence))), 9)))
        offsets.append(results(answer)[0].base_offset)
    assert offsets == [0, 1, 1]
    late = answered(handler.produce(call(request(("t", sent(5))), 9)))
    assert results(late)[0].error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_too_large_a_batch_is_refused(
    handler: ProduceHandler, replicas: ReplicaManager, shelf: ManualLogManager
) -> None:
    shelf.settings = {"max.message.bytes": "100"}
    lead(replicas, "t")
    answer = answered(handler.produce(call(request(("t", a_batch(value=b"v" * 200))), 9)))
    assert results(answer)[0].error_code == ErrorCode.MESSAGE_TOO_LARGE


async def test_without_acks_nothing_is_answered(
    handler: ProduceHandler, replicas: ReplicaManager
) -> None:
    lead(replicas, "t")
    peer = SomePeer()
    assert handler.produce(call(request(("t", a_batch()), acks=0), 7, peer=peer)) is None
    assert replicas.led("t", 0).log.end_offset == 1
    assert not peer.is_closed


async def test_without_acks_an_error_closes_the_connection(handler: ProduceHandler) -> None:
    peer = SomePeer()
    with pytest.raises(CorruptRequest, match="without acks: UNKNOWN_TOPIC_OR_PARTITION"):
        handler.produce(call(request(("nowhere", a_batch()), acks=0), 7, peer=peer))


async def test_acks_of_all_wait_for_the_flush_that_the_topic_asks_for(
    handler: ProduceHandler, replicas: ReplicaManager, shelf: ManualLogManager
) -> None:
    shelf.settings = {"flush.messages": "1"}
    for topic in ("t", "u"):
        lead(replicas, topic)
    pending = handler.produce(call(request(("t", a_batch()), ("u", a_batch())), 9))
    quick = answered(handler.produce(call(request(("t", a_batch()), acks=1), 9)))
    assert results(quick)[0].base_offset == 1
    assert isinstance(pending, PendingResponse)
    assert not pending.is_resolved
    await shelf.flush()
    assert [result.error_code for result in results(answered(pending))] == [0, 0]


async def test_acks_of_all_that_do_not_come_in_time_are_timed_out(
    handler: ProduceHandler, replicas: ReplicaManager, shelf: ManualLogManager
) -> None:
    shelf.settings = {"flush.messages": "1"}
    lead(replicas, "t")
    pending = handler.produce(call(request(("t", a_batch()), timeout_ms=1), 9))
    assert isinstance(pending, PendingResponse)
    late = asyncio.Event()
    pending.add_done_callback(lambda _: late.set())
    await late.wait()
    assert results(pending.answer)[0].error_code == ErrorCode.REQUEST_TIMED_OUT


async def test_acks_of_all_end_with_leadership(
    handler: ProduceHandler, replicas: ReplicaManager, shelf: ManualLogManager
) -> None:
    shelf.settings = {"flush.messages": "1"}
    lead(replicas, "t")
    pending = handler.produce(call(request(("t", a_batch())), 9))
    follow(replicas, "t")
    assert results(answered(pending))[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(("version", "code"), [(3, 6), (4, 56)])
async def test_a_failed_disk_is_named_to_those_who_know_the_code(
    handler: ProduceHandler,
    replicas: ReplicaManager,
    shelf: ManualLogManager,
    version: int,
    code: int,
) -> None:
    lead(replicas, "t")
    shelf.log("t").take_offline("gone")
    answer = answered(handler.produce(call(request(("t", a_batch())), version)))
    assert results(answer)[0].error_code == code


@pytest.mark.parametrize(
    ("overrides", "bounds"),
    [
        ({}, (FOREVER, FOREVER)),
        ({"difference": "9"}, (9, 9)),
        ({"difference": "9", "before": "7000"}, (7000, 9)),
        ({"difference": "9", "before": "7000", "after": "80"}, (7000, 80)),
        ({"after": "80"}, (FOREVER, 80)),
    ],
)
def test_the_older_bound_of_timestamps_counts_where_the_newer_ones_are_not_set(
    overrides: dict[str, str], bounds: tuple[int, int]
) -> None:
    """As in Kafka's LogConfig.getMessageTimestampBeforeMaxMs."""
    config = LogConfig().with_overrides(
        {f"message.timestamp.{name}.max.ms": text for name, text in overrides.items()}
    )
    rules = rules_of(config)
    assert (rules.timestamp_before_max_ms, rules.timestamp_after_max_ms) == bounds
