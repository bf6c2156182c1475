"""Writes transaction markers into the partitions that this node leads.

    WriteTxnMarkers, or this node's own coordinator
      └─ control batch, appended with acks -1 ── committed ──┬─ answer NONE
                                                             └─ offsets partition: the group
                                                                coordinator first, then the answer

What makes the order right: commits of offsets and the markers that end their transactions are
completed by one queue of the partition, in the order of the log. An answer that came before the
group coordinator has taken the marker in would let the producer's next transaction begin, whose
offsets would be mixed with those of this one (KAFKA-17507).

A marker that a client sends may only do what a tool needs: abort what hangs. Any other could commit
what its producer aborts, or claim a coordinator epoch after which the true markers of that producer
are refused, and its next transaction holds back readers for ever.

Source: docs/spec/transactions.md §3.5, §4.5 and §5.1.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.storage.producers.ongoing_transactions import NO_TRANSACTION
from barnabas.coordinator.ports import OFFSETS_TOPIC
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.records.batch import build_batch
from barnabas.protocol.records.control import Marker, encode_marker

OnWritten = Callable[[ErrorCode], None]


@dataclass(frozen=True, slots=True)
class TransactionEnd:
    """What a marker says of one producer's transaction."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool


class TransactionEnded(Protocol):
    """The group coordinator's ear."""

    def __call__(
        self, partition: int, producer_id: int, *, is_commit: bool, marker_offset: int
    ) -> None:
        """The marker at ``marker_offset`` of an offsets partition is committed."""


class MarkerWriter:
    """Appends markers, each answered once."""

    def __init__(
        self,
        replicas: ReplicaManager,
        *,
        transaction_ended: TransactionEnded,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
        timeout_ms: int,
    ) -> None:
        """``timeout_ms`` bounds the wait for replicas; then the code is REQUEST_TIMED_OUT."""
        self._replicas = replicas
        self._transaction_ended = transaction_ended
        self._loop = loop
        self._now_ms = now_ms
        self._timeout_s = timeout_ms / 1000

    def write(
        self,
        topic: str,
        index: int,
        end: TransactionEnd,
        on_written: OnWritten,
        *,
        is_client: bool = False,
    ) -> None:
        """Write one marker; ``on_written`` is called once, perhaps before this returns.

        NONE when the marker is committed; 3, 6, 7, 19, 47, 52, 56 as for a produce; -1 for an
        epoch that no producer has; 31 for what only a coordinator may say.
        """
        try:
            partition = self._led(topic, index)
            if is_client:
                _check_client(partition, end)
            batch = marker_batch(end, self._now_ms())
            appended = partition.append(batch, acks=-1, is_client=False)
        except Refused as refusal:
            on_written(refusal.code)
            return
        offset = appended.last_offset
        if offset < partition.high_watermark:
            self._committed(topic, index, end, offset)
            on_written(ErrorCode.NONE)
            return
        waiting = _PendingMarker(on_written)
        waiting.timer = self._loop.call_later(
            self._timeout_s, waiting.decide, ErrorCode.REQUEST_TIMED_OUT
        )

        def decided(code: ErrorCode) -> None:
            # Also when the answer is given already, for the time was over: the log has the marker.
            if code is ErrorCode.NONE:
                self._committed(topic, index, end, offset)
            waiting.decide(code)

        until = math.inf if topic == OFFSETS_TOPIC else waiting.timer.when()
        partition.when_committed(offset + 1, decided, until)

    def _committed(self, topic: str, index: int, end: TransactionEnd, offset: int) -> None:
        if topic == OFFSETS_TOPIC:
            self._transaction_ended(
                index, end.producer_id, is_commit=end.is_commit, marker_offset=offset
            )

    def _led(self, topic: str, index: int) -> Partition:
        """Raises Refused: 3 where no replica is hosted here, 56 for a disk that failed, 6."""
        hosted = self._replicas.get(topic, index)
        if hosted is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if hosted.log.is_offline:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR)
        return hosted


def _check_client(partition: Partition, end: TransactionEnd) -> None:
    """Raises Refused(31) unless the marker does no more than abort what is open, as it stands.

    A coordinator epoch above the known one would shut out the coordinator itself; 0 is what tools
    say where none is known. First 6: a tool then looks for the leader anew.
    """
    if not partition.is_leader:
        raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    known = partition.log.producers.get(end.producer_id)
    if (
        end.is_commit
        or known is None
        or known.transaction_start == NO_TRANSACTION
        or end.producer_epoch != known.epoch
        or end.coordinator_epoch > max(known.coordinator_epoch, 0)
    ):
        raise Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "a marker that only nodes may write")


class _PendingMarker:
    """Whichever comes first decides: the high watermark, the end of leadership, or the time."""

    __slots__ = ("_on_written", "timer")

    def __init__(self, on_written: OnWritten) -> None:
        self._on_written: OnWritten | None = on_written
        self.timer: asyncio.TimerHandle | None = None

    def decide(self, code: ErrorCode) -> None:
        """Answer, unless that was done."""
        on_written, self._on_written = self._on_written, None
        if on_written is None:
            return
        if self.timer is not None:
            self.timer.cancel()
        on_written(code)


def marker_batch(end: TransactionEnd, now_ms: int) -> bytearray:
    """The control batch of 78 bytes. Raises Refused(-1) for a producer epoch below 0."""
    if end.producer_epoch < 0:
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, "a producer's epoch is not below 0")
    marker = Marker.COMMIT if end.is_commit else Marker.ABORT
    return build_batch(
        [encode_marker(marker, end.coordinator_epoch)],
        timestamp_ms=now_ms,
        producer_id=end.producer_id,
        producer_epoch=end.producer_epoch,
        is_transactional=True,
        is_control=True,
    )
