"""An offsets log that is a list in memory: its high watermark and its failures are the test's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from barnabas.coordinator.ports import AppendDone
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.records import batch
from barnabas.protocol.records.record import Record


@dataclass
class MemoryPartition:
    """One offsets partition; batches are kept as they would lie on disk."""

    leader_epoch: int = -1
    start: int = 0
    end: int = 0
    high_watermark: int = 0
    batches: list[bytearray] = field(default_factory=list)
    waiting: list[tuple[int, Callable[[bool], None]]] = field(default_factory=list)

    @property
    def is_led(self) -> bool:
        return self.leader_epoch >= 0

    def append(self, data: bytearray) -> int:
        base = self.end
        batch.assign(data, base, self.leader_epoch)
        self.batches.append(data)
        self.end = batch.next_offset(data)
        return base


class MemoryLog:
    """Implements coordinator.ports.OffsetsLog."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.partitions: dict[int, MemoryPartition] = {}
        self.is_replicated = True
        """Whether the high watermark follows the log end by itself."""
        self.append_fails_with: ErrorCode | None = None
        self.read_fails_with: ErrorCode | None = None
        self.bytes_max = 1_000_000
        self.appends: list[tuple[int, int]] = []
        """Partition and record count of every batch appended."""

    def partition(self, index: int) -> MemoryPartition:
        return self.partitions.setdefault(index, MemoryPartition())

    def lead(self, index: int, leader_epoch: int) -> None:
        self.partition(index).leader_epoch = leader_epoch

    def resign(self, index: int, *, is_truncated: bool = False) -> None:
        """Lose leadership; truncated to the high watermark as a new leader might want it."""
        partition = self.partition(index)
        partition.leader_epoch = -1
        waiting, partition.waiting = partition.waiting, []
        for _, done in waiting:
            done(False)
        if is_truncated:
            partition.batches = [
                data
                for data in partition.batches
                if batch.next_offset(data) <= partition.high_watermark
            ]
            partition.end = partition.high_watermark

    def replicate(self, index: int) -> None:
        """Let the high watermark reach the log end."""
        partition = self.partition(index)
        partition.high_watermark = partition.end
        ready = [done for end, done in partition.waiting if end <= partition.end]
        partition.waiting = [item for item in partition.waiting if item[0] > partition.end]
        for done in ready:
            done(True)

    def records(self, index: int) -> list[Record]:
        """Everything that is in a partition."""
        return [record for data in self.partition(index).batches for record in batch.records(data)]

    # -- the port ----------------------------------------------------------------------------

    def append(
        self,
        partition: int,
        batch: bytearray,
        *,
        leader_epoch: int,
        acks: int,
        timeout_ms: int,
        done: AppendDone,
    ) -> None:
        assert acks == -1
        hosted = self.partition(partition)
        if not hosted.is_led or hosted.leader_epoch != leader_epoch:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
            return
        if self.append_fails_with is not None:
            done(self.append_fails_with, -1)
            return
        before = hosted.end
        base = hosted.append(batch)
        self.appends.append((partition, hosted.end - before))
        if self.is_replicated:
            hosted.high_watermark = hosted.end
            done(ErrorCode.NONE, base)
            return
        self._wait(hosted, base, timeout_ms, done)

    def _wait(self, hosted: MemoryPartition, base: int, timeout_ms: int, done: AppendDone) -> None:
        entry: tuple[int, Callable[[bool], None]]

        def decided(is_committed: bool) -> None:
            timer.cancel()
            done(ErrorCode.NONE if is_committed else ErrorCode.NOT_LEADER_OR_FOLLOWER, base)

        def too_late() -> None:
            hosted.waiting.remove(entry)
            done(ErrorCode.REQUEST_TIMED_OUT, -1)

        timer = self.loop.call_later(timeout_ms / 1000, too_late)
        entry = (hosted.end, decided)
        hosted.waiting.append(entry)

    def batch_bytes_max(self, partition: int) -> int:
        return self.bytes_max

    def bounds(self, partition: int) -> tuple[int, int, int] | None:
        hosted = self.partition(partition)
        return (hosted.start, hosted.high_watermark, hosted.end) if hosted.is_led else None

    def read(self, partition: int, offset: int, bytes_max: int) -> bytes:
        if self.read_fails_with is not None:
            raise Refused(self.read_fails_with)
        out = b""
        for data in self.partition(partition).batches:
            if batch.next_offset(data) <= offset:
                continue
            if out and len(out) + len(data) > bytes_max:
                break
            out += data
        return out

    def when_committed(self, partition: int, offset: int, done: Callable[[bool], None]) -> None:
        hosted = self.partition(partition)
        if not hosted.is_led:
            done(False)
        elif hosted.high_watermark >= offset:
            done(True)
        else:
            hosted.waiting.append((offset, done))
