"""profile tells busy groups and lopsided topics; reconcile tells mirrors apart."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from barnabas.pipeline.jobs.commit_profile import evenness, rates
from barnabas.pipeline.jobs.reconcile import compared

from .histories import COMMITS, START_MS

RECORDS = "partition int, offset bigint, timestamp timestamp, key binary, value binary"
Row = tuple[int, int, str, str]


def test_groups_that_commit_too_often_and_topics_that_lean_are_told(spark: SparkSession) -> None:
    every_100_ms = [
        ("busy", "even", number % 2, number, START_MS + 100 * number, number, "m")
        for number in range(100)
    ]
    rare = [
        ("calm", "lopsided", partition, offset, START_MS + 60_000 * turn, turn, "")
        for partition, most in ((0, 9_000), (1, 10), (2, 0))
        for turn, offset in enumerate((0, most // 2, most))
    ]
    commits = spark.createDataFrame([*every_100_ms, *rare], COMMITS)
    groups = {row["group"]: row for row in rates(commits).collect()}
    assert groups["busy"].commits == groups["busy"].metadata_bytes == 100
    assert round(groups["busy"].every_ms) == 198
    assert "auto.commit.interval.ms" in groups["busy"].advice
    assert groups["calm"].advice is None
    topics = {row.topic: row for row in evenness(commits).collect()}
    assert topics["even"].gini == 0
    assert topics["lopsided"].gini > 0.6
    assert "keys" in topics["lopsided"].advice


def records(spark: SparkSession, rows: list[Row]) -> DataFrame:
    frame = spark.createDataFrame(rows, "partition int, offset bigint, key string, value string")
    return frame.selectExpr(
        "partition", "offset", "timestamp_millis(1700000000000) timestamp",
        "encode(key, 'UTF-8') key", "encode(value, 'UTF-8') value",
    )  # fmt: skip


def told(frame: DataFrame) -> dict[str, list[tuple[int | None, int | None]]]:
    found: dict[str, list[tuple[int | None, int | None]]] = {}
    for row in frame.orderBy("left_offset", "right_offset").collect():
        found.setdefault(row.status, []).append((row.left_offset, row.right_offset))
    return found


def test_a_mirror_may_give_other_offsets_but_lose_and_double_nothing(spark: SparkSession) -> None:
    left = records(spark, [(0, 5, "a", "1"), (0, 6, "a", "1"), (0, 8, "b", "2"), (0, 9, "c", "3")])
    right = records(spark, [(0, 0, "a", "1"), (0, 1, "b", "2"), (0, 2, "b", "2"), (0, 3, "c", "3")])
    assert told(compared(left, right)) == {
        "equal": [(5, 0), (8, 1), (9, 3)],
        "missing": [(6, None)],
        "extra": [(None, 2)],
    }
    other = records(spark, [(0, 5, "a", "1"), (0, 6, "a", "9"), (0, 8, "b", "2")])
    assert told(compared(left, other, by_offset=True)) == {
        "equal": [(5, 5), (8, 8)],
        "different": [(6, 6)],
        "missing": [(9, None)],
    }
