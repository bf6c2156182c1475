"""reconcile: the same topic in two clusters, record by record, whatever offsets a mirror gave them.

Records are matched by partition and content (key, value, timestamp), as often as each occurs; with
``--by-offset`` by partition and offset. Run by ``barnabas spark reconcile``, by ``spark-submit``
with this file, or by :func:`run`. Source: docs/spec/pipeline.md §4, job 8.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from barnabas.pipeline.frames import read_topic
from barnabas.pipeline.jobs import inputs
from barnabas.pipeline.jobs.reports.job_progress import JobProgress, progress_on_stderr
from barnabas.pipeline.jobs.reports.report import Report, Table

NAME: Final = "reconcile"
_COLUMNS: Final = ("partition", "offset", "timestamp", "key", "value")
_PLACE: Final = ("partition", "status")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileConfig:
    """Two clusters, or two topics of one."""

    left: str
    right: str
    topic: str
    other_topic: str = ""
    """Of the right cluster; the same name when empty."""
    by_offset: bool = False
    ignores_timestamps: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    right_options: Mapping[str, str] = field(default_factory=dict)
    """Of the right cluster alone; they win there."""
    limit: int = 1_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the job can be told."""
    parser.add_argument("--left", required=True, metavar="HOST:PORT,...")
    parser.add_argument("--right", required=True, metavar="HOST:PORT,...")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--other-topic", default="", metavar="TOPIC", help="its name on the right")
    parser.add_argument("--by-offset", action="store_true", help="offsets must be the same, too")
    parser.add_argument(
        "--ignore-timestamps", action="store_true", help="for a mirror that stamps anew"
    )
    inputs.add_command_config(parser)
    parser.add_argument(
        "--right-command-config",
        type=Path,
        metavar="FILE",
        help="of the right cluster (default: as --command-config)",
    )
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE")


def configured(chosen: argparse.Namespace) -> ReconcileConfig:
    """What was typed; raises UsageProblem."""
    options = dict(option.split("=", 1) for option in chosen.option if "=" in option)
    if len(options) < len(chosen.option):
        raise inputs.UsageProblem("--option must read NAME=VALUE")
    return ReconcileConfig(
        left=chosen.left,
        right=chosen.right,
        topic=chosen.topic,
        other_topic=chosen.other_topic,
        by_offset=chosen.by_offset,
        ignores_timestamps=chosen.ignore_timestamps,
        options={**inputs.command_config_of(chosen.command_config), **options},
        right_options=inputs.command_config_of(chosen.right_command_config),
        limit=chosen.limit,
    )


def run(
    spark: SparkSession, config: ReconcileConfig, progress: JobProgress | None = None
) -> Report:
    """The report. Findings are records that one side lacks, or holds otherwise."""
    progress = progress or progress_on_stderr(NAME, quiet=True)
    progress.step(f"comparing {config.topic}")
    rows = compared(
        _records(spark, config.left, config.topic, config.options),
        _records(
            spark,
            config.right,
            config.other_topic or config.topic,
            {**config.options, **config.right_options},
        ),
        by_offset=config.by_offset,
        ignores_timestamps=config.ignores_timestamps,
    )
    counts = rows.groupBy(*_PLACE).agg(
        F.count("*").alias("records"),
        F.min("left_offset"),
        F.max("left_offset"),
        F.min("right_offset"),
        F.max("right_offset"),
    )
    found = [list(row) for row in counts.orderBy(*_PLACE).collect()]
    report = Report(job=NAME)
    for status in ("equal", "missing", "extra", "different"):
        report.figures[status] = sum(row[2] for row in found if row[1] == status)
    report.findings = sum(row[2] for row in found if row[1] != "equal")
    report.tables.append(
        Table(
            "Partitions",
            ["partition", "status", "records", "first left", "last left", "first right",
             "last right"],
            found[: config.limit],
            len(found),
        )
    )  # fmt: skip
    report.notes.append("missing: only on the left; extra: only on the right")
    return report


def compared(
    left: DataFrame, right: DataFrame, *, by_offset: bool = False, ignores_timestamps: bool = False
) -> DataFrame:
    """partition, status, left_offset and right_offset of every record of either side.

    Both have partition, offset, timestamp, key, value. Status: equal, missing (on the right),
    extra, or with ``by_offset`` different.
    """
    content = ["key", "value"] if ignores_timestamps else ["timestamp", "key", "value"]
    fields = [F.unix_micros(name) if name == "timestamp" else F.hex(name) for name in content]
    digest = F.sha2(F.to_json(F.array(*(column.cast("string") for column in fields))), 256)
    sides = []
    for frame, name in ((left, "left"), (right, "right")):
        side = frame.select(
            "partition", F.col("offset").alias(f"{name}_offset"), digest.alias("_content")
        )
        if by_offset:
            side = side.withColumn("_match", F.col(f"{name}_offset").cast("string"))
        else:
            alike = Window.partitionBy("partition", "_content").orderBy(f"{name}_offset")
            number = F.row_number().over(alike)
            side = side.withColumn("_match", F.concat_ws("/", "_content", number))
        sides.append(side.withColumnRenamed("_content", f"_{name}"))
    joined = sides[0].join(sides[1], ["partition", "_match"], "full")
    status = (
        F.when(F.col("right_offset").isNull(), "missing")
        .when(F.col("left_offset").isNull(), "extra")
        .when(F.col("_left") != F.col("_right"), "different")
        .otherwise("equal")
    )
    return joined.select("partition", status.alias("status"), "left_offset", "right_offset")


def _records(
    spark: SparkSession, bootstrap: str, topic: str, options: Mapping[str, str]
) -> DataFrame:
    committed = {"kafka.isolation.level": "read_committed", **options}
    return read_topic(spark, topic, bootstrap, columns=_COLUMNS, options=committed)


if __name__ == "__main__":
    from barnabas.pipeline.jobs.launch import main

    sys.exit(main(NAME))
