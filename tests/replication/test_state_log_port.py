"""The coordinator's port over real partitions."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.replication.state_log_port import StateLogPort
from barnabas.broker.settings.log_config import LogConfig
from barnabas.coordinator.ports import OFFSETS_TOPIC, StateLog
from barnabas.protocol.errors import ErrorCode
from tests.replication.logs import ManualLogManager, a_batch, follow, lead

Done = list[tuple[ErrorCode, int]]


@pytest.fixture
async def port(replicas: ReplicaManager) -> StateLog:
    return StateLogPort(replicas, OFFSETS_TOPIC, asyncio.get_running_loop())


def append(
    port: StateLog, *, epoch: int = 0, acks: int = -1, timeout_ms: int = 60_000, count: int = 1
) -> Done:
    done: Done = []
    port.append(
        3,
        a_batch(count),
        leader_epoch=epoch,
        acks=acks,
        timeout_ms=timeout_ms,
        on_appended=lambda code, offset: done.append((code, offset)),
    )
    return done


async def test_an_append_is_done_at_once_with_one_replica(
    port: StateLog, replicas: ReplicaManager
) -> None:
    lead(replicas, OFFSETS_TOPIC, 3)
    assert append(port, count=2) == [(ErrorCode.NONE, 0)]
    assert append(port) == [(ErrorCode.NONE, 2)]
    assert port.bounds(3) == (0, 3, 3)
    replica = port.replica(3)
    assert replica is not None
    assert replica is port.replica(3)
    assert replica.bounds() == (0, 3, 3)
    assert replica.read(0, 1)
    assert port.batch_bytes_max(3) == LogConfig().max_message_bytes


async def test_an_append_in_another_epoch_or_elsewhere_is_refused(
    port: StateLog, replicas: ReplicaManager
) -> None:
    assert append(port) == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]
    lead(replicas, OFFSETS_TOPIC, 3, epoch=2)
    for epoch in (1, 3):
        assert append(port, epoch=epoch) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
    follow(replicas, OFFSETS_TOPIC, 3, epoch=3)
    assert append(port, epoch=3) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
    assert port.bounds(3) is None
    replica = port.replica(3)
    assert replica is not None
    assert replica.is_followed
    assert port.replica(4) is None


async def test_an_append_waits_for_the_flush_that_the_topic_asks_for(
    port: StateLog, replicas: ReplicaManager, shelf: ManualLogManager
) -> None:
    shelf.settings = {"flush.messages": "1"}
    lead(replicas, OFFSETS_TOPIC, 3)
    done, quick = append(port), append(port, acks=1)
    assert (done, quick) == ([], [(ErrorCode.NONE, 1)])
    reached: list[bool] = []
    port.when_committed(3, 2, reached.append)
    await shelf.flush()
    assert done == [(ErrorCode.NONE, 0)]
    assert reached == [True]


async def test_an_append_that_is_not_committed_in_time_is_timed_out_once(
    port: StateLog, replicas: ReplicaManager, shelf: ManualLogManager
) -> None:
    shelf.settings = {"flush.messages": "1"}
    lead(replicas, OFFSETS_TOPIC, 3)
    late = asyncio.Event()
    done: Done = []

    def tell(code: ErrorCode, offset: int) -> None:
        done.append((code, offset))
        late.set()

    port.append(3, a_batch(), leader_epoch=0, acks=-1, timeout_ms=1, on_appended=tell)
    await late.wait()
    await shelf.flush()
    assert done == [(ErrorCode.REQUEST_TIMED_OUT, 0)]


async def test_an_append_and_whoever_waits_end_with_leadership(
    port: StateLog, replicas: ReplicaManager, shelf: ManualLogManager
) -> None:
    shelf.settings = {"flush.messages": "1"}
    lead(replicas, OFFSETS_TOPIC, 3)
    done = append(port)
    reached: list[bool] = []
    port.when_committed(3, 1, reached.append)
    follow(replicas, OFFSETS_TOPIC, 3)
    port.when_committed(3, 1, reached.append)
    port.when_committed(9, 1, reached.append)
    assert done == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)]
    assert reached == [False, False, False]


async def test_what_a_former_leader_wrote_counts_only_when_all_in_sync_have_it(
    port: StateLog, replicas: ReplicaManager
) -> None:
    """The barrier of docs/spec/coordinator.md §3.4: a new coordinator waits for the end it was
    elected with.
    """
    follow(replicas, OFFSETS_TOPIC, 3)
    partition = replicas.get(OFFSETS_TOPIC, 3)
    assert partition is not None
    for _ in range(3):
        partition.log.append(a_batch(), leader_epoch=1, is_client=False)
    partition.follow_high_watermark(1)
    lead(replicas, OFFSETS_TOPIC, 3, epoch=2, partition_epoch=2, replicas=[1, 2], isr=[1, 2])
    assert port.bounds(3) == (0, 1, 3)
    reached: list[bool] = []
    port.when_committed(3, 3, reached.append)
    partition.follower_fetched(2, 2, 0)
    assert reached == []
    partition.follower_fetched(2, 3, 0)
    assert reached == [True]


async def test_a_commit_is_done_when_every_replica_in_sync_has_it(
    port: StateLog, replicas: ReplicaManager, shelf: ManualLogManager
) -> None:
    shelf.settings = {"min.insync.replicas": "2"}
    lead(replicas, OFFSETS_TOPIC, 3, replicas=[1, 2, 3], isr=[1, 2, 3])
    partition = replicas.led(OFFSETS_TOPIC, 3)
    done = append(port)
    partition.follower_fetched(2, 1, 0)
    assert done == []
    partition.follower_fetched(3, 1, 0)
    assert done == [(ErrorCode.NONE, 0)]
    lead(replicas, OFFSETS_TOPIC, 3, epoch=1, partition_epoch=1, replicas=[1, 2, 3], isr=[1])
    assert append(port, epoch=1) == [(ErrorCode.NOT_ENOUGH_REPLICAS, -1)]
    assert partition.log.end_offset == 1
