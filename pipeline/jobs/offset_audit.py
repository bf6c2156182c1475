"""offset-audit: commits that went back, jumped, stalled or point outside the log, and who did it.

Run by ``barnabas spark offset-audit``, by ``spark-submit`` with this file, or by :func:`run`.
Source: docs/spec/pipeline.md §4, job 2.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from barnabas.pipeline.jobs import inputs, time_arguments
from barnabas.pipeline.jobs.history import audit_rules
from barnabas.pipeline.jobs.history.audit_rules import BY_HAND, RULES, AuditLimits
from barnabas.pipeline.jobs.reports.job_progress import JobProgress, progress_on_stderr
from barnabas.pipeline.jobs.reports.report import Bars, Report, Table
from barnabas.pipeline.jobs.spark_session.persisted_frames import PersistedFrames
from barnabas.protocol.audit_topic import AUDIT_TOPIC

ALL: Final = (*RULES, BY_HAND)
_USUAL: Final = AuditLimits()
_PLOTTED: Final = 15
_ORDER: Final = ("group", "topic", "partition", "commit_ms", "rule", "from_offset", "to_offset")


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetAuditConfig:
    """What to look at, and which rules to apply."""

    source: inputs.JobSource = field(default_factory=inputs.JobSource)
    rules: Sequence[str] = ALL
    limits: AuditLimits = field(default_factory=AuditLimits)
    since_ms: int | None = None
    """Findings before this are not reported, though they count as history."""
    out: str = ""
    limit: int = 1_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the job can be told."""
    inputs.add_source_arguments(parser)
    parser.add_argument(
        "--rules", default="all", metavar="A,B", help=f"all, or some of {', '.join(ALL)}"
    )
    parser.add_argument(
        "--since",
        type=time_arguments.time_ms,
        metavar="TIME",
        help="report what was found since then",
    )
    parser.add_argument(
        "--stalled-commits", type=int, default=_USUAL.stalled_commits, metavar="N",
        help="so many commits of one offset are a stall",
    )  # fmt: skip
    parser.add_argument(
        "--jump-records", type=int, default=_USUAL.jump_records, metavar="N",
        help="shorter steps are no jump",
    )  # fmt: skip
    parser.add_argument("--out", default="", metavar="DIR", help="write all findings as Parquet")


def configured(chosen: argparse.Namespace) -> OffsetAuditConfig:
    """What was typed; raises UsageProblem."""
    rules = ALL if chosen.rules == "all" else tuple(chosen.rules.split(","))
    unknown = [rule for rule in rules if rule not in ALL]
    if unknown:
        raise inputs.UsageProblem(f"--rules {unknown[0]} is none of {', '.join(ALL)}")
    limits = AuditLimits(stalled_commits=chosen.stalled_commits, jump_records=chosen.jump_records)
    return OffsetAuditConfig(
        source=inputs.source_of(chosen),
        rules=rules,
        limits=limits,
        since_ms=chosen.since,
        out=chosen.out,
        limit=chosen.limit,
    )


def run(
    spark: SparkSession, config: OffsetAuditConfig, progress: JobProgress | None = None
) -> Report:
    """The report; all findings go to ``config.out``. Findings of low severity do not count."""
    progress = progress or progress_on_stderr("offset-audit", quiet=True)
    progress.step("reading commits")
    with PersistedFrames() as persisted:
        found = persisted.persist(findings(spark, config, persisted))
        progress.step("applying rules")
        if config.out:
            found.orderBy(*_ORDER).write.mode("overwrite").parquet(config.out)
        report = Report(job="offset-audit")
        _figures(report, found)
        progress.step("making the report")
        _groups(report, persisted.persist(audit_rules.scores(found)), config.limit)
        _findings(report, found, config.limit)
    return report


