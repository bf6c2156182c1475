"""How far a group is behind, in records and in seconds, and what is odd about where it stands.

Source: docs/spec/users.md §3 (our definition of lag); docs/spec/coordinator.md §9 pitfall 22. Pure:
the console, a node's metrics and the jobs on Spark share it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lag:
    """How far one committed offset is from the end of its partition, never negative."""

    records: int
    """Offsets that are still to be read; those below the log's start are gone, hence not counted.

    Offsets, not records, where compaction left gaps or where markers of transactions lie.
    """
    is_below_log_start: bool
    """Records that the group never read were deleted: it will be reset."""
    is_beyond_end: bool
    """The log ends before it: the topic was made anew, or truncated. The group will be reset."""


def lag_of(committed: int, log_start: int, end: int) -> Lag:
    """The lag of ``committed``, the next offset to be read.

    ``log_start`` and ``end`` are to be read in one pass and not before ``committed``; ``end`` is
    the high watermark, or the last stable offset for a group that reads committed records only.
    """
    return Lag(
        records=max(0, end - unread_from(committed, log_start)),
        is_below_log_start=committed < log_start,
        is_beyond_end=committed > end,
    )


def unread_from(committed: int, log_start: int) -> int:
    """The first offset that the group can still read."""
    return max(committed, log_start)


def seconds_behind(unread_ms: int | None, now_ms: int) -> float | None:
    """The age of the oldest record that is not read yet; None when it cannot be told.

    ``unread_ms`` is the timestamp of the first record at or after :func:`unread_from` and below
    the end, whatever compaction left there, markers of transactions apart; None when there is
    none, which is caught up, and negative when the record has no timestamp. A timestamp that is
    still to come counts as now.
    """
    if unread_ms is None:
        return 0.0
    return max(0, now_ms - unread_ms) / 1000 if unread_ms >= 0 else None
