"""lag-history: how far every group was behind over time, and the verdict on it, window by window.

Run by ``barnabas spark lag-history``, by ``spark-submit`` with this file, or by :func:`run`.
Source: docs/spec/pipeline.md §4, job 1; docs/spec/users.md §3.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from barnabas.coordinator.group_health import Verdict
from barnabas.pipeline.jobs import inputs
from barnabas.pipeline.jobs.history import verdict_columns
from barnabas.pipeline.jobs.history.lag_charts import charts
from barnabas.pipeline.jobs.history.lag_frames import WindowSpan, by_group, history
from barnabas.pipeline.jobs.reports.job_progress import JobProgress, progress_on_stderr
from barnabas.pipeline.jobs.reports.report import Report, Table
from barnabas.pipeline.jobs.spark_session.persisted_frames import PersistedFrames
from barnabas.pipeline.jobs.time_arguments import duration_ms, time_ms, time_text

_WINDOW_MS: Final = 30_000
_SINCE_MS: Final = 86_400_000
_WINDOWS_MAX: Final = 100_000
_PLOTTED: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class LagHistoryConfig:
    """What to look at; ``until_ms`` None is now, or the last commit when only files are read."""

    source: inputs.JobSource = field(default_factory=inputs.JobSource)
    since_ms: int | None = None
    until_ms: int | None = None
    window_ms: int = _WINDOW_MS
    out: str = ""
    """A directory for all rows as Parquet, by date; nothing is written when empty."""
    limit: int = 1_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the job can be told."""
    inputs.add_source_arguments(parser)
    parser.add_argument(
        "--since", default=None, metavar="TIME", help="a time, or a duration before now such as 7d"
    )
    parser.add_argument("--until", type=time_ms, metavar="TIME", help="default: now")
    parser.add_argument(
        "--window", type=duration_ms, default=_WINDOW_MS, metavar="30s",
        help="how often to look (default: 30s)",
    )  # fmt: skip
    parser.add_argument("--out", default="", metavar="DIR", help="write all rows as Parquet")


def configured(chosen: argparse.Namespace) -> LagHistoryConfig:
    """What was typed; raises UsageProblem."""
    return LagHistoryConfig(
        source=inputs.source_of(chosen),
        since_ms=_since(chosen.since),
        until_ms=chosen.until,
        window_ms=chosen.window,
        out=chosen.out,
        limit=chosen.limit,
    )


def run(
    spark: SparkSession, config: LagHistoryConfig, progress: JobProgress | None = None
) -> Report:
    """The report; all rows go to ``config.out``. Findings are groups that are not well at the end.

    Raises UsageProblem when the span has too many windows.
    """
    progress = progress or progress_on_stderr("lag-history", quiet=True)
    progress.step("reading commits")
    with PersistedFrames() as persisted:
        rows, span = windows(spark, config, persisted)
        progress.step("judging")
        if config.out:
            progress.step(f"writing {config.out}")
            _write(rows, config.out)
            rows = spark.read.parquet(config.out)
        groups = persisted.persist(by_group(rows))
        progress.step("making the report")
        return _report(groups, persisted.persist(_summary(groups)), config, span)


def windows(
    spark: SparkSession, config: LagHistoryConfig, persisted: PersistedFrames
) -> tuple[DataFrame, WindowSpan]:
    """The rows of :func:`lag_frames.history` for what is configured, and their span.

    What ``kept`` is given is needed as long as they are.
    """
    commits = inputs.commits_of(spark, config.source, persisted)
    by_topic = commits.groupBy("topic").agg(F.min("ts_ms").alias("first"),
                                            F.max("ts_ms").alias("last")).collect()  # fmt: skip
    first = min((row.first for row in by_topic), default=None)
    last = max((row.last for row in by_topic), default=None)
    span = _span(config, first, last)
    logs = inputs.logs_of(spark, config.source, [row.topic for row in by_topic], persisted)
    return history(commits, logs, span), span


