"""Archives: what is in them, what their manifests say, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from barnabas.client.cluster import TopicPartition
from barnabas.console.development.cluster import Cluster
from barnabas.pipeline import cluster_requests
from barnabas.pipeline.blocking_client import BlockingClient
from barnabas.pipeline.frames import (
    read_archive,
    read_topic,
    stream_to_archive,
    stream_topic,
)
from barnabas.pipeline.sink.archive_check import ArchiveReport, check_archive, repair_archive
from barnabas.pipeline.sink.archive_files import ArchiveFiles
from barnabas.pipeline.sink.archive_task import write_files
from barnabas.pipeline.sink.coverage import RUNS_MAX, Coverage, described, merged
from tests.harness.records import Sent
from tests.pipeline.conftest import Fill
from tests.pipeline.slow_machine import available_now

DAY_MS = 86_400_000


class Archive:
    """One archive of one topic, run again and again."""

    def __init__(self, spark: SparkSession, cluster: Cluster, topic: str, directory: Path) -> None:
        self._spark = spark
        self._bootstrap = cluster.bootstrap
        self._topic = topic
        self.group = f"{topic}-archive"
        self.path = str(directory / "archive")
        self.checkpoint = str(directory / "checkpoint")

    def run(self, **options: Any) -> None:
        frame = stream_topic(
            self._spark,
            self._topic,
            self._bootstrap,
            checkpoint=self.checkpoint,
            start="earliest",
            options=options,
        )
        writer = stream_to_archive(
            frame,
            self.path,
            checkpoint=self.checkpoint,
            bootstrap=self._bootstrap,
            group=self.group,
        )
        available_now(writer)

    def has_everything_once(self) -> bool:
        archived = read_archive(self._spark, self.path)
        there = read_topic(self._spark, self._topic, self._bootstrap)
        return archived.exceptAll(there).isEmpty() and there.exceptAll(archived).isEmpty()

    def check(self, *, with_digests: bool = False) -> ArchiveReport:
        return check_archive(
            self.path,
            self.checkpoint,
            bootstrap=self._bootstrap,
            group=self.group,
            with_digests=with_digests,
        )

    def repair(self) -> ArchiveReport:
        return repair_archive(
            self.path, self.checkpoint, bootstrap=self._bootstrap, group=self.group
        )


def test_an_archive_has_every_record_once_and_its_group_is_told(
    spark: SparkSession, cluster: Cluster, filled: Fill, client: BlockingClient, tmp_path: Path
) -> None:
    archive = Archive(spark, cluster, filled(50), tmp_path)
    archive.run(maxOffsetsPerTrigger=20)
    name = filled(10)
    archive.run()

    assert archive.has_everything_once()
    assert ArchiveFiles(archive.path).batches() == [0, 1, 2, 3]
    committed = client.run(cluster_requests.committed(client.cluster, archive.group))
    assert committed == {TopicPartition(name, 0): 30, TopicPartition(name, 1): 30}
    report = archive.check(with_digests=True)
    assert (report.problems, report.lagging, list(report.strays)) == ([], False, [])


def test_a_manifest_tells_files_ranges_and_where_the_source_ended(
    spark: SparkSession, cluster: Cluster, filled: Fill, tmp_path: Path
) -> None:
    stamps = [1_700_000_000_000, 1_700_000_000_000 + DAY_MS]
    name = filled([Sent(b"v", partition=0, timestamp_ms=stamp) for stamp in stamps], count=1)
    archive = Archive(spark, cluster, name, tmp_path)

    archive.run()

    manifest = ArchiveFiles(archive.path).manifest(0)
    assert manifest is not None
    assert manifest["rows"] == 2
    assert manifest["source_ends"] == {name: {"0": 2}}
    assert manifest["partitions"] == {
        name: {"0": {"first": 0, "end": 2, "rows": 2, "missing": 0, "gaps": []}}
    }
    days = [file["name"].split("/")[1] for file in manifest["files"]]
    assert sorted(days) == ["2023-11-14", "2023-11-15"]


def test_the_archive_of_another_query_is_refused(
    spark: SparkSession, cluster: Cluster, filled: Fill, tmp_path: Path
) -> None:
    archive = Archive(spark, cluster, filled(4), tmp_path)
    archive.run()
    archive.checkpoint = str(tmp_path / "another")

    with pytest.raises(PySparkException, match="checkpoint was deleted"):
        archive.run()
    assert any("belongs to query" in problem for problem in archive.check().problems)


def test_a_frame_without_offsets_cannot_be_archived(
    spark: SparkSession, cluster: Cluster, filled: Fill, tmp_path: Path
) -> None:
    archive = Archive(spark, cluster, filled(4), tmp_path)

    with pytest.raises(PySparkException, match="needs the column topic"):
        archive.run(columns="value")


def test_a_group_that_fell_behind_and_files_left_over_are_repaired(
    spark: SparkSession, cluster: Cluster, filled: Fill, client: BlockingClient, tmp_path: Path
) -> None:
    name = filled(20)
    archive = Archive(spark, cluster, name, tmp_path)
    archive.run()
    behind = {TopicPartition(name, 0): 4, TopicPartition(name, 1): 10}
    client.run(cluster_requests.commit(client.cluster, archive.group, behind))
    stray = ArchiveFiles(archive.path).temporary / "left.parquet"
    stray.write_bytes(b"half a file")

    found = archive.repair()

    assert (found.lagging, list(found.strays)) == (True, [stray])
    after = archive.check()
    assert (after.problems, after.lagging, list(after.strays)) == ([], False, [])


def test_a_group_ahead_of_the_archive_and_a_changed_file_are_problems(
    spark: SparkSession, cluster: Cluster, filled: Fill, client: BlockingClient, tmp_path: Path
) -> None:
    name = filled(20, count=1)
    archive = Archive(spark, cluster, name, tmp_path)
    archive.run()
    client.run(
        cluster_requests.commit(client.cluster, archive.group, {TopicPartition(name, 0): 25})
    )
    (file,) = ArchiveFiles(archive.path).files()
    data = bytearray(Path(file).read_bytes())
    data[10] ^= 1
    Path(file).write_bytes(data)

    problems = archive.check(with_digests=True).problems

    assert any("the group is at 25" in problem for problem in problems)
    assert any("is not what was written" in problem for problem in problems)
    json.dumps(archive.check().as_json())


def test_gaps_are_told_as_ranges() -> None:
    covered = Coverage()
    covered.add([4, 5, 6])
    covered.add([7, 9, 10])
    covered.add([20])

    assert covered.runs == [(4, 8), (9, 11), (20, 21)]
    assert described(covered.rows, merged([covered.runs])) == {
        "first": 4,
        "end": 21,
        "rows": 7,
        "missing": 10,
        "gaps": [[8, 9], [11, 20]],
    }


def test_runs_of_several_files_become_one_account() -> None:
    assert merged([[(10, 20), (30, 31)], [(0, 10)], [(20, 25)]]) == [(0, 25), (30, 31)]


def test_more_gaps_than_anybody_reads_are_counted_only() -> None:
    covered = Coverage()
    covered.add(list(range(0, 4 * RUNS_MAX, 2)))

    assert len(covered.runs) == RUNS_MAX
    assert (covered.first, covered.end) == (0, 4 * RUNS_MAX - 1)
    assert described(covered.rows, covered.runs)["missing"] == 2 * RUNS_MAX - 1


def test_one_task_keeps_a_bounded_number_of_files_open(tmp_path: Path) -> None:
    days = 40
    stamps = pa.array([day * DAY_MS * 1000 for day in range(days)], pa.timestamp("us", tz="UTC"))
    batch = pa.record_batch(
        {
            "topic": pa.array(["t"] * days),
            "partition": pa.array([0] * days, pa.int32()),
            "offset": pa.array(range(days), pa.int64()),
            "timestamp": stamps,
        }
    )

    notes = write_files(iter([batch]), tmp_path)

    assert len({note.date for note in notes}) == days
    assert sum(note.rows for note in notes) == days
    assert all(Path(note.temporary).stat().st_size == note.size for note in notes)
