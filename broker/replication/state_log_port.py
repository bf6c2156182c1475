"""A coordinator's port to the partitions of its topic that this node hosts.

Source: coordinator/ports.py; docs/spec/coordinator.md §3.2 (what acks=-1 means for a commit).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from barnabas.broker.storage.files import DiskFiles, Files
from barnabas.broker.storage.producers.verification_guards import NO_SEQUENCE, VerificationGuard
from barnabas.coordinator.ports import OnAppended
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.records.header import HEADER

from .partition import Partition
from .replica_manager import ReplicaManager
from .state_replica import StateReplica


class StateLogPort:
    """Implements coordinator.ports.StateLog over the hosted replicas."""

    def __init__(
        self,
        replicas: ReplicaManager,
        topic: str,
        loop: asyncio.AbstractEventLoop,
        may_answer: Callable[[], bool] = lambda: True,
        files: Files | None = None,
    ) -> None:
        """``may_answer``: whether this node's lease holds; else nothing is acknowledged.

        ``files`` is where snapshots are written.
        """
        self._replicas = replicas
        self._topic = topic
        self._files = files or DiskFiles()
        self._loop = loop
        self._may_answer = may_answer

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
        """Append as leader in ``leader_epoch``; ``on_appended`` is called once, perhaps at once."""
        try:
            hosted = self._replicas.led(self._topic, partition)
            if hosted.leader_epoch != leader_epoch:
                raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if guard is not None:
                _check_verified(hosted, batch, guard)
            appended = hosted.append(batch, acks=acks, is_client=False)
        except Refused as refusal:
            on_appended(refusal.code, -1)
            return
        base, end = appended.base_offset, appended.last_offset + 1
        if acks != -1 or end <= hosted.high_watermark:
            may_answer = self._may_answer()
            on_appended(ErrorCode.NONE if may_answer else ErrorCode.NOT_LEADER_OR_FOLLOWER, base)
            return
        pending = _PendingAppend(on_appended, base, self._may_answer)
        pending.timer = self._loop.call_later(
            timeout_ms / 1000, pending.complete, ErrorCode.REQUEST_TIMED_OUT
        )
        hosted.when_committed(end, pending.complete, pending.timer.when())

    def batch_bytes_max(self, partition: int) -> int:
        """``max.message.bytes`` of the topic, as this partition's log has it."""
        hosted = self._replicas.get(self._topic, partition)
        return 0 if hosted is None else hosted.log.config.max_message_bytes

    def bounds(self, partition: int) -> tuple[int, int, int] | None:
        """Log start offset, high watermark and log end offset; None when not led here."""
        hosted = self._replicas.get(self._topic, partition)
        if hosted is None or not hosted.is_leader:
            return None
        return hosted.log.start_offset, hosted.high_watermark, hosted.log.end_offset

    def replica(self, partition: int) -> StateReplica | None:
        """The replica hosted here; None when there is none, or its disk failed."""
        hosted = self._replicas.get(self._topic, partition)
        if hosted is None or hosted.log.is_offline:
            return None
        if hosted.watcher is None:
            hosted.watcher = StateReplica(hosted, self._files)
        assert isinstance(hosted.watcher, StateReplica)
        return hosted.watcher

    def when_committed(
        self, partition: int, offset: int, on_complete: Callable[[bool], None]
    ) -> None:
        """Call ``on_complete``: True once the high watermark is at ``offset``, else False."""
        hosted = self._replicas.get(self._topic, partition)
        if hosted is None:
            on_complete(False)
            return
        hosted.when_committed(offset, lambda code: on_complete(code is ErrorCode.NONE))


def _check_verified(hosted: Partition, batch: bytearray, guard: object) -> None:
    """Raises Refused(48) for a batch whose transaction is over, or was not verified."""
    assert isinstance(guard, VerificationGuard)
    fields = HEADER.unpack_from(batch)
    hosted.log.producers.check_verified(fields[9], fields[10], NO_SEQUENCE, guard)


class _PendingAppend:
    """Whichever comes first decides: the high watermark, the end of leadership, or the time."""

    __slots__ = ("_base", "_may_answer", "_on_appended", "timer")

    def __init__(self, on_appended: OnAppended, base: int, may_answer: Callable[[], bool]) -> None:
        self._on_appended: OnAppended | None = on_appended
        self._base = base
        self._may_answer = may_answer
        self.timer: asyncio.TimerHandle | None = None

    def complete(self, code: ErrorCode) -> None:
        on_appended, self._on_appended = self._on_appended, None
        if on_appended is None:
            return
        if self.timer is not None:
            self.timer.cancel()
        if code is ErrorCode.NONE and not self._may_answer():
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        on_appended(code, self._base)
