"""lag-history: what it says of random histories is what the coordinator would have said."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from barnabas.client.cluster import TopicPartition
from barnabas.coordinator.group_health import Verdict, evaluate_group
from barnabas.pipeline.jobs import lag_history
from barnabas.pipeline.jobs.history.lag_frames import WindowSpan, by_group, history
from barnabas.pipeline.jobs.history.offsets_for_times import logs_of
from barnabas.pipeline.jobs.inputs import JobSource, UsageProblem
from barnabas.pipeline.jobs.lag_history import LagHistoryConfig
from barnabas.pipeline.jobs.reports.html_page import html
from barnabas.pipeline.jobs.reports.report import Timeline, as_json

from .histories import (
    COMMITS,
    RECORDS,
    START_MS,
    Said,
    World,
    as_a_coordinator_says,
    random_world,
)

WINDOW_MS = 30_000


def frames(spark: SparkSession, world: World) -> tuple[DataFrame, DataFrame]:
    return (
        spark.createDataFrame(world.commits, COMMITS),
        spark.createDataFrame(world.records, RECORDS),
    )


def test_windows_say_what_the_coordinator_says_on_random_histories(spark: SparkSession) -> None:
    world = random_world(seed=5, groups=12, minutes=30)
    span = WindowSpan(since_ms=START_MS, until_ms=world.until_ms, window_ms=WINDOW_MS)
    commits, records = frames(spark, world)
    edges = {TopicPartition(topic, n): (start, end) for topic, n, start, end in world.edges}
    rows = history(commits, logs_of(records, edges), span).collect()
    found = {
        (row["group"], row.partition, row.window_start + WINDOW_MS): Said(
            row.commits, row.offset, row.end, row.lag_last, row.lag_ms, Verdict(row.verdict).name
        )
        for row in rows
    }
    assert len(found) == len(rows), "a window is told once"
    ends = range(span.first_end_ms, world.until_ms + 1, WINDOW_MS)
    expected = dict(as_a_coordinator_says(world, WINDOW_MS, ends))
    assert found == expected
    said = Counter(row.verdict for row in expected.values())
    assert min(said[v.name] for v in Verdict if v not in (Verdict.NOTFOUND, Verdict.ERR)) > 5


def test_a_group_is_as_bad_as_its_worst_partition(spark: SparkSession) -> None:
    rows: list[tuple[str, int, int, int, int | None, int]] = [
        ("g", 0, 0, 5, 10, Verdict.OK.value),
        ("g", 0, 0, 5, 10, Verdict.STALL.value),
        ("h", 0, 0, 1, None, Verdict.OK.value),
        ("h", 0, 0, 1, None, Verdict.WARN.value),
    ]
    schema = "group string, window_start bigint, commits bigint, lag_last bigint, "
    frame = spark.createDataFrame(rows, schema + "lag_ms bigint, verdict int")
    found = {row["group"]: row for row in by_group(frame).collect()}
    for name, worst in (("g", Verdict.STALL), ("h", Verdict.WARN)):
        assert found[name].verdict == evaluate_group([Verdict.OK, worst])
        assert found[name].worst == worst
    assert (found["g"].lag, found["h"].lag_ms) == (10, None)


@pytest.fixture
def written(spark: SparkSession, tmp_path: Path) -> JobSource:
    """Files with the commits and records of one world."""
    commits, records = frames(spark, random_world(seed=9, groups=3, minutes=12))
    commits.selectExpr(
        "*", "timestamp_millis(ts_ms) commit_ts", "timestamp_millis(ts_ms) source_timestamp"
    ).drop("ts_ms").write.parquet(str(tmp_path / "commits"))
    records.write.parquet(str(tmp_path / "records"))
    return JobSource(commits=str(tmp_path / "commits"), records=str(tmp_path / "records"))


@pytest.mark.nightly
def test_the_report_and_the_rows_tell_of_the_same_groups(
    spark: SparkSession, written: JobSource, tmp_path: Path
) -> None:
    out = tmp_path / "rows"
    config = LagHistoryConfig(
        source=written, since_ms=START_MS, until_ms=START_MS + 600_000, out=str(out)
    )
    report = lag_history.run(spark, config)
    rows = spark.read.parquet(str(out))
    assert report.figures["groups"] == rows.select("group").distinct().count() == 3
    assert report.figures["windows"] == 20
    assert json.dumps(as_json(report))
    timeline = report.charts[0]
    assert isinstance(timeline, Timeline)
    assert set(timeline.rows) == {"group-0", "group-1", "group-2"}
    assert all(spans[-1].end_ms == START_MS // 30_000 * 30_000 + 600_000
               for spans in timeline.rows.values())  # fmt: skip
    page = html(report)
    assert page.count("<svg") == 3
    assert "http:" not in page.replace("http://www.w3.org/2000/svg", "")


def test_a_span_with_too_many_windows_is_refused(spark: SparkSession, written: JobSource) -> None:
    config = LagHistoryConfig(source=written, since_ms=0)
    with pytest.raises(UsageProblem, match="change --window"):
        lag_history.run(spark, config)
