"""segments: log directories verified, profiled, compacted or compared with another replica's.

Run by ``barnabas spark segments verify|profile|compact|diff``, by ``spark-submit`` with this file,
or by :func:`run`; no broker is asked. What is read is never written to.
Source: docs/spec/pipeline.md §4, job 6.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema

from barnabas.pipeline.frames import read_segments
from barnabas.pipeline.jobs import inputs, time_arguments
from barnabas.pipeline.jobs.log_directories import segment_checks, segment_compaction
from barnabas.pipeline.jobs.log_directories.segment_checks import SCHEMA
from barnabas.pipeline.jobs.reports.job_progress import JobProgress, progress_on_stderr
from barnabas.pipeline.jobs.reports.report import Bars, Report, Table
from barnabas.pipeline.source.errors import BadOption
from barnabas.pipeline.source.segment_files import SegmentFile, find_segments

NAME: Final = "segments"
STEPS: Final = ("verify", "profile", "compact", "diff")
_TASKS_MAX: Final = 1_000
_PLOTTED: Final = 20
_DAY_MS: Final = 86_400_000
_MAP_MB: Final = 256
_SEGMENT_BYTES: Final = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentsConfig:
    """What to do with which paths: log directories, partitions', files, patterns."""

    step: str
    paths: Sequence[str]
    other: Sequence[str] = ()
    """Of ``diff``: the other replica's."""
    out: str = ""
    """Of ``compact``: where the copies go; empty only tells what they would be."""
    delete_retention_ms: int = _DAY_MS
    map_mb: int = _MAP_MB
    """Memory that the keys of one partition may take while it is compacted."""
    now_ms: int = 0
    """Against which tombstones and producers are old; 0 is when it runs."""
    limit: int = 1_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the job can be told."""
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("paths", nargs="+", metavar="PATH")
    parser.add_argument(
        "--against", action="append", default=[], metavar="PATH", help="diff: the other replica"
    )
    parser.add_argument("--out", default="", metavar="DIR", help="compact: write copies there")
    parser.add_argument(
        "--delete-retention", type=time_arguments.duration_ms, default=_DAY_MS, metavar="24h",
        help="compact: how long a tombstone stays, the topic's delete.retention.ms (default: 24h)",
    )  # fmt: skip
    parser.add_argument(
        "--map-mb", type=int, default=_MAP_MB, metavar="N",
        help=f"compact: memory for the keys of one partition, about 160 bytes each "
        f"(default: {_MAP_MB})",
    )  # fmt: skip


def configured(chosen: argparse.Namespace) -> SegmentsConfig:
    """What was typed; raises UsageProblem."""
    if bool(chosen.against) != (chosen.step == "diff"):
        raise inputs.UsageProblem("diff, and nothing else, needs --against PATH")
    if chosen.out and chosen.step != "compact":
        raise inputs.UsageProblem("--out is of compact")
    return SegmentsConfig(
        step=chosen.step,
        paths=chosen.paths,
        other=chosen.against,
        out=chosen.out,
        delete_retention_ms=chosen.delete_retention,
        map_mb=chosen.map_mb,
        limit=chosen.limit,
    )


def run(spark: SparkSession, config: SegmentsConfig, progress: JobProgress | None = None) -> Report:
    """The report. Findings are bad segments, logs without a copy, offsets that replicas differ in.

    ``diff`` compares where both replicas have the log: what one has not read yet, or has deleted
    already, is no difference. Raises UsageProblem for a path where nothing is.
    """
    progress = progress or progress_on_stderr(NAME, quiet=True)
    progress.step(config.step)
    if config.step == "diff":
        return _compared(spark, config)
    if config.step == "compact":
        return _compacted(spark, config)
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
    files = _found(paths)
    listed = spark.createDataFrame(
        [(f.path, *f.topic_partition, f.base_offset, f.size, f.is_last) for f in files],
        segment_checks.FILES,
    )
    arrow = to_arrow_schema(SCHEMA)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from segment_checks.check_all(batches, arrow, opens_records=opens_records)

    return listed.repartition(max(1, min(_TASKS_MAX, len(files)))).mapInArrow(work, SCHEMA)


def _found(paths: Sequence[str]) -> list[SegmentFile]:
    try:
        return find_segments(paths)
    except BadOption as problem:
        raise inputs.UsageProblem(str(problem)) from None


def _compacted(spark: SparkSession, config: SegmentsConfig) -> Report:
    logs: dict[str, list[SegmentFile]] = {}
    for file in _found(config.paths):
        logs.setdefault(str(Path(file.path).parent), []).append(file)
    if config.out:
        _check_out(Path(config.out), [Path(directory) for directory in logs])
    listed = spark.createDataFrame(
        [
            (directory, *files[0].topic_partition, [(f.path, f.base_offset, f.size) for f in files])
            for directory, files in logs.items()
        ],
        segment_compaction.LOGS,
    )
    rules = segment_compaction.CompactionConfig(
        out=str(Path(config.out).absolute()) if config.out else "",
        now_ms=config.now_ms or time.time_ns() // 1_000_000,
        delete_retention_ms=config.delete_retention_ms,
        producer_expiration_ms=_DAY_MS,
        map_bytes=config.map_mb << 20,
        segment_bytes=_SEGMENT_BYTES,
    )
    schema = segment_compaction.SCHEMA
    arrow = to_arrow_schema(schema)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from segment_compaction.compact_all(batches, arrow, rules)

    tasks = max(1, min(_TASKS_MAX, len(logs)))
    rows = listed.repartition(tasks).mapInArrow(work, schema).collect()
    return _savings(config, sorted(rows, key=lambda row: (row.bad is None, row.directory)))


def _check_out(out: Path, directories: Sequence[Path]) -> None:
    """Raises UsageProblem where a copy would meet another, or the log that it is made from."""
    names = Counter(directory.name for directory in directories)
    for directory in directories:
        if names[directory.name] > 1:
            raise inputs.UsageProblem(f"{directory.name} is in several directories: name one")
        if (out / directory.name).exists():
            raise inputs.UsageProblem(f"{out / directory.name} is there already")
        if out.resolve().is_relative_to(directory.resolve()):
            raise inputs.UsageProblem(f"{out} lies in {directory}: name another directory")


def _savings(config: SegmentsConfig, rows: Sequence[Row]) -> Report:
    report = Report(job=f"{NAME} compact")
    names = ("segments", "bytes", "records", "bytes_after", "records_after", "keys", "tombstones")
    report.figures["partitions"] = len(rows)
    for name in names:
        report.figures[name.replace("_", " ")] = sum(row[name] or 0 for row in rows)
    report.figures["not copied" if config.out else "not compactable"] = report.findings = sum(
        row.bad is not None for row in rows
    )
    if any((row.compacted_to or 0) < (row.end or 0) for row in rows):
        report.notes.append(
            "Where compacted_to is below end, a transaction is open or --map-mb was not enough."
        )
    columns = segment_compaction.SCHEMA.names
    shown = [list(row) for row in rows[: config.limit]]
    report.tables.append(Table("Partitions", columns, shown, len(rows)))
    saved: Counter[str] = Counter()
    for row in rows:
        saved[row.topic] += row.bytes - (row.bytes if row.bad else row.bytes_after)
    top = {topic: float(value) for topic, value in saved.most_common(_PLOTTED)}
    report.charts.append(Bars("Bytes saved by topic", "", top))
    return report


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
