"""The rules of offset-audit: what is odd in the history of committed offsets. Frames in and out.

Every rule gives rows of FINDINGS. A rule sees one partition of a group in the order of its
commits; what lies before a tombstone is another life. Source: pipeline.md section 12, job 2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812

from .as_of import PLACE, first_at_time

HIGH: Final = "high"
MEDIUM: Final = "medium"
LOW: Final = "low"
WEIGHTS: Final = {HIGH: 10, MEDIUM: 3, LOW: 1}
"""What a finding adds to the score of its group."""
FINDINGS: Final = (
    "rule", "severity", "group", "topic", "partition", "from_offset", "to_offset", "commit_ms",
    "member", "evidence",
)  # fmt: skip
CHANGES: Final = (
    "`version` int, time_ms bigint, action string, change string, principal string, host string, "
    "client_id string, `group` string, topic string, partition int, old_offset bigint, "
    "new_offset bigint, reason string"
)
"""A record of ``__barnabas_audit``; see protocol/audit_topic.py."""
_KEYS: Final = ("group", "topic", "partition")
_ORDER: Final = ("ts_ms", "source_offset")
_SAME_MS: Final = 60_000
"""A commit and the record of a change this close, to the same offset, are the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """From where on something is odd."""

    stalled_commits: int = 10
    """So many commits of one offset, with records to read, are a stall."""
    jump_records: int = 1_000
    jump_factor: float = 50.0
    """A step this many times faster than the group usually goes, and that long, is a jump."""
    turns: int = 3
    """So many steps back that the next commit but one undoes show two consumers in turn."""
    skew_ms: int = 60_000
    """How wrong the clocks of producers may be."""


def steps_of(commits: DataFrame, records: DataFrame, edges: DataFrame, limits: Limits) -> DataFrame:
    """Every commit with what the rules look at; partitions without edges are left out.

    ``commits``, ``records`` and ``edges`` as :func:`lag_frames.history` has them.
    """
    within = Window.partitionBy(*_KEYS).orderBy(*_ORDER)
    before = within.rowsBetween(Window.unboundedPreceding, -1)
    seen = (
        commits.withColumn("life", F.sum(F.col("offset").isNull().cast("int")).over(within))
        .withColumn("ever", F.last("offset", ignorenulls=True).over(before))
        .withColumn("is_last", F.lead("ts_ms").over(within).isNull())
        .where(F.col("offset").isNotNull())
        .join(F.broadcast(edges), [*PLACE])
        .withColumn("_late", F.col("ts_ms") + limits.skew_ms)
    )
    ended = first_at_time(seen, records, "_late", "end_then").drop("_late")
    alive = _alive()
    back = Window.partitionBy(*_KEYS, "life").orderBy(*(F.col(each).desc() for each in _ORDER))
    return (
        ended.withColumn("end_then", F.coalesce("end_then", "log_end"))
        .withColumn("previous", F.lag("offset").over(alive))
        .withColumn("previous_ms", F.lag("ts_ms").over(alive))
        .withColumn("next", F.lead("offset").over(alive))
        .withColumn(
            "best_later",
            F.max("offset").over(back.rowsBetween(Window.unboundedPreceding, -1)),
        )
    )


def rewinds(steps: DataFrame, limits: Limits) -> DataFrame:
    """An offset below the one before; high when what was there is never reached again."""
    recovers = F.coalesce(F.col("best_later") >= F.col("previous"), F.lit(False))
    return _found(
        steps.where(F.col("offset") < F.col("previous")),
        "rewind",
        F.when(recovers, LOW).otherwise(HIGH),
        F.when(recovers, F.lit("reached again later")).otherwise(F.lit("not reached again")),
    )


