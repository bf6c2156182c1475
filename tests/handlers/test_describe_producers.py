"""DescribeProducers, and the transactional batches a leader takes: docs/spec/log.md §7."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.broker.handlers.describe_producers import DescribeProducersHandler
from barnabas.broker.handlers.produce import ProduceHandler
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import describe_producers as messages
from barnabas.protocol.messages import produce
from barnabas.protocol.records.batch import build_batch
from tests.handlers.coordinators import FakeVerifier, judging
from tests.handlers.peer import answered, call, over_the_wire
from tests.handlers.test_produce import request, results
from tests.replication.logs import NOW_MS, a_batch, follow, lead
from tests.replication.test_last_stable_offset import append, in_transaction, marker


def described(replicas: ReplicaManager, *topics: str) -> list[messages.PartitionResult]:
    asked = messages.DescribeProducersRequest(
        topics=[messages.Topic(name=topic, partition_indexes=[0]) for topic in topics]
    )
    answer = over_the_wire(DescribeProducersHandler(replicas).describe_producers(call(asked, 0)), 0)
    return [one for topic in answer.topics for one in topic.partitions]


def test_a_partition_names_its_producers_and_their_transactions(replicas: ReplicaManager) -> None:
    lead(replicas, "t")
    append(replicas.led("t", 0), a_batch(), in_transaction(7), in_transaction(8), marker(8))
    [result] = described(replicas, "t")
    assert result.error_code == 0
    assert list(result.active_producers) == [
        messages.Producer(
            producer_id=7,
            producer_epoch=0,
            last_sequence=0,
            last_timestamp=NOW_MS,
            coordinator_epoch=-1,
            current_txn_start_offset=1,
        ),
        messages.Producer(
            producer_id=8,
            producer_epoch=0,
            last_sequence=0,
            last_timestamp=NOW_MS,
            coordinator_epoch=0,
            current_txn_start_offset=-1,
        ),
    ]


def test_a_producer_of_which_only_a_marker_is_known_has_no_sequence(
    replicas: ReplicaManager,
) -> None:
    lead(replicas, "t")
    append(replicas.led("t", 0), marker(7))
    assert described(replicas, "t")[0].active_producers[0].last_sequence == -1


def test_a_follower_describes_producers_too_and_others_say_who_knows(
    replicas: ReplicaManager,
) -> None:
    lead(replicas, "t")
    append(replicas.led("t", 0), in_transaction(7))
    follow(replicas, "t")
    found = described(replicas, "t", "elsewhere", "nowhere")
    assert [each.error_code for each in found] == [0, 6, 3]
    assert [len(each.active_producers) for each in found] == [1, 0, 0]


@pytest.fixture
async def handler(replicas: ReplicaManager) -> ProduceHandler:
    lead(replicas, "t")
    return ProduceHandler(
        replicas,
        loop=asyncio.get_running_loop(),
        now_ms=lambda: NOW_MS,
        transactions=judging(),
    )


def sent(
    handler: ProduceHandler, batch: bytearray, transactional_id: str | None = "mine"
) -> produce.PartitionResult:
    asking = request(("t", batch))
    asking.transactional_id = transactional_id
    return results(answered(handler.produce(call(asking, 9))))[0]


async def sent_and_asked(handler: ProduceHandler, batch: bytearray) -> produce.PartitionResult:
    """The same, where a coordinator is asked first."""
    asking = request(("t", batch))
    asking.transactional_id = "mine"
    return results(await handler.produce(call(asking, 9)))[0]


async def test_a_transaction_that_nobody_coordinates_does_not_begin(
    handler: ProduceHandler, replicas: ReplicaManager
) -> None:
    result = sent(handler, in_transaction(7))
    assert (result.error_code, result.base_offset) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
    assert replicas.led("t", 0).log.end_offset == 0


async def test_a_transaction_that_began_before_a_take_over_goes_on(
    replicas: ReplicaManager,
) -> None:
    """Once its coordinator says that the producer is who it says it is."""
    verifier = FakeVerifier(ErrorCode.NONE)
    lead(replicas, "t")
    handler = ProduceHandler(
        replicas,
        loop=asyncio.get_running_loop(),
        now_ms=lambda: NOW_MS,
        transactions=judging(verifier),
    )
    append(replicas.led("t", 0), in_transaction(7))
    assert (await sent_and_asked(handler, in_transaction(7, 1))).base_offset == 1
    assert sent(handler, in_transaction(7, 2)).base_offset == 2
    append(replicas.led("t", 0), marker(7))
    verifier.code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    refused = await sent_and_asked(handler, in_transaction(7, 3))
    assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS


async def test_a_transactional_batch_needs_a_transactional_id(
    handler: ProduceHandler, replicas: ReplicaManager
) -> None:
    result = sent(handler, in_transaction(7), None)
    assert result.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


async def test_a_client_may_not_write_markers(
    handler: ProduceHandler, replicas: ReplicaManager
) -> None:
    append(replicas.led("t", 0), in_transaction(7))
    assert sent(handler, marker(7)).error_code == ErrorCode.INVALID_RECORD
    assert replicas.led("t", 0).last_stable_offset == 0


async def test_a_plain_batch_of_a_producer_in_a_transaction_is_refused(
    handler: ProduceHandler, replicas: ReplicaManager
) -> None:
    append(replicas.led("t", 0), in_transaction(7))
    plain = build_batch(
        [(b"key", b"value")],
        timestamp_ms=NOW_MS,
        producer_id=7,
        producer_epoch=0,
        base_sequence=1,
    )
    assert sent(handler, plain).error_code == ErrorCode.INVALID_TXN_STATE
