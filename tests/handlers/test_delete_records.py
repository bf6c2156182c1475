"""DeleteRecords: the start of a log moves up, here and on every live replica."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from barnabas.broker.handlers.delete_records import DeleteRecordsHandler
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.storage.checkpoints import parse_offsets
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.messages import delete_records as messages
from barnabas.protocol.names import INTERNAL_TOPICS
from tests.handlers.peer import call, over_the_wire
from tests.replication.logs import (
    NODE,
    FakePartitionContext,
    ManualLogManager,
    a_batch,
    follow,
    hosting,
    lead,
    turns,
)
from tests.storage.log_harness import spans_of


@pytest.fixture
async def context() -> FakePartitionContext:
    return FakePartitionContext()


@pytest.fixture
def replicas(shelf: ManualLogManager, context: FakePartitionContext) -> ReplicaManager:
    return hosting(shelf, lambda *key: key == ("elsewhere", 0), context)


@pytest.fixture
async def handler(replicas: ReplicaManager, shelf: ManualLogManager) -> DeleteRecordsHandler:
    return DeleteRecordsHandler(replicas, shelf.write_log_starts, loop=asyncio.get_running_loop())


async def delete(
    handler: DeleteRecordsHandler,
    *wanted: tuple[str, int],
    timeout_ms: int = 60_000,
    version: int = 2,
) -> list[tuple[int, int]]:
    """Error code and low watermark of partition 0 of each topic."""
    request = messages.DeleteRecordsRequest(
        topics=[
            messages.Topic(
                name=topic, partitions=[messages.Partition(partition_index=0, offset=offset)]
            )
            for topic, offset in wanted
        ],
        timeout_ms=timeout_ms,
    )
    answer = over_the_wire(await handler.delete_records(call(request, version)), version)
    return [
        (topic.partitions[0].error_code, topic.partitions[0].low_watermark)
        for topic in answer.topics
    ]


def ten_records(replicas: ReplicaManager, topic: str = "t") -> None:
    """One batch, then three alone."""
    lead(replicas, topic)
    partition = replicas.led(topic, 0)
    partition.append(a_batch(10), acks=1, is_client=True)
    for _ in range(3):
        partition.append(a_batch(), acks=1, is_client=True)


@pytest.mark.parametrize("version", range(3))
async def test_the_start_may_lie_inside_a_batch(
    handler: DeleteRecordsHandler, replicas: ReplicaManager, version: int
) -> None:
    ten_records(replicas)
    assert await delete(handler, ("t", 5), version=version) == [(0, 5)]
    partition = replicas.led("t", 0)
    assert partition.log.start_offset == 5
    data = partition.read(5, bytes_max=1, at_least_one=True)
    assert spans_of(data) == [(0, 9)]
    with pytest.raises(Refused) as refused:
        partition.read(4, bytes_max=1, at_least_one=True)
    assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_minus_one_deletes_all_that_is_committed(
    handler: DeleteRecordsHandler, replicas: ReplicaManager
) -> None:
    ten_records(replicas)
    assert await delete(handler, ("t", -1)) == [(0, 13)]
    appended = replicas.led("t", 0).append(a_batch(), acks=1, is_client=True)
    assert (appended.base_offset, appended.log_start_offset) == (13, 13)


async def test_an_offset_below_the_start_changes_nothing(
    handler: DeleteRecordsHandler, replicas: ReplicaManager
) -> None:
    ten_records(replicas)
    await delete(handler, ("t", 11))
    assert await delete(handler, ("t", 3)) == [(0, 11)]


async def test_nothing_above_the_high_watermark_can_be_deleted(
    handler: DeleteRecordsHandler, replicas: ReplicaManager
) -> None:
    ten_records(replicas)
    assert [await delete(handler, ("t", offset)) for offset in (14, -2)] == [[(1, -1)], [(1, -1)]]
    assert replicas.led("t", 0).log.start_offset == 0


async def test_a_topic_that_is_only_compacted_is_refused(
    handler: DeleteRecordsHandler, replicas: ReplicaManager, shelf: ManualLogManager
) -> None:
    shelf.settings = {"cleanup.policy": "compact"}
    ten_records(replicas, "compacted")
    shelf.settings = {"cleanup.policy": "compact,delete"}
    ten_records(replicas, "both")
    answers = await delete(handler, ("compacted", 1), ("both", 1))
    assert answers == [(ErrorCode.POLICY_VIOLATION, -1), (0, 1)]


async def test_the_code_says_where_the_partition_is_not(
    handler: DeleteRecordsHandler, replicas: ReplicaManager
) -> None:
    follow(replicas, "followed")
    wanted = [
        (topic, 0) for topic in ("nowhere", "elsewhere", "followed", *sorted(INTERNAL_TOPICS))
    ]
    codes = [code for code, _ in await delete(handler, *wanted)]
    assert codes == [3, 6, 6, *[17] * len(INTERNAL_TOPICS)]


async def test_the_start_is_written_down_before_it_is_said(
    handler: DeleteRecordsHandler, replicas: ReplicaManager, tmp_path: Path
) -> None:
    ten_records(replicas)
    await delete(handler, ("t", 5))
    written = parse_offsets((tmp_path / "log-start-offset-checkpoint").read_text())
    assert written == {("t", 0): 5}


# --- with other replicas --------------------------------------------------------------------------


def three_replicas(replicas: ReplicaManager) -> None:
    """Ten committed records; both followers have them and start at 0."""
    lead(replicas, "t", isr=[NODE, 2, 3], replicas=[NODE, 2, 3])
    partition = replicas.led("t", 0)
    partition.append(a_batch(10), acks=1, is_client=True)
    for node in (2, 3):
        partition.follower_fetched(node, 10, 0)
    assert partition.high_watermark == 10


async def test_the_answer_waits_for_every_live_replica(
    handler: DeleteRecordsHandler, replicas: ReplicaManager
) -> None:
    three_replicas(replicas)
    answer = asyncio.ensure_future(delete(handler, ("t", 7)))
    partition = replicas.led("t", 0)
    while partition.log.start_offset == 0:
        await turns()
    partition.follower_fetched(2, 10, 7)
    await turns(20)
    assert not answer.done()
    partition.follower_fetched(3, 10, 8)
    assert await answer == [(0, 7)]


class Waiter:
    """A follower's fetch that waits for so many bytes."""

    missing = 1

    def grew(self, count: int) -> None:
        self.missing -= count

    def end(self) -> None:
        raise AssertionError("the leader has not changed")


