"""reset: a plan moves groups at rest, leaves others alone, and undoes itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from barnabas.client.cluster import TopicPartition
from barnabas.console.development.cluster import Cluster
from barnabas.pipeline import cluster_requests
from barnabas.pipeline.blocking_client import BlockingClient
from barnabas.pipeline.jobs import bulk_reset
from barnabas.pipeline.jobs.bulk_reset import EARLIEST, BulkResetConfig
from barnabas.pipeline.jobs.inputs import JobSource, UsageProblem
from barnabas.pipeline.jobs.reports.report import Report

Fill = Callable[..., str]
Step = Callable[..., Report]
GROUPS = 6


@pytest.fixture
def committed(
    client: BlockingClient, filled: Fill, group: str
) -> dict[str, dict[TopicPartition, int]]:
    """Groups at rest, at offsets of their own, by name."""
    topic = filled(40)
    offsets = {
        f"{group}-{number}": {TopicPartition(topic, index): 10 + number for index in range(2)}
        for number in range(GROUPS)
    }
    for name, its in offsets.items():
        client.run(cluster_requests.commit(client.cluster, name, its, "kept"))
    return offsets


@pytest.fixture
def step(spark: SparkSession, cluster: Cluster, group: str, tmp_path: Path) -> Step:
    source = JobSource(bootstrap=cluster.bootstrap, groups=f"^{group}-")
    plan = str(tmp_path / "plan")

    def run(name: str, **options: object) -> Report:
        config = BulkResetConfig(step=name, plan=plan, source=source, tasks=2, **options)  # type: ignore[arg-type]
        return bulk_reset.run(spark, config)

    return run


def test_a_reset_moves_groups_and_its_undo_puts_all_back(
    client: BlockingClient, step: Step, committed: dict[str, dict[TopicPartition, int]]
) -> None:
    def now(name: str) -> dict[TopicPartition, int]:
        return client.run(cluster_requests.committed(client.cluster, name))

    planned = step("plan", to_ms=EARLIEST, reason="bad deploy")
    assert planned.figures == {"groups": GROUPS, "planned": 2 * GROUPS}
    assert all(now(name) == offsets for name, offsets in committed.items()), "only planned"
    moved_on = next(iter(committed))
    elsewhere = dict.fromkeys(committed[moved_on], 33)
    client.run(cluster_requests.commit(client.cluster, moved_on, elsewhere))
    applied = step("apply")
    assert applied.figures == {"groups": GROUPS, "done": 2 * GROUPS - 2, "moved": 2}
    assert applied.exit_code == 1
    assert now(moved_on) == elsewhere, "it went on since the plan was made"
    rest = {name: its for name, its in committed.items() if name != moved_on}
    assert all(now(name) == dict.fromkeys(its, 0) for name, its in rest.items())
    again = step("apply")
    assert again.figures == {"groups": GROUPS, "already": 2 * GROUPS - 2, "moved": 2}
    undone = step("undo")
    assert undone.figures == {"groups": GROUPS, "moved": 2, "undone": 2 * GROUPS - 2}
    assert all(now(name) == its for name, its in rest.items())


def test_a_plan_stays_within_the_log_and_says_where_it_could_not_go(
    step: Step, committed: dict[str, dict[TopicPartition, int]]
) -> None:
    report = step("plan", shift=-12)
    (table,) = report.tables
    new, clamped = table.columns.index("new"), table.columns.index("clamped")
    assert {(row[new], row[clamped]) for row in table.rows} == {
        (0, "asked for -2"), (0, "asked for -1"), (0, None), (1, None), (2, None), (3, None)
    }  # fmt: skip
    with pytest.raises(UsageProblem, match="holds a plan already"):
        step("plan", shift=1)
