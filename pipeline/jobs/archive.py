"""archive: topics into Parquet, exactly once, with a group that shows how far it came.

Run by ``barnabas spark archive``, by ``spark-submit`` with this file, or by :func:`run`.
Source: docs/spec/pipeline.md §2 and §4, job 5.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from barnabas.pipeline.frames import available_now, stream_to_archive, stream_topic
from barnabas.pipeline.jobs import inputs
from barnabas.pipeline.jobs.reports.job_progress import JobProgress, progress_on_stderr
from barnabas.pipeline.jobs.reports.report import Cell, Report, Table
from barnabas.pipeline.sink.archive_check import check_archive, repair_archive
from barnabas.pipeline.sink.archive_files import ArchiveFiles

NAME: Final = "archive"
ONCE, FOLLOW, CHECK, REPAIR = "once", "follow", "check", "repair"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveConfig:
    """What goes where. ``task`` is ONCE, FOLLOW (until it is stopped), CHECK or REPAIR."""

    topic: str
    out: str
    group: str
    source: inputs.JobSource = field(default_factory=inputs.JobSource)
    checkpoint: str = ""
    """Beside the archive when empty."""
    task: str = ONCE
    has_headers: bool = False
    limit: int = 1_000

    @property
    def progress_path(self) -> str:
        """Where the stream keeps its progress."""
        return self.checkpoint or f"{self.out.rstrip('/')}.checkpoint"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the job can be told."""
    parser.add_argument("--topic", required=True, metavar="A,B", help="what to archive")
    parser.add_argument("--out", required=True, metavar="DIR", help="the archive")
    parser.add_argument("--group", required=True, metavar="ID", help="told how far it came")
    parser.add_argument("--checkpoint", default="", metavar="DIR", help="default: DIR.checkpoint")
    parser.add_argument("--headers", action="store_true", help="archive headers, too")
    task = parser.add_mutually_exclusive_group()
    for name, what in (
        (ONCE, "what is there now (default)"),
        (FOLLOW, "go on until it is stopped"),
        (CHECK, "compare archive, checkpoint and group; change nothing"),
        (REPAIR, "the same, remove strays and commit the group again"),
    ):
        task.add_argument(f"--{name}", dest="task", action="store_const", const=name, help=what)
    parser.set_defaults(task=ONCE, groups="", topics="")
    inputs.add_cluster_arguments(parser)


def configured(chosen: argparse.Namespace) -> ArchiveConfig:
    """What was typed; raises UsageProblem."""
    return ArchiveConfig(
        topic=chosen.topic,
        out=str(Path(chosen.out).absolute()),
        group=chosen.group,
        source=inputs.source_of(chosen),
        checkpoint=chosen.checkpoint and str(Path(chosen.checkpoint).absolute()),
        task=chosen.task,
        has_headers=chosen.headers,
        limit=chosen.limit,
    )


def run(spark: SparkSession, config: ArchiveConfig, progress: JobProgress | None = None) -> Report:
    """Archive, or look after an archive. Findings are what is missing or does not fit."""
    progress = progress or progress_on_stderr(NAME, quiet=True)
    bootstrap = config.source.address.bootstrap
    if config.task in (ONCE, FOLLOW):
        progress.step(f"archiving {config.topic}")
        _stream(spark, config)
    progress.step("comparing archive, checkpoint and group")
    look = repair_archive if config.task == REPAIR else check_archive
    found = look(
        config.out, config.progress_path,
        bootstrap=bootstrap, group=config.group, options=config.source.security,
    )  # fmt: skip
    report = Report(job=NAME, findings=len(found.problems) + found.lagging)
    report.notes += found.problems
    if found.lagging:
        report.notes.append("the group was behind the archive; --repair commits it")
    _add_batches(report, config, ArchiveFiles(config.out))
    return report


def _stream(spark: SparkSession, config: ArchiveConfig) -> None:
    # What was aborted is in no archive: it would come back as a plain record when it is restored.
    options: Mapping[str, str] = {
        "kafka.isolation.level": "read_committed",
        **config.source.options,
    }
    bootstrap = config.source.address.bootstrap
    headers = {"includeHeaders": "true"} if config.has_headers else {}
    frame = stream_topic(
        spark,
        config.topic,
        bootstrap,
        checkpoint=config.progress_path,
        start="earliest",
        options={**options, **headers},
    )
    writer = stream_to_archive(
        frame,
        config.out,
        checkpoint=config.progress_path,
        bootstrap=bootstrap,
        group=config.group,
        options=config.source.security,
    )
    if config.task == FOLLOW:
        writer.start().awaitTermination()
    else:
        available_now(writer)


def _add_batches(report: Report, config: ArchiveConfig, files: ArchiveFiles) -> None:
    rows: list[list[Cell]] = []
    batches = records = size = 0
    for number, manifest in zip(files.batches(), files.manifests(), strict=True):
        batches += 1
        its = sum(int(file["rows"]) for file in manifest["files"])
        size += sum(int(file["bytes"]) for file in manifest["files"])
        records += its
        if len(rows) < config.limit:
            rows.append([number, len(manifest["files"]), its])
    report.figures |= {"batches": batches, "records": records, "bytes": size}
    report.tables.append(Table("Batches", ["batch", "files", "records"], rows, batches))


if __name__ == "__main__":
    from barnabas.pipeline.jobs.launch import main

    sys.exit(main(NAME))