async def test_followers_that_wait_for_records_hear_of_the_new_start_at_once(
    handler: DeleteRecordsHandler, replicas: ReplicaManager
) -> None:
    three_replicas(replicas)
    partition, fetch = replicas.led("t", 0), Waiter()
    partition.fetch_waiters.wait_for_append(fetch)
    answer = asyncio.ensure_future(delete(handler, ("t", 7)))
    while not partition.low_watermark_waiters.count:
        assert fetch.missing == 1
        await turns()
    assert fetch.missing <= 0
    for node in (2, 3):
        partition.follower_fetched(node, 10, 7)
    assert await answer == [(0, 7)]


async def test_a_dead_replica_is_not_waited_for(
    handler: DeleteRecordsHandler, replicas: ReplicaManager, context: FakePartitionContext
) -> None:
    three_replicas(replicas)
    context.live = {1, 2}
    replicas.led("t", 0).follower_fetched(2, 10, 7)
    assert await delete(handler, ("t", 7)) == [(0, 7)]


async def test_a_replica_that_does_not_follow_in_time_is_told_of(
    handler: DeleteRecordsHandler, replicas: ReplicaManager
) -> None:
    three_replicas(replicas)
    answer = await delete(handler, ("t", 7), timeout_ms=1)
    assert answer == [(ErrorCode.REQUEST_TIMED_OUT, 0)]
    assert replicas.led("t", 0).log.start_offset == 7


async def test_who_waits_is_told_when_leadership_ends(
    handler: DeleteRecordsHandler, replicas: ReplicaManager
) -> None:
    three_replicas(replicas)
    answer = asyncio.ensure_future(delete(handler, ("t", 7)))
    partition = replicas.led("t", 0)
    while not partition.low_watermark_waiters.count:
        await turns()
    follow(replicas, "t")
    assert await answer == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]


async def test_nobody_is_remembered_after_the_answer(
    handler: DeleteRecordsHandler, replicas: ReplicaManager
) -> None:
    three_replicas(replicas)
    await delete(handler, ("t", 7), timeout_ms=1)
    assert replicas.led("t", 0).low_watermark_waiters.count == 0


async def test_on_a_full_disk_it_is_answered_with_an_error_until_the_start_is_written_down(
    replicas: ReplicaManager, shelf: ManualLogManager
) -> None:
    ten_records(replicas)
    full = {replicas.led("t", 0).log.directory.parent}

    async def write() -> frozenset[Path]:
        return frozenset(full) or await shelf.write_log_starts()

    handler = DeleteRecordsHandler(replicas, write, loop=asyncio.get_running_loop())
    assert await delete(handler, ("t", 5)) == [(ErrorCode.KAFKA_STORAGE_ERROR, 5)]
    assert replicas.led("t", 0).log.start_offset == 5
    full.clear()
    assert await delete(handler, ("t", 5)) == [(0, 5)]
    file = replicas.led("t", 0).log.directory.parent / "log-start-offset-checkpoint"
    assert parse_offsets(file.read_text()) == {("t", 0): 5}
