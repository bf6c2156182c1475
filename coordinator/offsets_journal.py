"""The one way into the offsets topic: the records of one turn of the loop become one batch.

Source: docs/spec/coordinator.md §2.4, §3.2 and §3.3. Commits, group metadata and tombstones that
arrive in one turn for one offsets partition are appended together, in order of arrival. An append,
its replication and its way through the purgatory cost the same for one record as for a hundred.

What holds of every batch:

- The records of one request stand side by side in one batch, so that the request knows the offset
  of each: the batch's base offset, plus the place of its first record, plus one for each further.
- Each request has its own result. What is too large fails alone, and an exception in one
  completion does not keep the others from their answer.
- A completion is called exactly once, and never before :meth:`Journal.write` has returned: the
  caller may change its own state after the call without being overtaken.
- A batch carries the leader epoch of its term. The log refuses it in any other, so that a former
  leader cannot write into the log of its successor (KAFKA-20634).
- A batch of a transaction is of one request and is appended at once, but never before what was
  handed in earlier: memory changes in that order, and the log has to tell the same.

The way back of a commit, one name for each step: the log calls ``on_appended`` of the batch, the
batch ``on_committed`` of each request, and that calls ``respond`` with the response.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.batch import build_batch, build_batch_in_rows, build_single
from barnabas.protocol.records.record_rows import RecordRows

from .commit_meter import BOUNDS_S, CommitMeter
from .config import CoordinatorConfig
from .ports import OnAppended, StateLog
from .terms import LeadershipTerm, LoadState

log = logging.getLogger(__name__)

Entry: TypeAlias = tuple[bytes, bytes | None]
"""Key and value of one record; without a value it is a tombstone."""

OnCommitted: TypeAlias = Callable[[ErrorCode, int], None]
"""The end of a request, once: the append's code, and the offset of its first record.

The code is that of the log: :data:`COMMIT_ERRORS` and :data:`GROUP_ERRORS` translate it. After an
error the offset means nothing, and the records may be in the log all the same: a client that is
told of a time-out does not know the outcome, and the next load may show it.
"""

_OVER: Final = LoadState.OVER

BATCH_OVERHEAD: Final = 61
RECORD_OVERHEAD: Final = 21
"""At most so many bytes around key and value: length, attributes, deltas, lengths, headers."""

COMMIT_ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
"""What a committing client is told for the code of an append; others as they are.

A client knows nothing of the partition behind the coordinator. It retries 15 at the same node and
looks for another coordinator after 16, so the codes of the log become these two. 7 stays: the
outcome is unknown, and no other code says so.
"""

GROUP_ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = {
    **COMMIT_ERRORS,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""The same for the metadata of a group: SyncGroup of the leader, return of a static member.

The group rebalances after a write that failed, so a time-out tells its members to join again (27).
"""


class _Batch:
    """The records of one turn for one term, and the requests that wait for them.

    By term, not by partition: a node that resigns and is elected again within one turn must not
    append records that were checked against the groups of its former term.
    """

    __slots__ = (
        "began",
        "bytes_max",
        "entries",
        "meter",
        "requests",
        "row_count",
        "rows",
        "size",
        "term",
    )

    def __init__(self, term: LeadershipTerm, bytes_max: int) -> None:
        self.term = term
        self.bytes_max = bytes_max
        self.size = BATCH_OVERHEAD
        self.meter: CommitMeter | None = None
        """Who is told when it is committed; None when nobody wants to know."""
        self.began: float
        """When it was appended; only where there is a meter."""
        self.entries: list[Entry] = []
        self.rows: list[tuple[int, RecordRows]] = []
        """Records in rows, each with the number of ``entries`` that stand before them."""
        self.row_count = 0
        """Records in ``rows``."""
        self.requests: list[tuple[OnCommitted, int]] = []

    def sections(self) -> Iterator[Sequence[Entry] | RecordRows]:
        """All records in their order."""
        done = 0
        for before, rows in self.rows:
            yield self.entries[done:before]
            yield rows
            done = before
        yield self.entries[done:]

    def on_appended(self, code: ErrorCode, base_offset: int) -> None:
        """The append ended, well or not: complete each request with its own offset.

        The list is taken away first. A log that completes a batch and raises afterwards makes
        :meth:`Journal.flush` complete it again, and then nobody is left to be answered twice.
        """
        requests, self.requests = self.requests, []
        meter = self.meter
        if meter is not None:
            seconds = meter.clock() - self.began
            meter.buckets[bisect_left(BOUNDS_S, seconds)] += 1
            meter.seconds += seconds
            self.meter = None
        for on_committed, index in requests:
            try:
                on_committed(code, base_offset + index)
            except Exception:  # our bug: the others of the batch get their answer all the same
                log.exception("completion failed partition=%d", self.term.partition)


