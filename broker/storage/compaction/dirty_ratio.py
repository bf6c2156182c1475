"""What of a log may be compacted now, and how urgent that is.

    clean                    dirty                     not yet
    |------------------------|-------------------------|-----------------------
    start          cleaner checkpoint        first uncleanable: never past the last stable
                                             offset, a young record, the active segment

Source: docs/spec/log.md §5.2 and §5.7; §9 pitfall P22.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.broker.settings.log_config import FOREVER
from barnabas.broker.storage.log.log import Log
from barnabas.broker.storage.segment.batch_headers import header_at
from barnabas.broker.storage.segment.segment import Segment
from barnabas.protocol.records.header import HEADER_BYTES


class LogToClean(NamedTuple):
    """The closed segments of a log that a pass would read."""

    segments: tuple[Segment, ...]
    """From the first of the log on; empty when there is nothing to do."""
    first_dirty: int
    end: int
    """Where the last of them ends."""
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool
    """A record has waited for max.compaction.lag.ms."""

    @property
    def ratio(self) -> float:
        """The dirty share."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def clamped(first_dirty: int, log: Log) -> int:
    """A checkpoint that fits the log: one that does not begins anew."""
    return first_dirty if log.start_offset <= first_dirty <= log.end_offset else log.start_offset


def log_to_clean(log: Log, first_dirty: int, stable_offset: int, now_ms: int) -> LogToClean:
    """What may be compacted, ``stable_offset`` being neither above LSO nor high watermark.

    Raises StorageError.
    """
    view, config = log.segments.view, log.config
    closed = view.segments[:-1]
    # Never the active segment: it grows, and its indexes are in memory.
    limit = min(stable_offset, view.bases[-1])
    if config.min_compaction_lag_ms:
        young = now_ms - config.min_compaction_lag_ms
        for index, segment in enumerate(closed):
            if view.upper(index, limit) > first_dirty and segment.largest_timestamp > young:
                limit = min(limit, segment.base_offset)
                break
    count = max(0, view.floor(limit))
    end = view.bases[count]
    # Nothing, not an error: a checkpoint at or above what may be cleaned made cleaners die
    # (docs/spec/log.md §9 P22).
    if first_dirty >= end:
        return LogToClean((), first_dirty, first_dirty, 0, 0, is_overdue=False)
    # Above it a transaction may still abort, or a leader be lost with the records: dropping their
    # predecessors could leave a key without any value.
    assert end <= stable_offset, f"{log}: would compact {end}, stable is {stable_offset}"
    first = next(index for index in range(count) if view.upper(index, end) > first_dirty)
    dirty = view.segments[first:count]
    dirty_bytes = sum(segment.size for segment in dirty)
    return LogToClean(
        view.segments[:count],
        first_dirty,
        end,
        sum(segment.size for segment in view.segments[:first]),
        dirty_bytes,
        is_overdue=bool(dirty_bytes) and _is_overdue(dirty, config.max_compaction_lag_ms, now_ms),
    )


def _is_overdue(dirty: tuple[Segment, ...], lag_ms_max: int, now_ms: int) -> bool:
    if lag_ms_max == FOREVER:
        return False
    timestamps = [
        header_at(segment.read(0, HEADER_BYTES)).max_timestamp for segment in dirty if segment.size
    ]
    return any(0 <= timestamp < now_ms - lag_ms_max for timestamp in timestamps)
