"""Lag of every committed offset over time, and the verdicts on it, from commits and records.

Frames in, frames out. A commit counts from its own time on, until the next one or until it is
forgotten; what it is measured against is the log as it was then: where it ended at a time is the
first offset stamped then or later. Source: docs/spec/users.md §3; docs/spec/pipeline.md §4, job 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from barnabas.coordinator.group_health import BURROW, END_EVERY_MS, HealthRules

from . import verdict_columns
from .offsets_for_times import TOPIC_PARTITION, Logs

KEYS: Final = ("group", "topic", "partition")
COLUMNS: Final = (
    "window_start", "group", "topic", "partition", "commits", "offset", "end", "lag_min",
    "lag_max", "lag_last", "lag_ms", "verdict",
)  # fmt: skip
"""One row a window and partition of a group; times in ms; the state is that at its end."""
_OWNER: Final = ("_key", "group", "partition_number")
_LIFE: Final = (*_OWNER, "life")
_ORDER: Final = ("_window", "ts_ms", "source_offset")
"""A window is a stretch of time, so that this is the order in time, and one sort serves for all."""
_BROADCAST_MAX: Final = 500_000
"""So many rows are sent to every task rather than sorted with all the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSpan:
    """The windows to look at: from ``since_ms`` on, up to ``until_ms``, which is now."""

    since_ms: int
    until_ms: int
    window_ms: int
    rules: HealthRules = BURROW

    @property
    def first_end_ms(self) -> int:
        """The end of the first window; windows end at multiples of their length."""
        return (self.since_ms // self.window_ms + 1) * self.window_ms

    @property
    def windows(self) -> int:
        """How many windows end within the span."""
        return max(0, (self.until_ms - self.first_end_ms) // self.window_ms + 1)


def history(commits: DataFrame, logs: Logs, span: WindowSpan) -> DataFrame:
    """COLUMNS for every window from a partition's first commit to the span's end.

    ``commits``: group, topic, partition, offset (null for a tombstone), ts_ms, source_offset.
    ``logs`` are as they are at the span's end. Commits later than that are left out, and those of
    partitions that ``logs`` does not have, which nobody can judge.
    """
    lived = _lives(with_lag(commits.where(F.col("ts_ms") < span.until_ms), logs), span)
    judged = verdict_columns.with_windows(_per_window(lived), _LIFE, _ORDER, span.rules)
    shown = _with_unread(_last_ones(judged, span), logs)
    return _shown_rows(_at_window_ends(shown, span), _ends(logs, span), span)


def with_lag(commits: DataFrame, logs: Logs) -> DataFrame:
    """group, partition_number, offset, ts_ms, source_offset, ``lag`` then; of tombstones null."""
    thin = commits.select("group", *TOPIC_PARTITION, "offset", "ts_ms", "source_offset")
    ended = logs.first_at_time(logs.with_numbers(thin), "ts_ms", "_end").join(
        logs.edges, "partition_number"
    )
    end = F.coalesce(F.col("_end"), F.col("log_end"))
    lag = verdict_columns.lag(F.col("offset"), F.lit(0), end)
    return ended.withColumn("lag", F.when(F.col("offset").isNotNull(), lag)).drop(
        "_end", "log_start", "log_end"
    )


def _lives(commits: DataFrame, span: WindowSpan) -> DataFrame:
    """Without tombstones, and with what they and other neighbours say.

    Added: ``life`` (tombstones before it), ``until_ms`` (when the next one or a tombstone took its
    place, null if none did), ``_window``, and ``_key``, a number by which groups sort faster.
    """
    window = F.floor(F.col("ts_ms") / F.lit(span.window_ms)).cast("bigint")
    keyed = commits.withColumn("_window", window).withColumn(
        "_key", F.xxhash64("group", "partition_number")
    )
    within = Window.partitionBy(*_OWNER).orderBy(*_ORDER)
    return (
        keyed.withColumn("life", F.sum(F.col("offset").isNull().cast("int")).over(within))
        .withColumn("until_ms", F.lead("ts_ms").over(within))
        .where(F.col("offset").isNotNull())
    )


def _per_window(commits: DataFrame) -> DataFrame:
    """With figures of all commits in a commit's window."""
    within = Window.partitionBy(*_OWNER, "_window")
    return (
        commits.withColumn("_commits", F.count("offset").over(within))
        .withColumn("_lag_min", F.min("lag").over(within))
        .withColumn("_lag_max", F.max("lag").over(within))
    )


def _last_ones(commits: DataFrame, span: WindowSpan) -> DataFrame:
    """The commits that are the latest at the end of some window: ``_first`` to ``_last``."""
    own = F.col("_window") + 1
    until = F.coalesce(F.col("until_ms"), F.lit(span.until_ms))
    first = F.greatest(own, F.lit(span.first_end_ms // span.window_ms))
    last = F.least(F.floor(until / F.lit(span.window_ms)), F.lit(span.until_ms // span.window_ms))
    return (
        commits.withColumn("_own", own)
        .withColumn("_first", first)
        .withColumn("_last", last.cast("bigint"))
        .where(F.col("_first") <= F.col("_last"))
        .drop("_key", "life", "until_ms", "_window", "source_offset", "lag")
    )


def _with_unread(commits: DataFrame, logs: Logs) -> DataFrame:
    """With ``unread`` and ``unread_ms``: the first record that a commit left unread, or null."""
    reached = F.greatest(F.col("offset"), F.col("log_start"))
    asked = commits.join(logs.edges, "partition_number").withColumn("_reached", reached)
    return logs.first_at_offset(asked, "_reached", "unread").drop(
        "_reached", "log_start", "log_end"
    )


def _at_window_ends(commits: DataFrame, span: WindowSpan) -> DataFrame:
    """A row for each end of a window at which a commit is the latest one."""
    return (
        commits.withColumn("_end", F.explode(F.sequence("_first", "_last")))
        .withColumn("window_end", F.col("_end") * span.window_ms)
        .withColumn("_is_own", F.col("_end") == F.col("_own"))
        .drop("_end", "_own", "_first", "_last")
    )


def _ends(logs: Logs, span: WindowSpan) -> DataFrame:
    """Where every log ended at each end of a window, and the looks before that a verdict needs."""
    steps = (span.first_end_ms, span.window_ms, max(1, span.windows))
    before = (steps[0] - span.rules.commits * END_EVERY_MS, *steps[1:])
    found = (
        logs.first_at_steps(*steps, "end")
        .join(logs.first_at_steps(*before, "earlier_end"), ["partition_number", "step"])
        .join(F.broadcast(logs.partitions), "partition_number")
        .select(
            "partition_number",
            *TOPIC_PARTITION,
            "log_start",
            (F.col("step") * span.window_ms + span.first_end_ms).alias("window_end"),
            F.coalesce("end", "log_end").alias("end"),
            F.coalesce("earlier_end", "log_end").alias("earlier_end"),
        )
    )
    return F.broadcast(found) if logs.count * span.windows <= _BROADCAST_MAX else found


def _shown_rows(shown: DataFrame, ends: DataFrame, span: WindowSpan) -> DataFrame:
    joined = shown.join(ends, ["partition_number", "window_end"])
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
    unread_ms, now = F.col("unread_ms"), F.col("window_end")
    aged = F.when(unread_ms >= 0, F.greatest(F.lit(0), now - unread_ms))
    return F.when(F.col("unread") < F.col("end"), aged).otherwise(F.lit(0))


def by_group(windows: DataFrame) -> DataFrame:
    """window_start, group, lag, lag_ms, commits, verdict: a group as a whole.

    And ``worst``: the verdict on its worst partition, which says what an ERR is.
    """
    together = windows.select(
        "window_start", "group", "lag_last", "lag_ms", "commits", "verdict"
    ).repartition("group")
    return together.groupBy("group", "window_start").agg(
        F.sum("lag_last").alias("lag"),
        F.max("lag_ms").alias("lag_ms"),
        F.sum("commits").alias("commits"),
        verdict_columns.group_verdict(F.col("verdict")).alias("verdict"),
        F.max("verdict").alias("worst"),
    )
