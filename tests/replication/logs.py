"""Real logs in a temporary directory, and what the controller says about them, for tests."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from barnabas.broker.replication.replicas import Replicas
from barnabas.broker.storage.files import DiskFiles, StorageError
from barnabas.broker.storage.leader_epochs import LeaderEpochs
from barnabas.broker.storage.log import Log
from barnabas.broker.storage.log_config import LogConfig
from barnabas.broker.storage.log_parts import LogParts
from barnabas.broker.storage.producer_snapshots import ProducerSnapshots
from barnabas.broker.storage.producers import Producers
from barnabas.broker.storage.segment import Segment
from barnabas.broker.storage.stored_log import StoredLog
from barnabas.protocol.messages import leader_and_isr, stop_replica
from barnabas.protocol.messages.leader_and_isr import PartitionState, TopicState
from barnabas.protocol.records.batch import build_batch

NODE = 1
NOW_MS = 1_795_219_200_000


class Shelf:
    """Creates logs where it is told; flushes when the test says so."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.files = DiskFiles()
        self.config = LogConfig()
        self.logs: dict[tuple[str, int], Log] = {}
        self.marks: dict[tuple[str, int], int] = {}
        self.flushes_due: list[StoredLog] = []
        self.deleted: list[tuple[str, int]] = []

    def get(self, topic: str, partition: int) -> Log | None:
        return self.logs.get((topic, partition))

    def create(self, topic: str, partition: int, topic_id: bytes | None) -> Log:
        directory = self.directory / f"{topic}-{partition}"
        directory.mkdir()
        snapshots = ProducerSnapshots(self.files, directory)
        parts = LogParts(
            segments=[Segment.create(self.files, directory, 0, NOW_MS)],
            start_offset=0,
            end_offset=0,
            recovery_point=0,
            epochs=LeaderEpochs(),
            producers=Producers(),
            snapshots=snapshots,
        )
        log = Log(
            topic,
            partition,
            directory,
            parts,
            config=self.config,
            files=self.files,
            owner=self,
            now_ms=lambda: NOW_MS,
            random=random.Random(1),
            topic_id=topic_id,
        )
        self.logs[topic, partition] = log
        return log

    def delete(self, topic: str, partition: int) -> None:
        self.deleted.append((topic, partition))
        log = self.logs.pop((topic, partition), None)
        if log is not None:
            log.retire()

    def high_watermark(self, topic: str, partition: int) -> int:
        return self.marks.get((topic, partition), 0)

    def schedule_flush(self, log: StoredLog) -> None:
        self.flushes_due.append(log)

    def storage_failed(self, log: StoredLog, error: StorageError) -> None:
        log.take_offline(str(error))

    def discard(self, paths: Iterable[Path], delay_ms: int) -> None:
        for path in paths:
            path.unlink()

    async def flush(self) -> None:
        due, self.flushes_due = self.flushes_due, []
        for log in due:
            await log.flush()

    def close(self) -> None:
        for log in self.logs.values():
            log.retire()


def roles(
    *states: tuple[str, PartitionState], controller_epoch: int = 1, topic_id: bytes = bytes(16)
) -> leader_and_isr.LeaderAndIsrRequest:
    return leader_and_isr.LeaderAndIsrRequest(
        controller_epoch=controller_epoch,
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


def lead(hosted: Replicas, topic: str, index: int = 0, epoch: int = 0, **more: Any) -> None:
    """Make this node the leader; the test fails when it will not be."""
    answer = hosted.apply_leader_and_isr(roles((topic, state(index, epoch=epoch, **more))))
    assert [error.error_code for error in answer.partition_errors] == [0]


def follow(replicas: Replicas, topic: str, index: int = 0, epoch: int = 1) -> None:
    """Make another node the leader."""
    told = state(index, leader=2, epoch=epoch, replicas=[NODE, 2], partition_epoch=epoch)
    replicas.apply_leader_and_isr(roles((topic, told)))


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