def jumps(steps: DataFrame, limits: Limits) -> DataFrame:
    """A step ahead far faster than the group goes otherwise: records may have been skipped."""
    step = F.col("offset") - F.col("previous")
    took = F.greatest(F.lit(1), F.col("ts_ms") - F.col("previous_ms"))
    every = Window.partitionBy(*_KEYS, "life")
    ahead = F.greatest(F.lit(0), step)
    steps = (
        steps.withColumn("_step", step)
        .withColumn("_took", took)
        .withColumn("_others", F.sum(ahead).over(every) - ahead)
        .withColumn("_others_ms", F.sum(took).over(every) - took)
    )
    usual = F.col("_others") / F.greatest(F.lit(1), F.col("_others_ms"))
    is_odd = (
        (F.col("_step") >= limits.jump_records)
        & (F.col("_others") > 0)
        & (F.col("_step") / F.col("_took") > usual * limits.jump_factor)
    )
    text = F.format_string("%d records in %d ms", F.col("_step"), F.col("_took"))
    return _found(steps.where(is_odd), "jump", F.lit(MEDIUM), text)


def beyond_ends(steps: DataFrame, limits: Limits) -> DataFrame:
    """An offset that the log had not reached: the topic was made anew, or another is meant."""
    is_odd = F.col("offset") > F.col("end_then")
    return _found(
        steps.where(is_odd),
        "beyond-end",
        F.lit(HIGH),
        F.format_string("the log ended at %d", F.col("end_then")),
    )


def below_starts(steps: DataFrame, limits: Limits) -> DataFrame:
    """The latest offset lies below the log's start: records were deleted before they were read."""
    is_odd = F.col("is_last") & (F.col("offset") < F.col("log_start"))
    lost = F.format_string("%d records deleted unread", F.col("log_start") - F.col("offset"))
    return _found(steps.where(is_odd), "below-start", F.lit(HIGH), lost)


def stalls(steps: DataFrame, limits: Limits) -> DataFrame:
    """One offset committed again and again while there was something to read."""
    change = F.coalesce((F.col("offset") != F.col("previous")).cast("int"), F.lit(1))
    runs = (
        steps.withColumn("_run", F.sum(change).over(_alive()))
        .groupBy(*_KEYS, "life", "_run", "offset")
        .agg(
            F.count("*").alias("_times"),
            F.min("ts_ms").alias("_since"),
            F.max("ts_ms").alias("ts_ms"),
            F.max("end_then").alias("end_then"),
        )
        .where((F.col("_times") >= limits.stalled_commits) & (F.col("end_then") > F.col("offset")))
        .withColumn("previous", F.col("offset"))
    )
    text = F.format_string(
        "%d commits in %d s, %d records unread",
        F.col("_times"),
        F.floor((F.col("ts_ms") - F.col("_since")) / 1000),
        F.col("end_then") - F.col("offset"),
    )
    return _found(runs, "stall", F.lit(MEDIUM), text)


def turns(steps: DataFrame, limits: Limits) -> DataFrame:
    """Steps back that the next commit undoes, again and again: two consumers of one partition."""
    is_turn = (F.col("offset") < F.col("previous")) & (F.col("next") >= F.col("previous"))
    counted = (
        steps.where(is_turn)
        .groupBy(*_KEYS)
        .agg(
            F.count("*").alias("_times"),
            F.max("ts_ms").alias("ts_ms"),
            F.max_by("previous", "ts_ms").alias("previous"),
            F.max_by("offset", "ts_ms").alias("offset"),
        )
        .where(F.col("_times") >= limits.turns)
    )
    text = F.format_string("%d times back and at once forth again", F.col("_times"))
    return _found(counted, "two-consumers", F.lit(HIGH), text)


def returns(steps: DataFrame, limits: Limits) -> DataFrame:
    """The first commit after an offset was forgotten: by hand, or because it expired."""
    is_first = F.col("previous").isNull() & (F.col("life") > 0) & F.col("ever").isNotNull()
    found = steps.where(is_first).withColumn("previous", F.col("ever"))
    lost = F.col("offset") < F.col("ever")
    text = F.when(lost, F.lit("starts before where it was: records are read twice")).otherwise(
        F.lit("starts where it was, or later")
    )
    return _found(found, "forgotten", F.when(lost, HIGH).otherwise(LOW), text)