class Journal:
    """Gathers records by term, and appends them at the end of the turn.

    It makes no task, no future and no timer for a request: a commit waits as one callable in the
    list of its batch.
    """

    def __init__(
        self,
        state_log: StateLog,
        config: CoordinatorConfig,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
    ) -> None:
        self._log = state_log
        self._config = config
        self._loop = loop
        self._now_ms = now_ms
        self.meter: CommitMeter | None = None
        """Set where batches are to be measured."""
        self._open: dict[LeadershipTerm, _Batch] = {}
        self._batches: list[_Batch] = []
        self._flushing: deque[_Batch] = deque()

    def write(
        self, term: LeadershipTerm, entries: Sequence[Entry], on_committed: OnCommitted
    ) -> None:
        """Append the records of one request with this turn; ``on_committed`` is called once.

        A request that does not fit into the batch of this turn begins another one, and never is
        spread over two: it has one result. One that is too large by itself fails alone with
        MESSAGE_TOO_LARGE. Sizes are upper bounds, because the real one is known only after
        encoding; :meth:`_append` compares that as well.
        """
        size = 0
        for key, value in entries:
            size += len(key) + RECORD_OVERHEAD + (0 if value is None else len(value))
        batch = self._open.get(term)
        if batch is None or batch.size + size > batch.bytes_max:
            batch = self._begin(term)
        batch.requests.append((on_committed, len(batch.entries) + batch.row_count))
        batch.entries += entries
        batch.size += size

    def write_rows(
        self, term: LeadershipTerm, rows: Sequence[RecordRows], on_committed: OnCommitted
    ) -> None:
        """As :meth:`write`, of many records that were not made one by one."""
        size = sum(one.count * (len(one.key) + len(one.value) + RECORD_OVERHEAD) for one in rows)
        batch = self._open.get(term)
        if batch is None or batch.size + size > batch.bytes_max:
            batch = self._begin(term)
        batch.requests.append((on_committed, len(batch.entries) + batch.row_count))
        batch.rows += [(len(batch.entries), one) for one in rows]
        batch.row_count += sum(one.count for one in rows)
        batch.size += size

    def refuse(self, term: LeadershipTerm, code: ErrorCode, on_committed: OnCommitted) -> None:
        """Fail a request whose records are not even made, in the same order as :meth:`write`.

        Not at once: the caller may count on not being called back before this returns.
        """
        batch = _Batch(term, 0)
        batch.requests.append((on_committed, 0))
        self._loop.call_soon(batch.on_appended, code, -1)

    def plain_bytes_max(self, term: LeadershipTerm) -> int:
        """What key and value of a record may take, to refuse early what cannot be appended.

        Without a bound where batches are compressed, or the partition is not hosted here: then
        only the append can tell.
        """
        bytes_max = self._log.batch_bytes_max(term.partition)
        return sys.maxsize if self._config.offsets_compression_codec or not bytes_max else bytes_max

    def flush(self) -> None:
        """Append what was written since the last time.

        The loop calls it once a turn, and so does a stop, before the coordinator resigns.
        """
        # Taken away before the first append: an append with one replica completes at once, its
        # clients may commit again, and their records belong to the next flush.
        self._flushing += self._batches
        self._batches = []
        self._open.clear()
        now = self._now_ms()
        while self._flushing:  # one that is called within an append goes on with what is left
            batch = self._flushing.popleft()
            try:
                self._append(batch, now)
            except Exception:  # our bug: everyone in the batch gets an answer all the same
                log.exception("append failed partition=%d", batch.term.partition)
                batch.on_appended(ErrorCode.UNKNOWN_SERVER_ERROR, -1)

    def position(self, term: LeadershipTerm) -> tuple[int, int] | None:
        """Offset of the next record and high watermark, all that was handed in being appended.

        None when the partition is not led here any more.
        """
        if self._open or self._flushing:
            self.flush()
        bounds = self._log.bounds(term.partition)
        return None if bounds is None else (bounds[2], bounds[1])

    def append_transactional(
        self,
        term: LeadershipTerm,
        entries: Sequence[Entry],
        producer: tuple[int, int],
        guard: object | None,
        on_appended: OnAppended,
    ) -> None:
        """Append the records of one TxnOffsetCommit now, as a batch of its transaction.

        ``producer`` is id and epoch. Called in the turn of :meth:`position`, whose offset the first
        record gets. As Kafka writes it: base sequence 0, though nobody looks at the sequence of a
        coordinator's batch (docs/spec/transactions.md §4.2).
        """
        assert term.load_state is not _OVER
        assert not self._open
        assert not self._flushing
        producer_id, producer_epoch = producer
        config = self._config
        data = build_batch(
            entries,
            timestamp_ms=self._now_ms(),
            codec=config.offsets_compression_codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )
        if 0 < self._log.batch_bytes_max(term.partition) < len(data):
            on_appended(ErrorCode.MESSAGE_TOO_LARGE, -1)
            return
        try:
            self._log.append(
                term.partition,
                data,
                leader_epoch=term.leader_epoch,
                acks=config.commit_required_acks,
                timeout_ms=config.commit_timeout_ms,
                on_appended=on_appended,
                guard=guard,
            )
        except Exception:  # our bug: the client gets an answer all the same
            log.exception("append failed partition=%d", term.partition)
            on_appended(ErrorCode.UNKNOWN_SERVER_ERROR, -1)

    def _begin(self, term: LeadershipTerm) -> _Batch:
        if not self._batches:
            self._loop.call_soon(self.flush)
        batch = self._open[term] = _Batch(term, self._log.batch_bytes_max(term.partition))
        self._batches.append(batch)
        return batch

    def _append(self, batch: _Batch, now_ms: int) -> None:
        term, config = batch.term, self._config
        # The term may have ended within this turn. Its groups answered 16 already, and another node
        # may lead: what was checked here must not be appended in a later epoch (KAFKA-2841).
        if term.load_state is _OVER:
            batch.on_appended(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
            return
        entries, codec = batch.entries, config.offsets_compression_codec
        # Most turns of a quiet node bring one commit; its batch is written by a shorter way.
        if batch.rows:
            data = build_batch_in_rows(list(batch.sections()), timestamp_ms=now_ms, codec=codec)
        elif len(entries) == 1 and not codec:
            data = build_single(*entries[0], now_ms)
        else:
            data = build_batch(entries, timestamp_ms=now_ms, codec=codec)
        if 0 < batch.bytes_max < len(data):
            batch.on_appended(ErrorCode.MESSAGE_TOO_LARGE, -1)
            return
        count = len(batch.requests)
        self._log.append(
            term.partition,
            data,
            leader_epoch=term.leader_epoch,
            acks=config.commit_required_acks,
            timeout_ms=config.commit_timeout_ms,
            on_appended=batch.on_appended,
        )
        if self.meter is not None:
            self._measure(self.meter, batch, count)

    def _measure(self, meter: CommitMeter, batch: _Batch, count: int) -> None:
        """Note a batch of so many requests that was just appended."""
        meter.sizes[count.bit_length()] += 1
        meter.requests += count
        if batch.requests:
            batch.meter, batch.began = meter, meter.clock()
        else:  # with one replica it is committed by now
            meter.buckets[0] += 1
