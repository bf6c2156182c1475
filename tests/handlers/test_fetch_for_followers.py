"""Fetch as a follower asks it: epochs, positions, waiting for appends.

Source: docs/spec/cluster.md §3.11 check R8.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from barnabas.broker.handlers.call import PendingResponse
from barnabas.broker.handlers.fetch import FetchHandler
from barnabas.broker.replication.followers import GIVEN_MOST
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.protocol.messages import fetch as messages
from tests.handlers.peer import SomePeer, answered, call, over_the_wire
from tests.handlers.test_fetch import offsets, results, serving
from tests.replication.logs import FakePartitionContext, a_batch, follow, lead, turns

VERSION = 12
PEER = SomePeer(listener="INTERNAL", is_internal=True)


@pytest.fixture
async def handler(replicas: ReplicaManager) -> FetchHandler:
    return serving(replicas)


@pytest.fixture
def partition(replicas: ReplicaManager) -> Partition:
    lead(replicas, "t", epoch=4, replicas=[1, 2, 3], isr=[1, 2])
    return replicas.led("t", 0)


def append(partition: Partition, count: int = 1) -> None:
    partition.append(a_batch(count), acks=1, is_client=True)


def request(
    offset: int, *, node: int = 2, epoch: int = 4, last_epoch: int = -1, **more: Any
) -> messages.FetchRequest:
    more = {"min_bytes": 1, "max_wait_ms": 0, **more}
    asked = messages.Partition(
        partition=0,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        log_start_offset=0,
        partition_max_bytes=1 << 20,
    )
    topics = [messages.Topic(topic="t", partitions=[asked])]
    return messages.FetchRequest(replica_id=node, topics=topics, **more)


def fetched(handler: FetchHandler, asked: messages.FetchRequest) -> messages.PartitionResult:
    answer = answered(handler.fetch(call(asked, VERSION, peer=PEER)))
    [result] = results(over_the_wire(answer, VERSION))
    assert isinstance(result, messages.PartitionResult)
    return result


async def test_a_follower_reads_to_the_end_and_is_told_what_its_fetch_committed(
    handler: FetchHandler, partition: Partition
) -> None:
    append(partition, 3)
    first = fetched(handler, request(0))
    assert (offsets(first.records), first.high_watermark) == ([0, 1, 2], 0)
    append(partition)
    second = fetched(handler, request(3))
    assert (offsets(second.records), second.high_watermark) == ([3], 3)
    assert partition.high_watermark == 3


@pytest.mark.parametrize(("epoch", "code"), [(3, 74), (5, 75), (4, 0), (-1, 0)])
async def test_the_epoch_of_the_leader_must_be_the_followers_as_well(
    handler: FetchHandler, partition: Partition, epoch: int, code: int
) -> None:
    append(partition)
    assert fetched(handler, request(1, epoch=epoch)).error_code == code
    assert partition.high_watermark == (0 if code else 1)


@pytest.mark.parametrize(("epoch", "code"), [(4, 75), (-1, 6)])
@pytest.mark.parametrize("node", [1, 9])
async def test_a_node_without_a_replica_and_the_leader_itself_are_no_followers(
    handler: FetchHandler, partition: Partition, node: int, epoch: int, code: int
) -> None:
    assert fetched(handler, request(0, node=node, epoch=epoch)).error_code == code


async def test_a_log_that_parted_is_told_where_and_its_position_says_nothing(
    handler: FetchHandler, replicas: ReplicaManager, partition: Partition
) -> None:
    append(partition, 2)
    follow(replicas, "t", epoch=5)
    lead(replicas, "t", epoch=6, partition_epoch=6, replicas=[1, 2, 3], isr=[1, 2])
    append(partition, 2)
    result = fetched(handler, request(4, epoch=6, last_epoch=5))
    assert result.diverging_epoch == messages.DivergingEpoch(epoch=4, end_offset=2)
    assert (result.records, partition.high_watermark) == (b"", 0)
    known = partition.followers.get(2)
    assert known is not None
    assert known.log_end == -1
    assert fetched(handler, request(2, epoch=6, last_epoch=4)).diverging_epoch is None
    assert partition.high_watermark == 2


@pytest.mark.parametrize(("offset", "last_epoch"), [(3, -1), (0, 7), (-1, -1)])
async def test_an_offset_or_an_epoch_beyond_the_log_is_out_of_range(
    handler: FetchHandler, partition: Partition, offset: int, last_epoch: int
) -> None:
    append(partition, 2)
    assert fetched(handler, request(offset, last_epoch=last_epoch)).error_code == 1
    assert partition.high_watermark == 0


async def test_a_follower_is_woken_by_an_append_and_a_consumer_by_its_commit(
    handler: FetchHandler, partition: Partition
) -> None:
    waiting = handler.fetch(call(request(0, max_wait_ms=60_000), VERSION, peer=PEER))
    consumer = handler.fetch(call(request(0, node=-1, max_wait_ms=60_000), VERSION))
    assert isinstance(waiting, PendingResponse)
    assert isinstance(consumer, PendingResponse)
    append(partition)
    append(partition)
    await turns()
    assert offsets(results(waiting.answer)[0].records) == [0, 1]
    assert not consumer.is_resolved
    fetched(handler, request(2))
    await turns()
    assert offsets(results(consumer.answer)[0].records) == [0, 1]


async def test_the_last_batch_is_the_same_from_memory_as_from_the_file(
    handler: FetchHandler, replicas: ReplicaManager, partition: Partition
) -> None:
    append(partition, 2)
    append(partition, 3)
    assert partition.fetch_waiters.tail is not None
    from_memory = fetched(handler, request(2, last_epoch=4))
    partition.fetch_waiters.tail = None
    assert fetched(handler, request(2, last_epoch=4)) == from_memory
    assert offsets(from_memory.records) == [2, 3, 4]
    assert offsets(fetched(handler, request(0, last_epoch=4)).records) == [0, 1, 2, 3, 4]
    assert offsets(fetched(handler, request(3, last_epoch=4)).records) == [2, 3, 4]


async def test_nothing_in_memory_outlives_an_epoch_a_deletion_or_the_size_of_a_small_batch(
    handler: FetchHandler, replicas: ReplicaManager, partition: Partition
) -> None:
    append(partition, 2)
    follow(replicas, "t", epoch=5)
    assert partition.fetch_waiters.tail is None
    lead(replicas, "t", epoch=6, partition_epoch=6, replicas=[1, 2, 3], isr=[1, 2])
    append(partition, 2)
    partition.log.advance_start(4)
    assert fetched(handler, request(2, epoch=6, last_epoch=6)).error_code == 1
    append(partition, 1000)
    assert partition.fetch_waiters.tail is None
    assert len(offsets(fetched(handler, request(4, epoch=6, last_epoch=6)).records)) == 1000


async def test_waiting_is_no_sign_of_life(
    handler: FetchHandler, partition: Partition, context: FakePartitionContext
) -> None:
    """A fetch that is looked at again says nothing of where the follower is by now."""
    handler.fetch(call(request(0, max_wait_ms=60_000), VERSION, peer=PEER))
    known = partition.followers.get(2)
    assert known is not None
    at = known.caught_up_at
    context.time += 5
    append(partition)
    await turns()
    assert (known.caught_up_at, known.log_end) == (at, 0)


async def test_waiting_ends_when_the_leader_is_another(
    handler: FetchHandler, replicas: ReplicaManager, partition: Partition
) -> None:
    waiting = handler.fetch(call(request(0, max_wait_ms=60_000), VERSION, peer=PEER))
    follow(replicas, "t", epoch=5)
    await turns()
    assert isinstance(waiting, PendingResponse)
    assert results(waiting.answer)[0].error_code == 6


async def test_in_a_session_a_follower_names_only_what_moved(
    handler: FetchHandler, partition: Partition
) -> None:
    begun = handler.fetch(call(request(0, session_epoch=0), VERSION, peer=PEER))
    session = begun.session_id
    assert session > 0
    append(partition, 2)
    silent = request(0, session_id=session, session_epoch=1)
    silent.topics = []
    found = handler.fetch(call(silent, VERSION, peer=PEER))
    assert offsets(results(found)[0].records) == [0, 1]
    moved = request(2, session_id=session, session_epoch=2)
    found = handler.fetch(call(moved, VERSION, peer=PEER))
    assert [one.high_watermark for one in results(found)] == [2]
    silent.session_epoch = 3
    assert results(handler.fetch(call(silent, VERSION, peer=PEER))) == []
    await asyncio.sleep(0)


async def test_between_two_looks_at_all_a_session_looks_at_what_moved(
    handler: FetchHandler, replicas: ReplicaManager, partition: Partition
) -> None:
    lead(replicas, "u", epoch=4, replicas=[1, 2, 3], isr=[1, 2])
    other = replicas.led("u", 0)
    first = request(0, session_epoch=0)
    first.topics = [*first.topics, messages.Topic(topic="u", partitions=first.topics[0].partitions)]
    session = handler.fetch(call(first, VERSION, peer=PEER)).session_id
    silent = request(0, session_id=session, session_epoch=1, max_wait_ms=60_000)
    silent.topics = []
    waiting = handler.fetch(call(silent, VERSION, peer=PEER))
    assert isinstance(waiting, PendingResponse)
    append(other)
    await turns()
    [topic] = waiting.answer.responses
    assert (topic.topic, offsets(topic.partitions[0].records)) == ("u", [0])
    append(partition)
    silent.session_epoch = 2
    [topic] = handler.fetch(call(silent, VERSION, peer=PEER)).responses
    assert (topic.topic, offsets(topic.partitions[0].records)) == ("t", [0])
    silent.session_epoch = 3
    waiting = handler.fetch(call(silent, VERSION, peer=PEER))
    assert isinstance(waiting, PendingResponse)
    follow(replicas, "t", epoch=5)
    await turns()
    assert [one.error_code for one in results(waiting.answer)] == [6]
    closing = request(0, session_id=session, session_epoch=-1)
    handler.fetch(call(closing, VERSION, peer=PEER))
    assert not other.fetch_waiters._followers


async def test_what_did_not_fit_into_one_answer_comes_with_the_next(
    handler: FetchHandler, replicas: ReplicaManager, partition: Partition
) -> None:
    lead(replicas, "u", epoch=4, replicas=[1, 2, 3], isr=[1, 2])
    first = request(0, session_epoch=0)
    first.topics = [*first.topics, messages.Topic(topic="u", partitions=first.topics[0].partitions)]
    session = handler.fetch(call(first, VERSION, peer=PEER)).session_id
    append(partition)
    append(replicas.led("u", 0))
    silent = request(0, session_id=session, session_epoch=1, max_bytes=1)
    silent.topics = []
    found = []
    for epoch in (1, 2):
        silent.session_epoch = epoch
        [topic] = handler.fetch(call(silent, VERSION, peer=PEER)).responses
        found.append(topic.topic)
    assert sorted(found) == ["t", "u"]


async def test_a_copy_is_verified_when_a_follower_asks_for_the_same_again_and_again(
    handler: FetchHandler, partition: Partition, caplog: pytest.LogCaptureFixture
) -> None:
    append(partition, 3)
    [segment] = partition.log.segments.view.segments
    for _ in range(GIVEN_MOST - 1):
        assert fetched(handler, request(0)).records
    assert not segment.is_suspect
    fetched(handler, request(0, node=3))
    assert not segment.is_suspect, "another one asked"
    fetched(handler, request(0))
    assert segment.is_suspect
    segment.is_suspect = False
    fetched(handler, request(0))
    assert not segment.is_suspect, "once is enough"
    [line] = [one.getMessage() for one in caplog.records if "again and again" in one.getMessage()]
    assert "node=2 offset=0" in line
