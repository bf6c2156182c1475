"""segments: log directories verified, profiled, or compared with another replica's, without broker.

Run by ``barnabas spark segments verify|profile|diff``, by ``spark-submit`` with this file, or by
:func:`run`. Nothing is written. Source: pipeline.md section 12, job 6.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema

from barnabas.pipeline.frames import read_segments
from barnabas.pipeline.jobs import inputs, segment_checks
from barnabas.pipeline.jobs.progress import Progress, to_people
from barnabas.pipeline.jobs.report import Bars, Report, Table
from barnabas.pipeline.jobs.segment_checks import SCHEMA
from barnabas.pipeline.source.failures import BadOption
from barnabas.pipeline.source.segment_files import find_segments

NAME: Final = "segments"
STEPS: Final = ("verify", "profile", "diff")
_TASKS_MAX: Final = 1_000
_PLOTTED: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentsConfig:
    """What to do with which paths: log directories, partitions', files, patterns."""

    step: str
    paths: Sequence[str]
    other: Sequence[str] = ()
    """Of ``diff``: the other replica's."""
    limit: int = 1_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the job can be told."""
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("paths", nargs="+", metavar="PATH")
    parser.add_argument(
        "--against", action="append", default=[], metavar="PATH", help="diff: the other replica"
    )


def configured(chosen: argparse.Namespace) -> SegmentsConfig:
    """What was typed; raises UsageProblem."""
    if bool(chosen.against) != (chosen.step == "diff"):
        raise inputs.UsageProblem("diff, and nothing else, needs --against PATH")
    return SegmentsConfig(
        step=chosen.step, paths=chosen.paths, other=chosen.against, limit=chosen.limit
    )


def run(spark: SparkSession, config: SegmentsConfig, progress: Progress | None = None) -> Report:
    """The report. Findings are bad segments, or offsets that replicas hold differently.

    ``diff`` compares where both replicas have the log: what one has not read yet, or has deleted
    already, is no difference. Raises UsageProblem for a path where nothing is.
    """
    told = progress or to_people(NAME, quiet=True)
    told.step(config.step)
    if config.step == "diff":
        return _compared(spark, config)
    rows = checked(spark, config.paths, opens_records=config.step == "verify").persist()
    report = Report(job=f"{NAME} {config.step}")
    sums = rows.agg(
        F.count("*"), F.sum("bytes"), F.sum("batches"), F.sum("records"), F.count("bad_log"),
        F.count("bad_index"),
    ).first()  # fmt: skip
    assert sums is not None, "an aggregate has a row"
    names = ("files", "bytes", "batches", "records", "bad logs", "bad indexes")
    report.figures |= {name: value or 0 for name, value in zip(names, sums, strict=True)}
    report.findings = sums[4] + sums[5]
    order = [F.coalesce("bad_log", "bad_index").isNull(), F.col("file")]
    shown = [list(row) for row in rows.orderBy(*order).limit(config.limit).collect()]
    report.tables.append(Table("Segments", SCHEMA.names, shown, sums[0]))
    if config.step == "profile":
        _plot(report, rows)
    rows.unpersist()
    return report


def checked(spark: SparkSession, paths: Sequence[str], *, opens_records: bool) -> DataFrame:
    """A row of segment_checks.SCHEMA for each segment; log and index are read by one task."""
    try:
        files = find_segments(paths)
    except BadOption as problem:
        raise inputs.UsageProblem(str(problem)) from None
    listed = spark.createDataFrame(
        [(f.path, *f.place, f.base_offset, f.size, f.is_last) for f in files],
        segment_checks.FILES,
    )
    arrow = to_arrow_schema(SCHEMA)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from segment_checks.check_all(batches, arrow, opens_records=opens_records)

    return listed.repartition(max(1, min(_TASKS_MAX, len(files)))).mapInArrow(work, SCHEMA)


def _plot(report: Report, rows: DataFrame) -> None:
    for title, column in (("Bytes by topic", "bytes"), ("Records by topic", "records")):
        sums = rows.groupBy("topic").agg(F.sum(column).alias("value"))
        top = sums.orderBy(F.col("value").desc(), "topic").limit(_PLOTTED).collect()
        report.charts.append(Bars(title, "", {row.topic: float(row.value or 0) for row in top}))


def _compared(spark: SparkSession, config: SegmentsConfig) -> Report:
    left, right = (_digests(spark, paths) for paths in (config.paths, config.other))
    low = F.greatest(*(F.col(f"_low_{at}") for at in (0, 1)))
    high = F.least(*(F.col(f"_high_{at}") for at in (0, 1)))
    edges = (
        _edges(left, 0)
        .join(_edges(right, 1), ["topic", "partition"])
        .select("topic", "partition", low.alias("low"), high.alias("high"))
    )
    joined = left.join(
        right.withColumnRenamed("digest", "other"), ["topic", "partition", "offset"], "full"
    ).join(F.broadcast(edges), ["topic", "partition"])
    within = joined.where(F.col("offset").between(F.col("low"), F.col("high")))
    status = (
        F.when(F.col("other").isNull(), "missing there")
        .when(F.col("digest").isNull(), "missing here")
        .when(F.col("digest") != F.col("other"), "different")
        .otherwise("equal")
    )
    counts = (
        within.withColumn("status", status)
        .groupBy("topic", "partition", "status")
        .agg(
            F.count("*").alias("records"),
            F.min("offset").alias("first"),
            F.max("offset").alias("last"),
        )
    )
    rows = [list(row) for row in counts.orderBy("topic", "partition", "status").collect()]
    report = Report(job=f"{NAME} diff")
    bad = [row for row in rows if row[2] != "equal"]
    report.findings = sum(row[3] for row in bad)
    report.figures |= {
        "partitions": len({(row[0], row[1]) for row in rows}),
        "records compared": sum(row[3] for row in rows),
        "differences": report.findings,
    }
    columns = ["topic", "partition", "status", "records", "first", "last"]
    report.tables.append(Table("Offsets", columns, rows[: config.limit], len(rows)))
    return report


def _digests(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    frame = read_segments(spark, ",".join(paths), columns=("topic", "partition", "offset",
                          "timestamp", "key", "value"))  # fmt: skip
    content = F.xxhash64("timestamp", "key", "value")
    return frame.select("topic", "partition", "offset", content.alias("digest"))


def _edges(frame: DataFrame, side: int) -> DataFrame:
    return frame.groupBy("topic", "partition").agg(
        F.min("offset").alias(f"_low_{side}"), F.max("offset").alias(f"_high_{side}")
    )


if __name__ == "__main__":
    from barnabas.pipeline.jobs.launch import main

    sys.exit(main(NAME))
