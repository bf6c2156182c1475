"""zk-migrate: bring the offsets of classic groups at rest to the coordinator, and back if need be.

Run by ``barnabas spark zk-migrate plan|apply|verify|rollback``, by ``spark-submit`` with this
file, or by :func:`run`. Source: docs/spec/pipeline.md §4, job 3.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from barnabas.client.admin.admin import Admin
from barnabas.pipeline.jobs import inputs
from barnabas.pipeline.jobs.groups import zk_migrate_steps
from barnabas.pipeline.jobs.groups.group_tasks import TaskClientConfig, Work, for_each_group
from barnabas.pipeline.jobs.groups.plan_files import PlanFiles
from barnabas.pipeline.jobs.groups.zk_migrate_steps import SCHEMA
from barnabas.pipeline.jobs.reports.job_progress import JobProgress, progress_on_stderr
from barnabas.pipeline.jobs.reports.report import Report, Table
from barnabas.protocol.audit_topic import tool_client_id

NAME: Final = "zk-migrate"
STEPS: Final = ("plan", "apply", "verify", "rollback")
_CONNECTIONS: Final = 8
_READ: Final = ("group", "topic", "partition", "offset")
_BAD: Final = ("active", "differs", "failed", "moved")
_KEPT: Final = {"apply": "applied", "verify": "verified", "rollback": "rolled-back"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ZkMigrateConfig:
    """A step, and where its plan lies."""

    step: str
    plan: str
    zookeeper: str
    """``host:port,.../chroot``."""
    source: inputs.JobSource = field(default_factory=inputs.JobSource)
    """The cluster, and a pattern for groups."""
    allow_active: bool = False
    connections: int = _CONNECTIONS
    """So many sessions with ZooKeeper at once, which allows 60 from one address by default."""
    limit: int = 1_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the job can be told."""
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("plan", metavar="DIR", help="where the plan is, or is to be")
    parser.add_argument(
        "--zk", required=True, metavar="HOST:PORT/CHROOT", help="where classic groups have offsets"
    )
    parser.add_argument(
        "--allow-active", action="store_true",
        help="do not refuse groups that somebody consumes in",
    )  # fmt: skip
    parser.add_argument(
        "--zk-connections", type=int, default=_CONNECTIONS, metavar="N",
        help=f"sessions with ZooKeeper at once (default: {_CONNECTIONS})",
    )  # fmt: skip
    inputs.add_patterns(parser)
    inputs.add_cluster_arguments(parser)


def configured(chosen: argparse.Namespace) -> ZkMigrateConfig:
    """What was typed; raises UsageProblem."""
    return ZkMigrateConfig(
        step=chosen.step,
        plan=chosen.plan,
        zookeeper=chosen.zk,
        source=inputs.source_of(chosen),
        allow_active=chosen.allow_active,
        connections=chosen.zk_connections,
        limit=chosen.limit,
    )


def run(
    spark: SparkSession, config: ZkMigrateConfig, progress: JobProgress | None = None
) -> Report:
    """Do one step. Findings are offsets that are not, or could not be made, the same in both."""
    progress = progress or progress_on_stderr(NAME, quiet=True)
    progress.step(config.step)
    files = PlanFiles(config.plan)
    if config.step == "plan":
        rows = _planned(spark, config).persist()
        files.write(NAME, rows, {"time_ms": time.time_ns() // 1_000_000})
        return _report(config, rows)
    plan_id = str(files.about(NAME)["plan"])
    works: dict[str, Work] = {
        "apply": zk_migrate_steps.Writing(allows_active=config.allow_active),
        "verify": zk_migrate_steps.verify,
        "rollback": zk_migrate_steps.Writing(is_back=True),
    }
    client_config = _client_config(config, tool_client_id(plan_id, f"{NAME} {config.step}"))
    planned = files.rows(spark, SCHEMA)
    done = for_each_group(planned, client_config, works[config.step], SCHEMA, config.connections)
    return _report(config, files.keep(_KEPT[config.step], done))


def _planned(spark: SparkSession, config: ZkMigrateConfig) -> DataFrame:
    asked = spark.read.format(inputs.FORMAT).option("mode", "zookeeper")
    asked = asked.option("zookeeper.connect", config.zookeeper)
    asked = asked.option("zookeeperConnections", str(config.connections))
    asked = asked.option("columns", ",".join(_READ))
    for name, value in config.source.security.items():
        asked = asked.option(name, value)
    found = asked.option("groups", config.source.groups).load()
    if config.source.topics:
        found = found.where(F.col("topic").rlike(config.source.topics))
    client = config.source.client
    topics = client.run(Admin(client.cluster).list_topics())
    work = zk_migrate_steps.Planning(
        partitions={topic.name: len(topic.partitions) for topic in topics},
        topics=config.source.topics,
        allows_active=config.allow_active,
    )
    return for_each_group(found, _client_config(config), work, SCHEMA, config.connections)


def _client_config(config: ZkMigrateConfig, client_id: str = "barnabas-spark") -> TaskClientConfig:
    return TaskClientConfig(
        address=config.source.address,
        zookeeper=config.zookeeper,
        zookeeper_security=config.source.zookeeper_security,
        client_id=client_id,
    )


def _report(config: ZkMigrateConfig, rows: DataFrame) -> Report:
    report = Report(job=f"{NAME} {config.step}")
    counts = {row.state: row["count"] for row in rows.groupBy("state").count().collect()}
    report.figures["groups"] = rows.select("group").distinct().count()
    report.figures["offsets"] = sum(counts.values())
    report.figures |= {name: counts[name] for name in sorted(counts)}
    report.findings = sum(counts.get(name, 0) for name in _BAD)
    order = [(~F.col("state").isin(*_BAD)), F.col("group"), F.col("topic"), F.col("partition")]
    shown = rows.orderBy(*order).limit(config.limit).collect()
    report.tables.append(
        Table("Offsets", SCHEMA.names, [list(row) for row in shown], sum(counts.values()))
    )
    report.notes.append(f"The plan and what came of it are in {config.plan}.")
    return report


if __name__ == "__main__":
    from barnabas.pipeline.jobs.launch import main

    sys.exit(main(NAME))
