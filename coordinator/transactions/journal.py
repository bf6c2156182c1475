"""The one way into the transaction log: records of one turn for one partition become one batch.

Source: docs/spec/transactions.md §1.2 and §3.1. Kafka appends each record by itself; any reader of
the log takes either. An append and its replication cost the same for one record as for a hundred,
and every commit needs three of them.

- A batch carries the leader epoch of its term, and is not appended once the term is over. What was
  decided in one term must not reach the log of the next: its state may be another.
- A record that is committed after its term ended counts as refused. The next term reads it.
- A completion is called exactly once, and never before :meth:`TransactionJournal.write` returned.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from barnabas.coordinator.offsets_journal import BATCH_OVERHEAD, RECORD_OVERHEAD, Entry
from barnabas.coordinator.ports import StateLog
from barnabas.coordinator.terms import LoadState
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.batch import build_batch, build_single

from .transaction_registry import TransactionTerm

log = logging.getLogger(__name__)

OnDecided: TypeAlias = Callable[[ErrorCode], None]
"""The end of an append, once, with the code of the log.

After an error the record may be in the log all the same, and be committed later. That is safe
because the last record of an id decides, and because nothing is done before a record is committed.
"""

APPEND_ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""What a client is told for the code of an append; others as they are.

7 becomes 15, unlike for offsets: the retry finds out what became of the transition.
"""

ALL_REPLICAS: Final = -1


class _Batch:
    """The records of one turn for one term that may wait equally long, and who waits for them."""

    __slots__ = ("bytes_max", "entries", "requests", "size", "term", "timeout_ms")

    def __init__(self, term: TransactionTerm, timeout_ms: int, bytes_max: int) -> None:
        self.term = term
        self.timeout_ms = timeout_ms
        self.bytes_max = bytes_max
        self.size = BATCH_OVERHEAD
        self.entries: list[Entry] = []
        self.requests: list[OnDecided] = []

    def on_appended(self, code: ErrorCode, _base_offset: int) -> None:
        """The append ended, well or not.

        The list is taken away first. A log that completes a batch and raises afterwards makes
        :meth:`TransactionJournal.flush` complete it again, and nobody is left to hear it twice.
        """
        requests, self.requests = self.requests, []
        if not code and self.term.load_state is LoadState.OVER:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        for on_decided in requests:
            try:
                on_decided(code)
            except Exception:  # our bug: the others of the batch hear all the same
                log.exception("completion failed partition=%d", self.term.partition)


class TransactionJournal:
    """Gathers records by term, and appends them at the end of the turn."""

    def __init__(
        self,
        state_log: StateLog,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
    ) -> None:
        self._log = state_log
        self._loop = loop
        self._now_ms = now_ms
        self._open: dict[tuple[TransactionTerm, int], _Batch] = {}
        self._batches: list[_Batch] = []

    def write(
        self, term: TransactionTerm, entry: Entry, timeout_ms: int, on_decided: OnDecided
    ) -> None:
        """Append a record with this turn; ``timeout_ms`` is how long its replicas may take.

        Records that may wait for different times are in different batches: one that gives up
        early must not have the others answered early.
        """
        key, value = entry
        size = len(key) + RECORD_OVERHEAD + (0 if value is None else len(value))
        batch = self._open.get((term, timeout_ms))
        if batch is None or batch.size + size > batch.bytes_max:
            batch = self._begin(term, timeout_ms)
        batch.requests.append(on_decided)
        batch.entries.append(entry)
        batch.size += size

    def flush(self) -> None:
        """Append what was written since the last time; once a turn, and at a stop."""
        # Taken away before the first append: an append with one replica completes at once, and
        # what is written then belongs to the next flush.
        batches, self._batches = self._batches, []
        self._open.clear()
        now = self._now_ms()
        for batch in batches:
            try:
                self._append(batch, now)
            except Exception:  # our bug: everyone in the batch gets an answer all the same
                log.exception("append failed partition=%d", batch.term.partition)
                batch.on_appended(ErrorCode.UNKNOWN_SERVER_ERROR, -1)

    def _begin(self, term: TransactionTerm, timeout_ms: int) -> _Batch:
        if not self._batches:
            self._loop.call_soon(self.flush)
        batch = _Batch(term, timeout_ms, self._log.batch_bytes_max(term.partition))
        self._open[term, timeout_ms] = batch
        self._batches.append(batch)
        return batch

    def _append(self, batch: _Batch, now_ms: int) -> None:
        term, entries = batch.term, batch.entries
        if term.load_state is LoadState.OVER:
            batch.on_appended(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
            return
        if len(entries) == 1:
            data = build_single(*entries[0], now_ms)
        else:
            data = build_batch(entries, timestamp_ms=now_ms)
        if 0 < batch.bytes_max < len(data):
            batch.on_appended(ErrorCode.MESSAGE_TOO_LARGE, -1)
            return
        self._log.append(
            term.partition,
            data,
            leader_epoch=term.leader_epoch,
            acks=ALL_REPLICAS,
            timeout_ms=batch.timeout_ms,
            on_appended=batch.on_appended,
        )
