"""offset-audit: each rule finds what it is for, and a good group has no findings."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pyspark.sql import DataFrame, SparkSession

from barnabas.client.cluster import TopicPartition
from barnabas.pipeline.jobs.history import audit_rules
from barnabas.pipeline.jobs.history.audit_rules import CHANGES, RULES, AuditLimits
from barnabas.pipeline.jobs.history.offsets_for_times import logs_of

from .histories import COMMITS, RECORDS, START_MS, TOPIC

START, END = 100, 5_100
SECOND = 1_000
GOOD = [START + 10 * number for number in range(40)]
HISTORIES: dict[str, Sequence[int | None]] = {
    "good": GOOD,
    "rewound": [*GOOD[:30], 150, 160, 170],
    "replayed": [*GOOD[:20], 250, 260, 270, *GOOD[20:]],
    "jumped": [*GOOD[:20], 4_500, 4_510],
    "ahead": [*GOOD[:5], 6_000],
    "deleted": [START + 5, START - 20],
    "stalled": [*GOOD[:5], *[140] * 12],
    "two": [200, 150, 210, 160, 220, 170, 230, 180, 240],
    "forgotten": [*GOOD[:10], None, 105],
    "expired": [*GOOD[:10], None, 195],
}
"""A commit every second; None forgets the offset."""


@pytest.fixture(scope="module")
def steps(spark: SparkSession) -> DataFrame:
    commits = [
        (name, TOPIC, 0, offset, START_MS + number * SECOND, 1000 * index + number, "")
        for index, (name, offsets) in enumerate(HISTORIES.items())
        for number, offset in enumerate(offsets)
    ]
    records = [(TOPIC, 0, offset, START_MS - 100_000 + offset) for offset in range(START, END)]
    logs = logs_of(
        spark.createDataFrame(records, RECORDS), {TopicPartition(TOPIC, 0): (START, END)}
    )
    frame = spark.createDataFrame(commits, COMMITS)
    return audit_rules.steps_of(frame, logs, AuditLimits()).persist()


@pytest.fixture(scope="module")
def found(steps: DataFrame) -> DataFrame:
    return audit_rules.findings(steps, list(RULES), AuditLimits()).persist()


def test_each_rule_finds_what_it_is_for(found: DataFrame) -> None:
    by_group: dict[str, set[tuple[str, str, int, int]]] = {name: set() for name in HISTORIES}
    for row in found.collect():
        by_group[row["group"]].add((row.rule, row.severity, row.from_offset, row.to_offset))
    assert by_group["good"] == set()
    assert by_group["rewound"] == {("rewind", "high", 390, 150)}
    assert by_group["replayed"] == {("rewind", "low", 290, 250)}
    assert by_group["jumped"] == {("jump", "medium", 290, 4_500)}
    assert by_group["ahead"] >= {("beyond-end", "high", 140, 6_000)}
    assert by_group["deleted"] == {
        ("rewind", "high", 105, 80),
        ("below-start", "high", 105, 80),
    }
    assert by_group["stalled"] == {("stall", "medium", 140, 140)}
    assert ("two-consumers", "high", 230, 180) in by_group["two"]
    assert by_group["forgotten"] == {("forgotten", "high", 190, 105)}
    assert by_group["expired"] == {("forgotten", "low", 190, 195)}


def test_what_an_administrator_did_on_purpose_counts_for_little(
    spark: SparkSession, found: DataFrame
) -> None:
    at = START_MS + 30 * SECOND
    change = (1, at, "commit", "c1", "User:ann", "/10.0.0.1", "barnabas-admin:c1:again", "rewound",
              TOPIC, 0, 390, 150, "again")  # fmt: skip
    changes = spark.createDataFrame([change], CHANGES)
    rows = audit_rules.explained(found, changes).collect()
    assert len(rows) == found.count()
    (rewind,) = [row for row in rows if row["group"] == "rewound"]
    assert (rewind.severity, rewind.member) == ("low", "User:ann")
    assert rewind.evidence == "not reached again; by hand: again"
    assert [row.evidence for row in audit_rules.by_hand(changes).collect()] == [
        "commit, again, /10.0.0.1"
    ]


def test_the_group_with_the_gravest_findings_has_the_largest_score(found: DataFrame) -> None:
    scores = {row["group"]: row.score for row in audit_rules.scores(found).collect()}
    assert scores["deleted"] == 20
    assert scores["stalled"] == 3
    assert scores["replayed"] == 1
    assert "good" not in scores
