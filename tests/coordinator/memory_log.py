"""An offsets log that is a list in memory: its high watermark and its failures are the test's."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field

from barnabas.coordinator.damaged_records import Damage
from barnabas.coordinator.ports import SNAPSHOT, FollowerListener, OnAppended
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
    epochs: list[tuple[int, int]] = field(default_factory=list)
    """Epoch and start offset, ascending."""
    segment_base: int = 0
    cleaned: int = 0
    files: dict[str, bytes] = field(default_factory=dict)
    """Snapshots beside it, by name."""
    is_full: bool = False
    """The disk takes no file."""
    is_gone: bool = False
    watcher: FollowerListener | None = None
    reads: int = 0
    writes: int = 0
    damaged: dict[int, Damage] = field(default_factory=dict)
    """By first offset: reads are refused."""
    is_alone: bool = False
    """No other replica has what is damaged here."""

    @property
    def snapshot(self) -> bytes | None:
        """The whole one."""
        return self.files.get(SNAPSHOT)

    @property
    def is_led(self) -> bool:
        return self.leader_epoch >= 0

    def append(self, data: bytearray, epoch: int | None = None) -> int:
        base = self.end
        epoch = max(self.leader_epoch, 0) if epoch is None else epoch
        batch.assign(data, base, epoch)
        if not self.epochs or self.epochs[-1][0] < epoch:
            self.epochs.append((epoch, base))
        self.batches.append(data)
        self.end = batch.next_offset(data)
        return base

    def follow(self, data: bytearray, epoch: int = 0) -> None:
        """Append what a leader of that epoch has."""
        assert not self.is_led
        before = self.end
        self.append(data, epoch)
        if self.watcher is not None:
            self.watcher.appended(before, bytes(data))

    def follow_mark(self, mark: int) -> None:
        """Take over a leader's high watermark."""
        self.high_watermark = max(self.high_watermark, min(mark, self.end))
        if self.watcher is not None:
            self.watcher.appended(self.end, b"")

    def truncate(self, offset: int) -> None:
        """Drop ``offset`` and all after it, with the whole batch that holds it."""
        if offset >= self.end:
            return
        if self.watcher is not None:
            self.watcher.cut(offset)
        while self.batches and batch.next_offset(self.batches[-1]) > offset:
            offset = min(offset, batch.base_offset(self.batches.pop()))
        self.end = offset
        self.epochs = [pair for pair in self.epochs if pair[1] < offset]
        self.high_watermark = min(self.high_watermark, offset)
        self.segment_base = min(self.segment_base, offset)
        self.cleaned = min(self.cleaned, offset)

    def damage(self, offset: int) -> None:
        """The batch that begins at ``offset`` is known to be damaged."""
        data = next(found for found in self.batches if batch.base_offset(found) == offset)
        self.damaged[offset] = Damage(offset, batch.next_offset(data), bytes(data))

    def read(self, offset: int, bytes_max: int) -> bytes:
        self.reads += 1
        out = b""
        if offset in self.damaged:
            raise Refused(ErrorCode.CORRUPT_MESSAGE)
        for data in self.batches:
            if batch.next_offset(data) <= offset:
                continue
            if batch.base_offset(data) in self.damaged:
                break
            if out and len(out) + len(data) > bytes_max:
                break
            out += data
        return out