Rule = Callable[[DataFrame, Limits], DataFrame]
RULES: Final[dict[str, Rule]] = {
    "rewind": rewinds,
    "jump": jumps,
    "beyond-end": beyond_ends,
    "below-start": below_starts,
    "stall": stalls,
    "two-consumers": turns,
    "forgotten": returns,
}
BY_HAND: Final = "by-hand"
"""The rule that reads ``__barnabas_audit``."""


def findings(steps: DataFrame, names: list[str], limits: Limits) -> DataFrame:
    """What the rules ``names`` find."""
    return reduce(DataFrame.unionByName, (RULES[name](steps, limits) for name in names))


def by_hand(changes: DataFrame) -> DataFrame:
    """Every change that an administrator made. ``changes``: CHANGES."""
    text = F.concat_ws(", ", F.col("action"), F.nullif(F.col("reason"), F.lit("")), F.col("host"))
    return changes.select(
        F.lit(BY_HAND).alias("rule"),
        F.lit(LOW).alias("severity"),
        *_KEYS,
        F.col("old_offset").alias("from_offset"),
        F.col("new_offset").alias("to_offset"),
        F.col("time_ms").alias("commit_ms"),
        F.col("principal").alias("member"),
        text.alias("evidence"),
    )


def explained(found: DataFrame, changes: DataFrame) -> DataFrame:
    """``found``, where what an administrator did on purpose counts for little and says so."""
    named = changes.select(
        *_KEYS,
        F.col("new_offset").alias("to_offset"),
        F.col("time_ms").alias("_time"),
        F.col("principal").alias("_who"),
        F.coalesce(F.nullif(F.col("reason"), F.lit("")), F.col("action")).alias("_why"),
    )
    near = F.abs(F.col("commit_ms") - F.col("_time")) <= _SAME_MS
    joined = found.join(named, [*_KEYS, "to_offset"], "left").withColumn("_is_near", near)
    one = Window.partitionBy(
        "rule", *_KEYS, "from_offset", "to_offset", "commit_ms"
    ).orderBy(F.col("_is_near").desc_nulls_last(), "_time")  # fmt: skip
    first = joined.withColumn("_row", F.row_number().over(one)).where(F.col("_row") == 1)
    is_known = F.coalesce(F.col("_is_near"), F.lit(False))
    text = F.concat(F.col("evidence"), F.lit("; by hand: "), F.col("_why"))
    return first.select(
        "rule",
        F.when(is_known, LOW).otherwise(F.col("severity")).alias("severity"),
        *_KEYS,
        "from_offset",
        "to_offset",
        "commit_ms",
        F.when(is_known, F.col("_who")).otherwise(F.col("member")).alias("member"),
        F.when(is_known, text).otherwise(F.col("evidence")).alias("evidence"),
    )


def scores(found: DataFrame) -> DataFrame:
    """group, score, high, medium, low: the worst group is to be looked at first."""
    weight: Column = F.lit(0)
    for name, value in WEIGHTS.items():
        weight = F.when(F.col("severity") == name, value).otherwise(weight)
    counts = [F.sum((F.col("severity") == name).cast("int")).alias(name) for name in WEIGHTS]
    return found.groupBy("group").agg(F.sum(weight).alias("score"), *counts)


def _alive() -> WindowSpec:
    return Window.partitionBy(*_KEYS, "life").orderBy(*_ORDER)


def _found(rows: DataFrame, rule: str, severity: Column, evidence: Column) -> DataFrame:
    return rows.select(
        F.lit(rule).alias("rule"),
        severity.alias("severity"),
        *_KEYS,
        F.col("previous").alias("from_offset"),
        F.col("offset").alias("to_offset"),
        F.col("ts_ms").alias("commit_ms"),
        F.lit(None).cast("string").alias("member"),
        evidence.alias("evidence"),
    )