def findings(
    spark: SparkSession, config: OffsetAuditConfig, persisted: PersistedFrames
) -> DataFrame:
    """Rows of FINDINGS for what is configured. What ``kept`` is given is needed as long as they."""
    source = config.source
    changes = changes_of(spark, source, persisted)
    found = audit_rules.by_hand(changes) if BY_HAND in config.rules else None
    names = [name for name in config.rules if name in RULES]
    if names:
        commits = inputs.commits_of(spark, source, persisted)
        topics = [row.topic for row in commits.select("topic").distinct().collect()]
        logs = inputs.logs_of(spark, source, topics, persisted)
        steps = audit_rules.steps_of(commits, logs, config.limits)
        odd = audit_rules.explained(audit_rules.findings(steps, names, config.limits), changes)
        found = odd if found is None else odd.unionByName(found)
    assert found is not None, "some rule is asked for"
    return found if config.since_ms is None else found.where(F.col("commit_ms") >= config.since_ms)


def changes_of(
    spark: SparkSession, source: inputs.JobSource, persisted: PersistedFrames
) -> DataFrame:
    """What administrators changed: the records of ``__barnabas_audit``, none where it is not."""
    schema = audit_rules.CHANGES
    if source.commits or (
        not source.segments and not inputs.existing_topics(source, [AUDIT_TOPIC])
    ):
        return spark.createDataFrame([], schema).limit(0)  # the planner sees that it is empty
    asked = inputs.reader(spark, source, mode="segments" if source.segments else "topic")
    asked = asked.option("columns", "value").option("subscribe", AUDIT_TOPIC)
    text = F.col("value").cast("string")
    loaded: DataFrame = asked.load()
    parsed = loaded.select(F.from_json(text, schema).alias("change")).select("change.*")
    # What is changed besides offsets has no group.
    is_of_offsets = F.col("time_ms").isNotNull() & (F.col("group") != "")
    chosen = parsed.where(is_of_offsets).dropDuplicates()
    for name, pattern in (("group", source.groups), ("topic", source.topics)):
        if pattern:
            chosen = chosen.where(F.col(name).rlike(pattern))
    return persisted.persist(chosen)


def _figures(report: Report, found: DataFrame) -> None:
    counts = {
        (row.rule, row.severity): row["count"]
        for row in found.groupBy("rule", "severity").count().collect()
    }
    for severity in audit_rules.WEIGHTS:
        report.figures[f"{severity} findings"] = sum(
            count for (_, its), count in counts.items() if its == severity
        )
    by_rule = {
        rule: sum(count for (its, _), count in counts.items() if its == rule) for rule in ALL
    }
    report.findings = sum(
        count for (_, severity), count in counts.items() if severity != audit_rules.LOW
    )
    report.charts.append(
        Bars("Findings by rule", "", {rule: float(n) for rule, n in by_rule.items() if n})
    )
    report.notes.append(
        "The offsets topic is compacted: only commits that it still holds, or that were archived, "
        "can be judged."
    )


def _groups(report: Report, scores: DataFrame, limit: int) -> None:
    worst = scores.orderBy(F.col("score").desc(), "group").limit(limit).collect()
    total = scores.count()
    report.figures["groups with findings"] = total
    report.charts.append(
        Bars("Groups by score", "", {row["group"]: float(row.score) for row in worst[:_PLOTTED]})
    )
    report.tables.append(
        Table(
            "Groups",
            ["group", "score", "high", "medium", "low"],
            [[row["group"], row.score, row.high, row.medium, row.low] for row in worst],
            total,
        )
    )


def _findings(report: Report, found: DataFrame, limit: int) -> None:
    rank = F.when(F.col("severity") == audit_rules.HIGH, 0).when(
        F.col("severity") == audit_rules.MEDIUM, 1
    )
    rows = found.orderBy(F.coalesce(rank, F.lit(2)), *_ORDER).limit(limit).collect()
    report.tables.append(
        Table(
            "Findings",
            ["rule", "severity", "group", "topic", "partition", "from", "to", "time", "member",
             "evidence"],
            [
                [row.rule, row.severity, row["group"], row.topic, row.partition, row.from_offset,
                 row.to_offset, time_arguments.time_text(row.commit_ms), row.member, row.evidence]
                for row in rows
            ],
            sum(int(report.figures[f"{name} findings"] or 0) for name in audit_rules.WEIGHTS),
        )
    )  # fmt: skip


if __name__ == "__main__":
    from barnabas.pipeline.jobs.launch import main

    sys.exit(main("offset-audit"))
