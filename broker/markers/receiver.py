"""Writes transaction markers into the partitions that this node leads.

    WriteTxnMarkers, or this node's own coordinator
      └─ control batch, appended with acks -1 ─┬─ committed ──┬─ answer NONE
                                               │              └─ offsets partition: the group
                                               │                 coordinator first, then the answer
                                               └─ not within half a second: answer 7, asked again

What makes the order right: commits of offsets and the markers that end their transactions are
completed by one queue of the partition, in the order of the log. An answer that came before the
group coordinator has taken the marker in would let the producer's next transaction begin, whose
offsets would be mixed with those of this one (KAFKA-17507).

A coordinator has one request under way to a node, with markers for many partitions. One partition
that commits nothing would hold them all back until the request timed out, hence the early 7. Who
asks again waits for the marker that is in the log: it is not appended a second time.

A marker that a client sends may only do what a tool needs: abort what hangs. Any other could commit
what its producer aborts, or claim a coordinator epoch after which the true markers of that producer
are refused, and its next transaction holds back readers for ever.

Source: docs/spec/transactions.md §3.5, §4.5 and §5.1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.storage.producers.ongoing_transactions import NO_TRANSACTION
from barnabas.coordinator.ports import OFFSETS_TOPIC
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.records.batch import build_batch
from barnabas.protocol.records.control import Marker, encode_marker

OnWritten = Callable[[ErrorCode], None]

ANSWER_MS: Final = 500
"""How long an answer to a coordinator waits for a marker to be committed.

Kafka: request.timeout.ms. So long waits a client's tool, which has nothing else to ask and does not
ask twice.
"""
REMEMBERED_S: Final = 60
"""A marker that was committed when nobody waited; who sent it asks again within a second or two."""


class TransactionEnd(NamedTuple):
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
        """``timeout_ms`` bounds every wait for replicas."""
        self._replicas = replicas
        self._transaction_ended = transaction_ended
        self._loop = loop
        self._now_ms = now_ms
        self._clients_wait_s = timeout_ms / 1000
        self._wait_s = min(timeout_ms, ANSWER_MS) / 1000
        self._unanswered: dict[tuple[Partition, TransactionEnd], _WrittenMarker] = {}
        """Markers in the log that nobody was told of yet."""
        self._latest: tuple[TransactionEnd | None, int, bytes] = None, 0, b""
        """The last one, its end and its time: those of an end's other partitions are the same."""

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
            written = self._unanswered.get((partition, end))
            # What was begun behind that marker needs one of its own.
            if written is None or _is_in_transaction(partition, end.producer_id):
                written = self._append(partition, end)
        except Refused as refusal:
            on_written(refusal.code)
            return
        if written.is_committed:
            self._forget(partition, end, written)
            on_written(ErrorCode.NONE)
        else:
            wait_s = self._clients_wait_s if is_client else self._wait_s
            written.add(_Waiter(on_written, self._loop, wait_s))

    def _append(self, partition: Partition, end: TransactionEnd) -> _WrittenMarker:
        """Raises Refused."""
        offset = partition.append(self._batch(end), acks=-1, is_client=False).last_offset
        written = _WrittenMarker()
        if offset < partition.high_watermark:
            self._committed(partition, end, offset)
            written.is_committed = True
            return written
        self._unanswered[partition, end] = written

        def decided(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                self._committed(partition, end, offset)
                written.is_committed = True
            if written.decide(code) or code:
                self._forget(partition, end, written)
            else:
                self._loop.call_later(REMEMBERED_S, self._forget, partition, end, written)

        partition.when_committed(offset + 1, decided)
        return written

    def _batch(self, end: TransactionEnd) -> bytearray:
        """One to write offset and epoch into. Raises Refused."""
        now_ms = self._now_ms()
        former, made_ms, data = self._latest
        if former != end or made_ms != now_ms:
            data = bytes(marker_batch(end, now_ms))
            self._latest = end, now_ms, data
        return bytearray(data)

    def _forget(self, partition: Partition, end: TransactionEnd, written: _WrittenMarker) -> None:
        if self._unanswered.get((partition, end)) is written:
            del self._unanswered[partition, end]

    def _committed(self, partition: Partition, end: TransactionEnd, offset: int) -> None:
        if partition.topic == OFFSETS_TOPIC:
            self._transaction_ended(
                partition.index, end.producer_id, is_commit=end.is_commit, marker_offset=offset
            )

    def _led(self, topic: str, index: int) -> Partition:
        """Raises Refused: 3 where no replica is hosted here, 56 for a disk that failed, 6."""
        hosted = self._replicas.get(topic, index)
        if hosted is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if hosted.log.is_offline:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR)
        if not hosted.is_leader:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return hosted


def _check_client(partition: Partition, end: TransactionEnd) -> None:
    """Raises Refused(31) unless the marker does no more than abort what is open, as it stands.

    A coordinator epoch above the known one would shut out the coordinator itself; 0 is what tools
    say where none is known.
    """
    known = partition.log.producers.get(end.producer_id)
    if (
        end.is_commit
        or known is None
        or not _is_in_transaction(partition, end.producer_id)
        or end.producer_epoch != known.epoch
        or end.coordinator_epoch > max(known.coordinator_epoch, 0)
    ):
        raise Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "a marker that only nodes may write")


def _is_in_transaction(partition: Partition, producer_id: int) -> bool:
    known = partition.log.producers.get(producer_id)
    return known is not None and known.transaction_start != NO_TRANSACTION


class _WrittenMarker:
    """A marker in the log, and who waits until it is committed."""

    __slots__ = ("_waiters", "is_committed")

    def __init__(self) -> None:
        self.is_committed = False
        self._waiters: list[_Waiter] = []

    def add(self, waiter: _Waiter) -> None:
        """Somebody waits, instead of those who have given up."""
        self._waiters = [one for one in self._waiters if not one.is_over]
        self._waiters.append(waiter)

    def decide(self, code: ErrorCode) -> bool:
        """Answer everybody who waits; whether anybody did."""
        waiting = [one for one in self._waiters if not one.is_over]
        for waiter in waiting:
            waiter.decide(code)
        return bool(waiting)


class _Waiter:
    """Whichever comes first decides: the high watermark, the end of leadership, or the time."""

    __slots__ = ("_on_written", "_timer")

    def __init__(
        self, on_written: OnWritten, loop: asyncio.AbstractEventLoop, wait_s: float
    ) -> None:
        self._on_written: OnWritten | None = on_written
        self._timer = loop.call_later(wait_s, self.decide, ErrorCode.REQUEST_TIMED_OUT)

    @property
    def is_over(self) -> bool:
        """Whether it was answered."""
        return self._on_written is None

    def decide(self, code: ErrorCode) -> None:
        """Answer, unless that was done."""
        on_written, self._on_written = self._on_written, None
        if on_written is not None:
            self._timer.cancel()
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
