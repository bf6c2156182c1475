"""The rules of offset-audit: what is odd in the history of committed offsets. Frames in and out.

Every rule gives rows of FINDINGS. A rule sees one partition of a group in the order of its
commits; what lies before a tombstone is another life. Source: docs/spec/pipeline.md §4, job 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812

from .offsets_for_times import TOPIC_PARTITION, Logs

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
_OWNER: Final = ("_key", "group", "partition_number")
_EVER: Final = (
    "lead(`offset`) IGNORE NULLS OVER "
    "(PARTITION BY `_key`, `group`, `partition_number` ORDER BY `ts_ms` DESC, `source_offset` DESC)"
)
"""The offset before, whatever tombstones lie between; pyspark has no function for it."""
_START: Final = Window.unboundedPreceding
_END: Final = Window.unboundedFollowing
_SAME_MS: Final = 60_000
"""A commit and the record of a change this close, to the same offset, are the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLimits:
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


def steps_of(commits: DataFrame, logs: Logs, limits: AuditLimits) -> DataFrame:
    """Every commit with what the rules look at; those of partitions not in ``logs`` are left out.

    ``commits`` and ``logs`` as :func:`lag_frames.history` has them. All is walked from the newest
    commit to the oldest, so that what came later is known: one sort serves.
    """
    thin = commits.select("group", *TOPIC_PARTITION, "offset", "ts_ms", "source_offset")
    late = logs.with_numbers(thin).withColumn("_late", F.col("ts_ms") + limits.skew_ms)
    ended = logs.first_at_time(late, "_late", "end_then").drop("_late")
    return _with_life(_with_neighbours(ended.join(logs.edges, "partition_number")), logs)


def _with_neighbours(commits: DataFrame) -> DataFrame:
    """Without tombstones. The neighbour of the same life is next to it, or there is none."""
    back = _newest_first(*_OWNER)
    upto = back.rowsBetween(_START, Window.currentRow)
    alive = (
        commits.withColumn("_key", F.xxhash64("group", "partition_number"))
        .withColumn("end_then", F.coalesce("end_then", "log_end"))
        .withColumns(
            {
                "life": F.sum(F.col("offset").isNull().cast("int")).over(upto),
                "ever": F.expr(_EVER),
                "previous": F.lead("offset").over(back),
                "previous_ms": F.lead("ts_ms").over(back),
                "next": F.lag("offset").over(back),
                "_row": F.row_number().over(back),
            }
        )
        .where(F.col("offset").isNotNull())
    )
    is_first = F.col("previous").isNull()
    is_turn = (F.col("offset") < F.col("previous")) & (F.col("next") >= F.col("previous"))
    took = F.greatest(F.lit(1), F.col("ts_ms") - F.col("previous_ms"))
    return alive.withColumns(
        {
            "is_last": F.col("_row") == 1,
            "step": F.col("offset") - F.col("previous"),
            "took": F.when(is_first, F.lit(1)).otherwise(took),
            "is_turn": F.coalesce(is_turn, F.lit(False)),
        }
    ).drop("previous_ms")


def _with_life(commits: DataFrame, logs: Logs) -> DataFrame:
    """With what all commits of a life say, and topic and partition again."""
    turns = F.sum(F.col("is_turn").cast("int"))
    ever = _newest_first(*_OWNER)
    back = _newest_first(*_OWNER, "life")
    whole = back.rowsBetween(_START, _END)
    return (
        commits.withColumns(
            {
                "turns": turns.over(ever.rowsBetween(_START, _END)),
                "turns_later": turns.over(ever.rowsBetween(_START, Window.currentRow)),
            }
        )
        .withColumns(
            {
                "best_later": F.max("offset").over(back.rowsBetween(_START, -1)),
                "ahead": F.sum(F.greatest(F.lit(0), F.col("step"))).over(whole),
                "ahead_ms": F.sum("took").over(whole),
                "alike": F.col("_row") - _newest_alike("_row", back) + 1,
                "alike_ms": _newest_alike("ts_ms", back),
                "alike_end": _newest_alike("end_then", back),
            }
        )
        .join(
            F.broadcast(logs.partitions.select("partition_number", *TOPIC_PARTITION)),
            "partition_number",
        )
        .drop("_row", "_key", "partition_number")
    )


def _newest_first(*keys: str) -> WindowSpec:
    return Window.partitionBy(*keys).orderBy(F.desc("ts_ms"), F.desc("source_offset"))


def _newest_alike(name: str, back: WindowSpec) -> Column:
    """What the newest of the commits alike says that this one is one of."""
    is_newest = F.coalesce(F.col("next") != F.col("offset"), F.lit(True))
    upto = back.rowsBetween(_START, Window.currentRow)
    return F.last(F.when(is_newest, F.col(name)), ignorenulls=True).over(upto)


def rewinds(limits: AuditLimits) -> Column:
    """An offset below the one before; high when what was there is never reached again."""
    recovers = F.coalesce(F.col("best_later") >= F.col("previous"), F.lit(False))
    return _found(
        F.col("offset") < F.col("previous"),
        "rewind",
        F.when(recovers, LOW).otherwise(HIGH),
        F.when(recovers, F.lit("reached again later")).otherwise(F.lit("not reached again")),
    )


def jumps(limits: AuditLimits) -> Column:
    """A step ahead far faster than the group goes otherwise: records may have been skipped."""
    step, took = F.col("step"), F.col("took")
    others = F.col("ahead") - F.greatest(F.lit(0), step)
    usual = others / F.greatest(F.lit(1), F.col("ahead_ms") - took)
    is_odd = (step >= limits.jump_records) & (others > 0)
    is_odd &= step / took > usual * limits.jump_factor
    return _found(is_odd, "jump", F.lit(MEDIUM), _text("%d records in %d ms", step, took))


