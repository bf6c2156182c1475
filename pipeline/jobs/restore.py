"""restore: an archive back into a topic, in the order in which it was read.

Keys, values, headers and, with ``--keep-partitions``, partitions are those of the archive; offsets
and timestamps are new. Run by ``barnabas spark restore``, by ``spark-submit`` with this file, or by
:func:`run`. Source: docs/spec/pipeline.md §4, job 5.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from barnabas.pipeline.frames import read_archive, write_topic
from barnabas.pipeline.jobs import inputs
from barnabas.pipeline.jobs.reports.job_progress import JobProgress, progress_on_stderr
from barnabas.pipeline.jobs.reports.report import Report, Table

NAME: Final = "restore"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreConfig:
    """Which archive, and into which topic."""

    archive: str
    to: str
    topic: str = ""
    """Of several topics in the archive this one; all of them when empty."""
    source: inputs.JobSource = field(default_factory=inputs.JobSource)
    keeps_partitions: bool = False
    tasks: int = 4
    is_dry: bool = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the job can be told."""
    parser.add_argument("--archive", required=True, metavar="DIR", help="what to read")
    parser.add_argument("--to", required=True, metavar="TOPIC", help="where to write")
    parser.add_argument("--topic", default="", help="only this topic of the archive")
    parser.add_argument(
        "--keep-partitions", action="store_true", help="write into partitions of the same number"
    )
    parser.add_argument("--tasks", type=int, default=4, metavar="N", help="so many at once")
    parser.add_argument("--dry-run", action="store_true", help="only count")
    parser.set_defaults(groups="", topics="")
    inputs.add_cluster_arguments(parser)


def configured(chosen: argparse.Namespace) -> RestoreConfig:
    """What was typed; raises UsageProblem."""
    return RestoreConfig(
        archive=chosen.archive,
        to=chosen.to,
        topic=chosen.topic,
        source=inputs.source_of(chosen),
        keeps_partitions=chosen.keep_partitions,
        tasks=chosen.tasks,
        is_dry=chosen.dry_run,
    )


def run(spark: SparkSession, config: RestoreConfig, progress: JobProgress | None = None) -> Report:
    """Write the archive's records; at least once, should a task of it fail and run again.

    Raises UsageProblem when the archive has none.
    """
    progress = progress or progress_on_stderr(NAME, quiet=True)
    try:
        rows = read_archive(spark, config.archive)
    except FileNotFoundError as problem:
        raise inputs.UsageProblem(str(problem)) from None
    if config.topic:
        rows = rows.where(F.col("topic") == config.topic)
    counted = rows.groupBy("topic", "partition").agg(
        F.count("*").alias("records"), F.min("offset").alias("first"), F.max("offset").alias("last")
    )
    found = [list(row) for row in counted.orderBy("topic", "partition").collect()]
    report = Report(job=NAME)
    report.figures["records"] = sum(row[2] for row in found)
    report.figures["written"] = "no" if config.is_dry else "yes"
    columns = ["topic", "partition", "records", "first", "last"]
    report.tables.append(Table("Archive", columns, found, len(found)))
    if not config.is_dry:
        progress.step(f"writing {config.to}")
        names = [name for name in rows.columns if name in ("key", "value", "headers")]
        if config.keeps_partitions:
            names.append("partition")
        ordered = rows.repartition(config.tasks, "topic", "partition").sortWithinPartitions(
            "topic", "partition", "offset"
        )
        write_topic(
            ordered.select(*names), config.source.address.bootstrap, config.to,
            options=config.source.options,
        )  # fmt: skip
    return report


if __name__ == "__main__":
    from barnabas.pipeline.jobs.launch import main

    sys.exit(main(NAME))
