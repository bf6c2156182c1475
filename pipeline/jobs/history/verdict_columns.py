"""The verdicts of coordinator/group_health.py as expressions of Spark, over millions of commits.

The rules are the same ones, said in windows and aggregates: a test holds both side by side on
random histories. Source: docs/spec/users.md §3; docs/spec/pipeline.md §4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from barnabas.coordinator.group_health import BURROW, HealthRules, Verdict

STATE: Final = (
    "w_count", "w_first_ms", "w_offset_min", "w_offset_max", "w_lag_min", "w_lag_fell",
)  # fmt: skip
"""What is known of the window that ends with a commit, beside the commit itself."""


def with_windows(
    commits: DataFrame, keys: Sequence[str], order: Sequence[str], rules: HealthRules = BURROW
) -> DataFrame:
    """Commits (offset, ts_ms, lag) with the columns STATE, each over the window that it ends."""
    within = Window.partitionBy(*keys).orderBy(*order)
    window = within.rowsBetween(1 - rules.commits, Window.currentRow)
    steps = within.rowsBetween(min(0, 2 - rules.commits), Window.currentRow)
    fell = F.col("lag") < F.lag("lag").over(within)
    return (
        commits.withColumn("_fell", F.coalesce(fell, F.lit(False)))
        .withColumn("w_count", F.count("offset").over(window))
        .withColumn("w_first_ms", F.first("ts_ms").over(window))
        .withColumn("w_offset_min", F.min("offset").over(window))
        .withColumn("w_offset_max", F.max("offset").over(window))
        .withColumn("w_lag_min", F.min("lag").over(window))
        .withColumn("w_lag_fell", _fell_within(rules, steps))
        .drop("_fell")
    )


def lag(offset: Column, log_start: Column, end: Column) -> Column:
    """What coordinator/lag.py calls the lag in records."""
    return F.greatest(F.lit(0), end - F.greatest(offset, log_start))


def verdict(
    *,
    end: Column,
    earlier_end: Column,
    log_start: Column,
    now_ms: Column,
    rules: HealthRules = BURROW,
) -> Column:
    """The number of the verdict on a row that holds a commit with STATE: what judge() would say."""
    offset, at = F.col("offset"), F.col("ts_ms")
    has_stopped = (now_ms - at > at - F.col("w_first_ms")) & (earlier_end > offset)
    return (
        F.when(F.col("w_count") < rules.completeness_min * rules.commits, _literal(Verdict.OK))
        .when(lag(offset, log_start, end) <= rules.allowed_lag, _literal(Verdict.OK))
        .when(has_stopped, _literal(Verdict.STOP))
        # no later commit reached the largest offset again, unless the last commit is it
        .when(F.col("w_offset_max") > offset, _literal(Verdict.REWIND))
        .when(F.col("w_lag_min") <= rules.allowed_lag, _literal(Verdict.OK))
        .when(F.col("w_offset_min") == F.col("w_offset_max"), _literal(Verdict.STALL))
        .when(~F.col("w_lag_fell"), _literal(Verdict.WARN))
        .otherwise(_literal(Verdict.OK))
    )


def group_verdict(partitions: Column) -> Column:
    """An aggregate over the verdicts of a group's partitions: what judge_group() would say."""
    return F.least(F.max(partitions), _literal(Verdict.ERR))


def verdict_name(number: Column) -> Column:
    """The verdict in words."""
    name = F.lit(None).cast("string")
    for known in Verdict:
        name = F.when(number == known.value, F.lit(known.name)).otherwise(name)
    return name


def _literal(what: Verdict) -> Column:
    return F.lit(what.value)


def _fell_within(rules: HealthRules, steps: object) -> Column:
    """Whether the lag fell from one commit of the window to the next; of one commit, never."""
    if rules.commits < 2:
        return F.lit(False)
    return F.max("_fell").over(steps)  # type: ignore[arg-type]
