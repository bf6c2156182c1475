"""Lag of every committed offset over time, and the verdicts on it, from commits and records.

Frames in, frames out. A commit counts from its own time on, until the next one or until it is
forgotten; what it is measured against is the log as it was then: where it ended at a time is the
first offset stamped then or later. Source: users.md section 3; pipeline.md section 12, job 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from barnabas.coordinator.verdicts import BURROW, END_EVERY_MS, Rules

from . import verdict_columns
from .as_of import PLACE, first_at_offset, first_at_time

KEYS: Final = ("group", "topic", "partition")
COLUMNS: Final = (
    "window_start", "group", "topic", "partition", "commits", "offset", "end", "lag_min",
    "lag_max", "lag_last", "lag_ms", "verdict",
)  # fmt: skip
"""One row a window and partition of a group; times in ms; the state is that at its end."""
_ORDER: Final = ("ts_ms", "source_offset")
_LIFE: Final = (*KEYS, "life")


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The windows to look at: from ``since_ms`` on, up to ``until_ms``, which is now."""

    since_ms: int
    until_ms: int
    window_ms: int
    rules: Rules = BURROW

    @property
    def first_end_ms(self) -> int:
        """The end of the first window; windows end at multiples of their length."""
        return (self.since_ms // self.window_ms + 1) * self.window_ms

    @property
    def windows(self) -> int:
        """How many windows end within the span."""
        return max(0, (self.until_ms - self.first_end_ms) // self.window_ms + 1)


def history(commits: DataFrame, records: DataFrame, edges: DataFrame, span: Span) -> DataFrame:
    """COLUMNS for every window from a partition's first commit to the span's end.

    ``commits``: group, topic, partition, offset (null for a tombstone), ts_ms, source_offset.
    ``records``: topic, partition, offset, ts_ms. ``edges``: topic, partition, log_start, log_end,
    as they are at the span's end. Commits later than that are left out, and partitions without
    edges, which nobody can judge.
    """
    seen = with_lag(commits.where(F.col("ts_ms") < span.until_ms), records, edges)
    judged = verdict_columns.with_windows(seen, _LIFE, _ORDER, span.rules)
    shown = _at_window_ends(_per_window(judged, span), span)
    return _told(shown, _ends(edges, records, span), span)


def with_lag(commits: DataFrame, records: DataFrame, edges: DataFrame) -> DataFrame:
    """Every commit with its lag at its time, and the first record that it left unread.

    Added: ``life`` (tombstones before it), ``until_ms`` (when the next one or a tombstone took its
    place, null if none did), ``end_then``, ``lag``, ``unread`` (offset and ts_ms, or null).
    """
    within = Window.partitionBy(*KEYS).orderBy(*_ORDER)
    alive = (
        commits.withColumn("life", F.sum(F.col("offset").isNull().cast("int")).over(within))
        .withColumn("until_ms", F.lead("ts_ms").over(within))
        .where(F.col("offset").isNotNull())
        .join(F.broadcast(edges), [*PLACE])
    )
    ended = first_at_time(alive, records, "ts_ms", "end_then")
    reached = F.greatest(F.col("offset"), F.col("log_start"))
    unread = first_at_offset(ended.withColumn("_reached", reached), records, "_reached", "unread")
    end = F.coalesce(F.col("end_then"), F.col("log_end"))
    return (
        unread.drop("_reached")
        .withColumn("end_then", end)
        .withColumn("lag", verdict_columns.lag(F.col("offset"), F.lit(0), end))
    )


def _per_window(judged: DataFrame, span: Span) -> DataFrame:
    """The commits that are the last ones of their windows, with figures of all in the window."""
    window = F.floor(F.col("ts_ms") / F.lit(span.window_ms)).cast("bigint")
    within = Window.partitionBy(*KEYS, "_window")
    return (
        judged.withColumn("_window", window)
        .withColumn("_commits", F.count("offset").over(within))
        .withColumn("_lag_min", F.min("lag").over(within))
        .withColumn("_lag_max", F.max("lag").over(within))
    )


def _at_window_ends(commits: DataFrame, span: Span) -> DataFrame:
    """A row for each end of a window at which a commit is the latest one."""
    own = (F.col("_window") + 1) * span.window_ms
    until = F.coalesce(F.col("until_ms"), F.lit(span.until_ms))
    first = F.greatest(own, F.lit(span.first_end_ms))
    last = F.least(F.floor(until / F.lit(span.window_ms)), F.lit(span.until_ms // span.window_ms))
    last = last.cast("bigint") * span.window_ms
    ends = F.when(first <= last, F.sequence(first, last, F.lit(span.window_ms)))
    return commits.withColumn("window_end", F.explode(ends)).withColumn(
        "_is_own", F.col("window_end") == own
    )


def _ends(edges: DataFrame, records: DataFrame, span: Span) -> DataFrame:
    """Where every log ended at each end of a window, and the looks before that a verdict needs."""
    ends = F.sequence(
        F.lit(span.first_end_ms), F.lit(max(span.until_ms, span.first_end_ms)),
        F.lit(span.window_ms),
    )  # fmt: skip
    points = edges.select(*PLACE, "log_end", F.explode(ends).alias("window_end"))
    now = first_at_time(points, records, "window_end", "end")
    before = now.withColumn("_before", F.col("window_end") - span.rules.commits * END_EVERY_MS)
    found = first_at_time(before, records, "_before", "earlier_end")
    return found.select(
        *PLACE,
        "window_end",
        F.coalesce("end", "log_end").alias("end"),
        F.coalesce("earlier_end", "log_end").alias("earlier_end"),
    )


def _told(shown: DataFrame, ends: DataFrame, span: Span) -> DataFrame:
    joined = shown.join(ends, [*PLACE, "window_end"])
    behind = verdict_columns.lag(F.col("offset"), F.col("log_start"), F.col("end"))
    number = verdict_columns.verdict(
        end=F.col("end"),
        earlier_end=F.col("earlier_end"),
        log_start=F.col("log_start"),
        now_ms=F.col("window_end"),
        rules=span.rules,
    )
    return joined.select(
        (F.col("window_end") - span.window_ms).alias("window_start"),
        *KEYS,
        F.when(F.col("_is_own"), F.col("_commits")).otherwise(0).alias("commits"),
        "offset",
        "end",
        F.when(F.col("_is_own"), F.col("_lag_min")).otherwise(behind).alias("lag_min"),
        F.when(F.col("_is_own"), F.col("_lag_max")).otherwise(behind).alias("lag_max"),
        behind.alias("lag_last"),
        _lag_ms().alias("lag_ms"),
        number.alias("verdict"),
    )


def _lag_ms() -> Column:
    """The age of the oldest unread record at the end of the window; null when it has no time."""
    unread, now = F.col("unread"), F.col("window_end")
    is_there = unread.isNotNull() & (unread["offset"] < F.col("end"))
    aged = F.when(unread["ts_ms"] >= 0, F.greatest(F.lit(0), now - unread["ts_ms"]))
    return F.when(is_there, aged).otherwise(F.lit(0))


def by_group(windows: DataFrame) -> DataFrame:
    """window_start, group, lag, lag_ms, commits, verdict: a group as a whole.

    And ``worst``: the verdict on its worst partition, which says what an ERR is.
    """
    return windows.groupBy("window_start", "group").agg(
        F.sum("lag_last").alias("lag"),
        F.max("lag_ms").alias("lag_ms"),
        F.sum("commits").alias("commits"),
        verdict_columns.group_verdict(F.col("verdict")).alias("verdict"),
        F.max("verdict").alias("worst"),
    )
