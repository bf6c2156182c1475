"""Real logs in a temporary directory, and what the controller says about them, for tests."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from barnabas.broker.replication.isr import complete_isr_change
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.partition_context import PartitionContext, PendingIsrChange
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.settings.log_config import LogConfig
from barnabas.broker.settings.node_config import StorageSettings
from barnabas.broker.storage.cooperative import at_once
from barnabas.broker.storage.files import DiskFiles
from barnabas.broker.storage.log.log import Log
from barnabas.broker.storage.log_manager import LogManager
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import leader_and_isr, stop_replica
from barnabas.protocol.messages.leader_and_isr import PartitionState, TopicState
from barnabas.protocol.records.batch import build_batch

NODE = 1
NOW_MS = 1_795_219_200_000


class FakePartitionContext:
    """The node around a leader: a clock that the test moves, and what was proposed."""

    lag_max_s = 30.0

    def __init__(self) -> None:
        self.time = 100.0
        self.live = {1, 2, 3}
        self.proposed: list[PendingIsrChange] = []

    def now(self) -> float:
        return self.time

    def live_nodes(self) -> Collection[int]:
        return self.live

    def propose(self, change: PendingIsrChange) -> None:
        self.proposed.append(change)

    def write(self) -> None:
        """What is proposed stands in the state znode now."""
        proposed, self.proposed = self.proposed, []
        for change in proposed:
            complete_isr_change(change, change.isr, change.zk_version + 1)


class FakeFetcherManager:
    """Notes what is followed, and fetches nothing."""

    def __init__(self) -> None:
        self.followed: dict[tuple[str, int], int] = {}
        self.woken = 0

    def follow(self, partition: Partition) -> None:
        self.followed[partition.topic, partition.index] = partition.leader_id

    def stop(self, partition: Partition) -> None:
        self.followed.pop((partition.topic, partition.index), None)

    def wake(self) -> None:
        self.woken += 1


def hosting(
    logs: LogManager,
    knows: Callable[[str, int], bool],
    context: PartitionContext | None = None,
    fetchers: FakeFetcherManager | None = None,
) -> ReplicaManager:
    """The replicas of one node; who follows here fetches nothing."""
    return ReplicaManager(
        NODE,
        logs,
        knows=knows,
        context=context or FakePartitionContext(),
        fetchers=fetchers or FakeFetcherManager(),
    )


class ManualLogManager(LogManager):
    """The logs of one node; flushes when the test says so, for nobody runs it."""

    def __init__(self, *directories: Path) -> None:
        self.settings: dict[str, str] = {}
        """Overrides of every topic that is created from now on."""
        super().__init__(
            DiskFiles(),
            directories,
            LogConfig(),
            lambda topic: self.settings,
            lambda: NOW_MS,
            intervals=StorageSettings(),
            random=random.Random(1),
        )

    def log(self, topic: str, partition: int = 0) -> Log:
        found = self.get(topic, partition)
        assert found is not None
        return found

    async def flush(self) -> None:
        for log in self.logs():
            await log.flush()


def roles(
    *states: tuple[str, PartitionState], topic_id: bytes = bytes(16)
) -> leader_and_isr.LeaderAndIsrRequest:
    return leader_and_isr.LeaderAndIsrRequest(
        controller_epoch=1,
        topic_states=[
            TopicState(topic_name=topic, topic_id=topic_id, partition_states=[state])
            for topic, state in states
        ],
    )


def state(index: int = 0, *, leader: int = NODE, epoch: int = 0, **more: Any) -> PartitionState:
    more.setdefault("isr", [leader])
    more.setdefault("replicas", [NODE])
    return PartitionState(
        partition_index=index, leader=leader, leader_epoch=epoch, controller_epoch=1, **more
    )


def obey(
    replicas: ReplicaManager, request: leader_and_isr.LeaderAndIsrRequest
) -> leader_and_isr.LeaderAndIsrResponse:
    """Have an order obeyed that stands to its end."""
    return at_once(replicas.apply_leader_and_isr(request, lambda: ErrorCode.NONE))


def halt(
    replicas: ReplicaManager, request: stop_replica.StopReplicaRequest
) -> stop_replica.StopReplicaResponse:
    """Have replicas stopped, all that the order names."""
    return at_once(replicas.stop(request, lambda: ErrorCode.NONE))


def lead(hosted: ReplicaManager, topic: str, index: int = 0, epoch: int = 0, **more: Any) -> None:
    """Make this node the leader; the test fails when it will not be."""
    answer = obey(hosted, roles((topic, state(index, epoch=epoch, **more))))
    assert [error.error_code for error in answer.partition_errors] == [0]


def follow(replicas: ReplicaManager, topic: str, index: int = 0, epoch: int = 1) -> None:
    """Make another node the leader."""
    told = state(index, leader=2, epoch=epoch, replicas=[NODE, 2], partition_epoch=epoch)
    obey(replicas, roles((topic, told)))


def stop(
    topic: str, index: int = 0, *, epoch: int = -1, delete: bool = False
) -> stop_replica.StopReplicaRequest:
    return stop_replica.StopReplicaRequest(
        controller_epoch=1,
        topic_states=[
            stop_replica.TopicState(
                topic_name=topic,
                partition_states=[
                    stop_replica.PartitionState(
                        partition_index=index, leader_epoch=epoch, delete_partition=delete
                    )
                ],
            )
        ],
    )


def a_batch(count: int = 1, *, timestamp_ms: int = NOW_MS, value: bytes = b"value") -> bytearray:
    return build_batch([(b"key", value)] * count, timestamp_ms=timestamp_ms)


async def turns(count: int = 3) -> None:
    """Let what was called soon be called."""
    for _ in range(count):
        await asyncio.sleep(0)
