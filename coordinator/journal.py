"""What the coordinator writes to the offsets topic, gathered into one batch a turn and partition.

Source: docs/spec/coordinator.md §2.4, §3.2 and §3.3. Whatever arrives in one turn
of the event loop (commits, group metadata, tombstones) is appended together, in order of arrival.
Each request keeps its own result, and the records of one request stay side by side in one batch.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.batch import build_batch, build_single

from .config import CoordinatorConfig
from .group_registry import LeadershipTerm, LoadState
from .ports import OffsetsLog

log = logging.getLogger(__name__)

Entry: TypeAlias = tuple[bytes, bytes | None]
"""Key and value of one record; without a value it is a tombstone."""

OnCommitted: TypeAlias = Callable[[ErrorCode, int], None]
"""The end of a request, once: the append's code, and the offset of its first record."""

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
"""What a committing client is told for the code of an append; others as they are."""

GROUP_ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = {
    **COMMIT_ERRORS,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""The same for the metadata of a group: SyncGroup of the leader, return of a static member."""


class _Batch:
    """The records of one turn for one term, and who waits for them."""

    __slots__ = ("bytes_max", "entries", "requests", "size", "term")

    def __init__(self, term: LeadershipTerm, bytes_max: int) -> None:
        self.term = term
        self.bytes_max = bytes_max
        self.size = BATCH_OVERHEAD
        self.entries: list[Entry] = []
        self.requests: list[tuple[OnCommitted, int]] = []

    def on_appended(self, code: ErrorCode, base_offset: int) -> None:
        """The append ended: tell each request by itself, and each only once."""
        requests, self.requests = self.requests, []
        for on_committed, index in requests:
            try:
                on_committed(code, base_offset + index)
            except Exception:  # our bug: the others of the batch get their answer all the same
                log.exception("completion failed partition=%d", self.term.partition)


class Journal:
    """The one way from the coordinator into its log."""

    def __init__(
        self,
        offsets_log: OffsetsLog,
        config: CoordinatorConfig,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
    ) -> None:
        self._log = offsets_log
        self._config = config
        self._loop = loop
        self._now_ms = now_ms
        self._open: dict[LeadershipTerm, _Batch] = {}
        self._batches: list[_Batch] = []

    def write(
        self, term: LeadershipTerm, entries: Sequence[Entry], on_committed: OnCommitted
    ) -> None:
        """Hand over the records of one request; ``told`` is called once, after this returned.

        A request that does not fit into the batch begun in this turn begins another one; one that
        is too large by itself ends with MESSAGE_TOO_LARGE and harms nobody else.
        """
        size = 0
        for key, value in entries:
            size += len(key) + RECORD_OVERHEAD + (0 if value is None else len(value))
        batch = self._open.get(term)
        if batch is None or batch.size + size > batch.bytes_max:
            batch = self._begin(term)
        batch.requests.append((on_committed, len(batch.entries)))
        batch.entries += entries
        batch.size += size

    def refuse(self, term: LeadershipTerm, code: ErrorCode, on_committed: OnCommitted) -> None:
        """Tell ``code`` of a request whose records are not even made, as :meth:`write` would."""
        batch = _Batch(term, 0)
        batch.requests.append((on_committed, 0))
        self._loop.call_soon(batch.on_appended, code, -1)

    def plain_bytes_max(self, term: LeadershipTerm) -> int:
        """What key and value of a record may take; without a bound where batches are compressed."""
        bytes_max = self._log.batch_bytes_max(term.partition)
        return sys.maxsize if self._config.offsets_compression_codec or not bytes_max else bytes_max

    def flush(self) -> None:
        """Append what was written since the last time; the loop calls it once a turn."""
        batches, self._batches = self._batches, []
        self._open.clear()
        now = self._now_ms()
        for batch in batches:
            try:
                self._append(batch, now)
            except Exception:  # our bug: everyone in the batch gets an answer all the same
                log.exception("append failed partition=%d", batch.term.partition)
                batch.on_appended(ErrorCode.UNKNOWN_SERVER_ERROR, -1)

    def _begin(self, term: LeadershipTerm) -> _Batch:
        if not self._batches:
            self._loop.call_soon(self.flush)
        batch = self._open[term] = _Batch(term, self._log.batch_bytes_max(term.partition))
        self._batches.append(batch)
        return batch

    def _append(self, batch: _Batch, now_ms: int) -> None:
        term, config = batch.term, self._config
        if term.load_state is _OVER:
            batch.on_appended(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
            return
        entries, codec = batch.entries, config.offsets_compression_codec
        if len(entries) == 1 and not codec:
            data = build_single(*entries[0], now_ms)
        else:
            data = build_batch(entries, timestamp_ms=now_ms, codec=codec)
        if 0 < batch.bytes_max < len(data):
            batch.on_appended(ErrorCode.MESSAGE_TOO_LARGE, -1)
            return
        self._log.append(
            term.partition,
            data,
            leader_epoch=term.leader_epoch,
            acks=config.commit_required_acks,
            timeout_ms=config.commit_timeout_ms,
            on_appended=batch.on_appended,
        )
