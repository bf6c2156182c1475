"""profile: who commits how often and how much, and how evenly it spreads over the coordinators.

The file is not named after its job: beside a script of spark-submit ``profile`` would hide a module
of Python's own. Run by ``barnabas spark profile``, by ``spark-submit`` with this file, or by
:func:`run`. Source: docs/spec/pipeline.md §4, job 7.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from barnabas.pipeline.jobs import inputs
from barnabas.pipeline.jobs.reports.job_progress import JobProgress, progress_on_stderr
from barnabas.pipeline.jobs.reports.report import Bars, Report, Table
from barnabas.pipeline.jobs.spark_session.persisted_frames import PersistedFrames

NAME: Final = "profile"
_OFTEN_MS: Final = 1_000
_UNEVEN: Final = 0.5
_SHORT: Final = 20
_PLOTTED: Final = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileConfig:
    """Whose commits."""

    source: inputs.JobSource = field(default_factory=inputs.JobSource)
    limit: int = 1_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the job can be told."""
    inputs.add_source_arguments(parser)


def configured(chosen: argparse.Namespace) -> ProfileConfig:
    """What was typed; raises UsageProblem."""
    if chosen.commits:
        chosen.records = chosen.records or chosen.commits  # no records are looked at
    return ProfileConfig(source=inputs.source_of(chosen), limit=chosen.limit)


def run(spark: SparkSession, config: ProfileConfig, progress: JobProgress | None = None) -> Report:
    """The report; findings are groups and topics with advice."""
    progress = progress or progress_on_stderr(NAME, quiet=True)
    progress.step("reading commits")
    with PersistedFrames() as persisted:
        commits = inputs.commits_of(spark, config.source, persisted)
        return _report(
            persisted.persist(rates(commits)), persisted.persist(evenness(commits)), config.limit
        )


def _report(groups: DataFrame, balance: DataFrame, limit: int) -> Report:
    report = Report(job=NAME)
    sums: Any = groups.agg(
        F.count("*"), F.sum("commits"), F.sum("per_second"), F.sum("metadata_bytes")
    ).first()
    names = ("groups", "commits", "commits a second", "bytes of metadata")
    report.figures |= {name: value or 0 for name, value in zip(names, sums, strict=True)}
    _busiest(report, groups, limit)
    _uneven(report, balance, limit)
    report.notes.append("Rates are over each group's own time, from its first commit to its last.")
    return report


def rates(commits: DataFrame) -> DataFrame:
    """group, commits, partitions, per_second, every_ms, tombstones, metadata_bytes, advice.

    ``every_ms`` is the time between commits of one partition.
    """
    found = commits.groupBy("group").agg(
        F.count("offset").alias("commits"),
        F.count_distinct("topic", "partition").alias("partitions"),
        ((F.max("ts_ms") - F.min("ts_ms")) / 1000).alias("seconds"),
        F.count_if(F.col("offset").isNull()).alias("tombstones"),
        F.coalesce(F.sum(F.octet_length("metadata")), F.lit(0)).alias("metadata_bytes"),
    )
    per_second = F.when(F.col("seconds") > 0, F.col("commits") / F.col("seconds")).otherwise(0.0)
    every = F.when(
        F.col("commits") > 0, 1000 * F.col("seconds") * F.col("partitions") / F.col("commits")
    )
    advice = F.when(
        (F.col("commits") >= _SHORT * F.col("partitions")) & (F.col("every_ms") < _OFTEN_MS),
        F.lit(
            "commits each partition more often than once a second: raise auto.commit.interval.ms"
        ),
    )
    return (
        found.withColumn("per_second", per_second)
        .withColumn("every_ms", every)
        .withColumn("advice", advice)
    )


def evenness(commits: DataFrame) -> DataFrame:
    """topic, partitions, consumed (offsets gone through), gini, advice.

    ``gini`` is 0 where all partitions are consumed alike, near 1 where one carries everything.
    """
    by_place = commits.groupBy("topic", "partition").agg(
        (F.max("offset") - F.min("offset")).alias("consumed")
    )
    values = F.sort_array(F.collect_list("consumed"))
    weighted = F.aggregate(
        F.transform("values", lambda value, index: (index + 1) * value),
        F.lit(0).cast("bigint"),
        lambda total, value: total + value,
    )
    count, total = F.col("partitions"), F.col("consumed")
    gini = F.when(total > 0, 2 * weighted / (count * total) - (count + 1) / count).otherwise(0.0)
    advice = F.when(
        (F.col("gini") > _UNEVEN) & (count > 1),
        F.lit("few partitions carry most of it: look at the keys"),
    )
    return (
        by_place.groupBy("topic")
        .agg(F.count("*").alias("partitions"), F.sum("consumed").alias("consumed"),
             values.alias("values"))
        .withColumn("gini", gini)
        .withColumn("advice", advice)
        .drop("values")
    )  # fmt: skip


def _busiest(report: Report, groups: DataFrame, limit: int) -> None:
    rows = groups.orderBy(F.col("per_second").desc(), "group").limit(limit).collect()
    columns = ["group", "commits", "partitions", "per_second", "every_ms", "tombstones",
               "metadata_bytes", "advice"]  # fmt: skip
    total = int(report.figures["groups"] or 0)
    found = [[row[name] for name in columns] for row in rows]
    report.tables.append(Table("Groups", columns, found, total))
    top = {row["group"]: float(row.per_second) for row in rows[:_PLOTTED]}
    report.charts.append(Bars("Busiest groups", "commits/s", top))
    report.findings += groups.where(F.col("advice").isNotNull()).count()


def _uneven(report: Report, balance: DataFrame, limit: int) -> None:
    rows = balance.orderBy(F.col("gini").desc(), "topic").limit(limit).collect()
    columns = ["topic", "partitions", "consumed", "gini", "advice"]
    found = [[row[name] for name in columns] for row in rows]
    report.tables.append(Table("Topics", columns, found, balance.count()))
    report.findings += balance.where(F.col("advice").isNotNull()).count()


if __name__ == "__main__":
    from barnabas.pipeline.jobs.launch import main

    sys.exit(main(NAME))