def beyond_ends(limits: AuditLimits) -> Column:
    """An offset that the log had not reached: the topic was made anew, or another is meant."""
    end = F.col("end_then")
    evidence = _text("the log ended at %d", end)
    return _found(F.col("offset") > end, "beyond-end", F.lit(HIGH), evidence)


def below_starts(limits: AuditLimits) -> Column:
    """The latest offset lies below the log's start: records were deleted before they were read."""
    is_odd = F.col("is_last") & (F.col("offset") < F.col("log_start"))
    lost = _text("%d records deleted unread", F.col("log_start") - F.col("offset"))
    return _found(is_odd, "below-start", F.lit(HIGH), lost)


def stalls(limits: AuditLimits) -> Column:
    """One offset committed again and again while there was something to read: at its first one."""
    is_first = F.coalesce(F.col("offset") != F.col("previous"), F.lit(True))
    unread = F.col("alike_end") - F.col("offset")
    seconds = F.floor((F.col("alike_ms") - F.col("ts_ms")) / 1000)
    return _found(
        is_first & (F.col("alike") >= limits.stalled_commits) & (unread > 0),
        "stall",
        F.lit(MEDIUM),
        _text("%d commits in %d s, %d records unread", F.col("alike"), seconds, unread),
        start=F.col("offset"),
        at=F.col("alike_ms"),
    )


def turns(limits: AuditLimits) -> Column:
    """Steps back that the next commit undoes, again and again: two consumers; at the latest."""
    is_latest = F.col("is_turn") & (F.col("turns_later") == 1)
    text = _text("%d times back and at once forth again", F.col("turns"))
    is_odd = is_latest & (F.col("turns") >= limits.turns)
    return _found(is_odd, "two-consumers", F.lit(HIGH), text)


def returns(limits: AuditLimits) -> Column:
    """The first commit after an offset was forgotten: by hand, or because it expired."""
    ever = F.col("ever")
    lost = F.col("offset") < ever
    text = F.when(lost, F.lit("starts before where it was: records are read twice")).otherwise(
        F.lit("starts where it was, or later")
    )
    return _found(
        F.col("previous").isNull() & ever.isNotNull(),
        "forgotten",
        F.when(lost, HIGH).otherwise(LOW),
        text,
        start=ever,
    )


Rule = Callable[[AuditLimits], Column]
RULES: Final[dict[str, Rule]] = {
    "rewind": rewinds,
    "jump": jumps,
    "beyond-end": beyond_ends,
    "below-start": below_starts,
    "stall": stalls,
    "two-consumers": turns,
    "forgotten": returns,
}
"""Each says of a step what it finds, null when nothing."""
BY_HAND: Final = "by-hand"
"""The rule that reads ``__barnabas_audit``."""


def findings(steps: DataFrame, names: Sequence[str], limits: AuditLimits) -> DataFrame:
    """What the rules ``names`` find, all in one walk over ``steps``."""
    found = F.array_compact(F.array(*(RULES[name](limits) for name in names)))
    one = steps.select(*_KEYS, F.explode(found).alias("_one"))
    return one.select(*(f"_one.{name}" if name not in _KEYS else name for name in FINDINGS))


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
    named = changes.groupBy(*_KEYS, F.col("new_offset").alias("to_offset")).agg(
        F.collect_list(
            F.struct(
                F.col("time_ms").alias("at"),
                F.col("principal").alias("who"),
                F.coalesce(F.nullif(F.col("reason"), F.lit("")), F.col("action")).alias("why"),
            )
        ).alias("_changes")
    )
    near = F.filter("_changes", lambda one: F.abs(F.col("commit_ms") - one["at"]) <= _SAME_MS)
    joined = found.join(named, [*_KEYS, "to_offset"], "left").withColumn("_by", F.array_min(near))
    is_known = F.col("_by").isNotNull()
    text = F.concat(F.col("evidence"), F.lit("; by hand: "), F.col("_by.why"))
    return joined.select(
        "rule",
        F.when(is_known, LOW).otherwise(F.col("severity")).alias("severity"),
        *_KEYS,
        "from_offset",
        "to_offset",
        "commit_ms",
        F.when(is_known, F.col("_by.who")).otherwise(F.col("member")).alias("member"),
        F.when(is_known, text).otherwise(F.col("evidence")).alias("evidence"),
    )


def scores(found: DataFrame) -> DataFrame:
    """group, score, high, medium, low: the worst group is to be looked at first."""
    weight: Column = F.lit(0)
    for name, value in WEIGHTS.items():
        weight = F.when(F.col("severity") == name, value).otherwise(weight)
    counts = [F.sum((F.col("severity") == name).cast("int")).alias(name) for name in WEIGHTS]
    return found.groupBy("group").agg(F.sum(weight).alias("score"), *counts)


def _found(
    is_odd: Column,
    rule: str,
    severity: Column,
    evidence: Column,
    *,
    start: Column | None = None,
    at: Column | None = None,
) -> Column:
    """A finding where ``is_odd``, else null; it goes from the offset before unless ``start``."""
    finding = F.struct(
        F.lit(rule).alias("rule"),
        severity.alias("severity"),
        (F.col("previous") if start is None else start).alias("from_offset"),
        F.col("offset").alias("to_offset"),
        (F.col("ts_ms") if at is None else at).alias("commit_ms"),
        F.lit(None).cast("string").alias("member"),
        evidence.alias("evidence"),
    )
    return F.when(is_odd, finding)


def _text(pattern: str, *values: Column) -> Column:
    return F.format_string(pattern, *values)