class MemoryFile:
    """Implements coordinator.ports.SnapshotFile."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def read(self, position: int, count: int) -> bytes:
        return self._data[position : position + count]

    def close(self) -> None:
        return None


class MemoryReplica:
    """Implements coordinator.ports.Replica."""

    def __init__(self, log: MemoryLog, hosted: MemoryPartition) -> None:
        self._log = log
        self.hosted = hosted

    @property
    def is_followed(self) -> bool:
        return not self.hosted.is_led

    @property
    def segment_base(self) -> int:
        return self.hosted.segment_base

    def bounds(self) -> tuple[int, int, int]:
        return self.hosted.start, self.hosted.high_watermark, self.hosted.end

    def read(self, offset: int, bytes_max: int) -> bytes:
        if self._log.read_fails_with is not None:
            raise Refused(self._log.read_fails_with)
        return self.hosted.read(offset, bytes_max)

    def damage_at(self, offset: int) -> Damage | None:
        return self.hosted.damaged.get(offset)

    @property
    def is_damaged(self) -> bool:
        return bool(self.hosted.damaged)

    def suspect(self, offset: int) -> None:
        if self.hosted.is_alone:
            self.hosted.damage(offset)

    def epoch_at(self, offset: int) -> int:
        index = bisect_right([start for _, start in self.hosted.epochs], offset) - 1
        return self.hosted.epochs[index][0] if index >= 0 else -1

    def cleaned_offset(self) -> int:
        return self.hosted.cleaned

    def watch(self, watcher: FollowerListener | None) -> None:
        self.hosted.watcher = watcher

    def snapshot(self, name: str = SNAPSHOT) -> MemoryFile | None:
        data = self.hosted.files.get(name)
        return None if data is None else MemoryFile(data)

    async def write_snapshot(self, make: Callable[[], bytes], name: str = SNAPSHOT) -> None:
        await asyncio.sleep(0.001)
        data = make()
        self.hosted.writes += 1
        if not self.hosted.is_full:
            self.hosted.files[name] = data

    def drop_snapshot(self, name: str = SNAPSHOT) -> None:
        self.hosted.files.pop(name, None)


class MemoryLog:
    """Implements coordinator.ports.StateLog."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.partitions: dict[int, MemoryPartition] = {}
        self._replicas: dict[int, MemoryReplica] = {}
        self.is_replicated = True
        """Whether the high watermark follows the log end by itself."""
        self.append_fails_with: ErrorCode | None = None
        self.read_fails_with: ErrorCode | None = None
        self.bytes_max = 1_000_000
        self.guards: list[object | None] = []
        """What each batch was appended with."""
        self.outdated_guard: object | None = None
        """A marker came after this one was given."""
        self.appends: list[tuple[int, int]] = []
        """Partition and record count of every batch appended."""

    def partition(self, index: int) -> MemoryPartition:
        return self.partitions.setdefault(index, MemoryPartition())

    def lead(self, index: int, leader_epoch: int) -> None:
        self.partition(index).leader_epoch = leader_epoch

    def resign(self, index: int) -> None:
        """Lose leadership: whoever waits is told."""
        partition = self.partition(index)
        partition.leader_epoch = -1
        waiting, partition.waiting = partition.waiting, []
        for _, on_complete in waiting:
            on_complete(False)

    def replicate(self, index: int) -> None:
        """Let the high watermark reach the log end."""
        partition = self.partition(index)
        partition.high_watermark = partition.end
        ready = [on_complete for end, on_complete in partition.waiting if end <= partition.end]
        partition.waiting = [item for item in partition.waiting if item[0] > partition.end]
        for on_complete in ready:
            on_complete(True)

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
        on_appended: OnAppended,
        guard: object | None = None,
    ) -> None:
        assert acks == -1
        hosted = self.partition(partition)
        if not hosted.is_led or hosted.leader_epoch != leader_epoch:
            on_appended(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
            return
        if self.append_fails_with is not None:
            on_appended(self.append_fails_with, -1)
            return
        self.guards.append(guard)
        if guard is not None and guard is self.outdated_guard:
            on_appended(ErrorCode.INVALID_TXN_STATE, -1)
            return
        before = hosted.end
        base = hosted.append(batch)
        self.appends.append((partition, hosted.end - before))
        if self.is_replicated:
            hosted.high_watermark = hosted.end
            on_appended(ErrorCode.NONE, base)
            return
        self._wait(hosted, base, timeout_ms, on_appended)

    def _wait(
        self, hosted: MemoryPartition, base: int, timeout_ms: int, on_appended: OnAppended
    ) -> None:
        entry: tuple[int, Callable[[bool], None]]

        def decided(is_committed: bool) -> None:
            timer.cancel()
            on_appended(ErrorCode.NONE if is_committed else ErrorCode.NOT_LEADER_OR_FOLLOWER, base)

        def too_late() -> None:
            hosted.waiting.remove(entry)
            on_appended(ErrorCode.REQUEST_TIMED_OUT, base)

        timer = self.loop.call_later(timeout_ms / 1000, too_late)
        entry = (hosted.end, decided)
        hosted.waiting.append(entry)

    def batch_bytes_max(self, partition: int) -> int:
        return self.bytes_max

    def bounds(self, partition: int) -> tuple[int, int, int] | None:
        hosted = self.partition(partition)
        return (hosted.start, hosted.high_watermark, hosted.end) if hosted.is_led else None

    def replica(self, partition: int) -> MemoryReplica | None:
        hosted = self.partition(partition)
        known = self._replicas.get(partition)
        if hosted.is_gone:
            return None
        if known is None or known.hosted is not hosted:
            known = self._replicas[partition] = MemoryReplica(self, hosted)
        return known

    def when_committed(
        self, partition: int, offset: int, on_complete: Callable[[bool], None]
    ) -> None:
        hosted = self.partition(partition)
        if not hosted.is_led:
            on_complete(False)
        elif hosted.high_watermark >= offset:
            on_complete(True)
        else:
            hosted.waiting.append((offset, on_complete))