def _span(config: LagHistoryConfig, first: int | None, last: int | None) -> WindowSpan:
    now = time.time_ns() // 1_000_000
    newest = now if last is None else last + config.window_ms
    until = config.until_ms or (newest if config.source.is_offline else now)
    since = config.since_ms
    if since is None:
        since = max(first or 0, until - _SINCE_MS)
    span = WindowSpan(since_ms=since, until_ms=until, window_ms=config.window_ms)
    if not 0 < span.windows <= _WINDOWS_MAX:
        raise inputs.UsageProblem(
            f"from {time_text(since)} to {time_text(until)} there are {span.windows} "
            f"windows; at least 1 and at most {_WINDOWS_MAX} can be looked at: change --window"
        )
    return span


def _write(rows: DataFrame, out: str) -> None:
    dated = rows.withColumn("date", F.date_format(F.timestamp_millis("window_start"), "yyyy-MM-dd"))
    named = dated.withColumn("verdict_name", verdict_columns.verdict_name(F.col("verdict")))
    named.write.partitionBy("date").mode("overwrite").parquet(out)


def _summary(groups: DataFrame) -> DataFrame:
    """One row a group, so that the windows of all are walked once."""
    return groups.groupBy("group").agg(
        F.max_by(
            F.struct("window_start", "lag", "lag_ms", "verdict", "worst"), "window_start"
        ).alias("at_end"),
        F.max("lag").alias("lag_max"),
        F.max("lag_ms").alias("lag_ms_max"),
        F.sum("commits").alias("commits"),
        F.sum((F.col("verdict") > Verdict.OK).cast("int")).alias("unwell"),
    )


def _report(
    groups: DataFrame, summary: DataFrame, config: LagHistoryConfig, span: WindowSpan
) -> Report:
    report = Report(job="lag-history")
    _figures(report, summary, span)
    _tables(report, summary, config)
    report.charts += charts(groups, _worst(summary, _PLOTTED), span)
    return report


def _figures(report: Report, summary: DataFrame, span: WindowSpan) -> None:
    is_there = F.col("at_end.window_start") == _last_start(span)
    sums: Any = summary.agg(
        F.count("*"),
        F.coalesce(F.sum("commits"), F.lit(0)),
        F.max("lag_max"),
        F.count_if(is_there & (F.col("at_end.verdict") > Verdict.OK)),
    ).first()
    report.findings = sums[3]
    report.figures.update(
        {
            "groups": sums[0],
            "commits": sums[1],
            "windows": span.windows,
            "largest lag of a group": sums[2],
            "groups not well at the end": sums[3],
        }
    )
    report.notes.append(
        f"{time_text(span.since_ms)} to {time_text(span.until_ms)}, a look every "
        f"{span.window_ms // 1000} s. Commits that compaction removed cannot be seen."
    )


def _tables(report: Report, summary: DataFrame, config: LagHistoryConfig) -> None:
    rows = summary.orderBy(
        F.col("at_end.verdict").desc(), F.col("at_end.lag").desc(), "group"
    ).limit(config.limit)
    report.tables.append(
        Table(
            "Groups at the end",
            ["group", "verdict", "worst partition", "lag", "lag ms", "largest lag",
             "largest lag ms", "commits", "windows not well"],
            [
                [row.group, Verdict(row.at_end.verdict).name,
                 Verdict(row.at_end.worst).name, row.at_end.lag, row.at_end.lag_ms,
                 row.lag_max, row.lag_ms_max, row.commits, row.unwell]
                for row in rows.collect()
            ],
            int(report.figures["groups"] or 0),
        )
    )  # fmt: skip


def _worst(summary: DataFrame, most: int) -> list[str]:
    """The groups worth a plot: longest unwell, then furthest behind."""
    ranked = summary.orderBy(F.col("unwell").desc(), F.col("lag_max").desc(), "group")
    return [row.group for row in ranked.limit(most).collect()]


def _last_start(span: WindowSpan) -> int:
    return span.first_end_ms + (span.windows - 2) * span.window_ms


def _since(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return time.time_ns() // 1_000_000 - duration_ms(text)
    except argparse.ArgumentTypeError:
        pass
    try:
        return time_ms(text)
    except argparse.ArgumentTypeError as problem:
        raise inputs.UsageProblem(f"--since {problem}") from None


if __name__ == "__main__":
    from barnabas.pipeline.jobs.launch import main

    sys.exit(main("lag-history"))
