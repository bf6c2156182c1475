"""A driver killed in the middle of archiving: whatever it was doing, no row is lost or doubled.

Source: docs/spec/pipeline.md §2 and §5.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from barnabas.client.cluster import TopicPartition
from barnabas.console.development.cluster import Cluster
from barnabas.pipeline import cluster_requests
from barnabas.pipeline.blocking_client import BlockingClient
from barnabas.pipeline.sink.archive_files import ArchiveFiles, Manifest
from barnabas.pipeline.sink.archive_writer import ArchiveOptions, ArchiveWriter
from barnabas.pipeline.source.address import ClusterAddress
from barnabas.pipeline.source.layout import RECORDS
from barnabas.pipeline.source.options import topic_options
from barnabas.pipeline.source.rows import RecordRows
from barnabas.pipeline.source.topic_batch import TopicReader
from tests.pipeline.conftest import Fill
from tests.pipeline.sink.doomed_driver import POINTS, RECORDS_PER_BATCH
from tests.pipeline.sink.test_archive import Archive
from tests.pipeline.slow_machine import ATTEMPTS, LATE

DRIVER = Path(__file__).with_name("doomed_driver.py")
ROOT = Path(__file__).parents[3]
BATCHES = 3

MANIFESTS = {"before write": 1, "after write": 1, "after manifest": 2, "after group commit": 2}
COMMITTED = {"before write": 1, "after write": 1, "after manifest": 1, "after group commit": 2}
"""How many batches had a manifest, and were known to the group, when the driver died."""


class Dead(Exception):  # noqa: N818 - says what happened
    """Stands for the end of the process."""


class DyingWriter(ArchiveWriter):
    """Dies between the manifest and the group's commit."""

    def commit_group(self, manifest: Manifest) -> None:
        raise Dead


@pytest.mark.parametrize("point", POINTS)
def test_a_batch_that_runs_again_after_a_death_at_any_point_is_archived_once(
    cluster: Cluster, filled: Fill, client: BlockingClient, tmp_path: Path, point: str
) -> None:
    """The same without Spark: what it would call, and what it would have written itself."""
    name = filled(20, count=1)
    options = ArchiveOptions(
        path=str(tmp_path / "archive"),
        checkpoint=str(tmp_path / "checkpoint"),
        group=f"{name}-archive",
        address=ClusterAddress(cluster.bootstrap),
    )
    plan_batch(tmp_path / "checkpoint", f'{{"{name}":{{"0":20}}}}')
    told = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": name}
    reader = TopicReader(topic_options(told, is_stream=False), RecordRows(RECORDS))
    (task,) = reader.partitions()

    writer = DyingWriter(options) if point == "after manifest" else ArchiveWriter(options)
    if point != "before write":
        notes = writer.write(reader.read(task))
        if point == "after manifest":
            with pytest.raises(Dead):
                writer.commit([notes], 0)
        elif point == "after group commit":
            writer.commit([notes], 0)
    again = ArchiveWriter(options)
    again.commit([again.write(reader.read(task))], 0)

    archived = [offset for file in ArchiveFiles(options.path).files() for offset in offsets(file)]
    assert archived == list(range(20))
    committed = client.run(cluster_requests.committed(client.cluster, f"{name}-archive"))
    assert committed == {TopicPartition(name, 0): 20}
    assert len(ArchiveFiles(options.path).strays()) == (1 if point == "after write" else 0)


def plan_batch(checkpoint: Path, end: str) -> None:
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id":"a-query"}')
    (checkpoint / "offsets" / "0").write_text(f"v1\n{{}}\n{end}")


def offsets(file: str) -> list[int]:
    found: list[int] = pq.read_table(file, columns=["offset"]).column("offset").to_pylist()
    return found


@pytest.mark.nightly
@pytest.mark.parametrize("point", POINTS)
def test_a_driver_killed_at_any_point_loses_and_doubles_nothing(
    spark: SparkSession,
    cluster: Cluster,
    filled: Fill,
    client: BlockingClient,
    tmp_path: Path,
    point: str,
) -> None:
    name = filled(BATCHES * RECORDS_PER_BATCH, count=1)
    archive = Archive(spark, cluster, name, tmp_path)
    words = [cluster.bootstrap, name, archive.path, archive.checkpoint, point]

    died = driven(words)

    assert died.returncode == -signal.SIGKILL, died.stderr[-2000:]
    files = ArchiveFiles(archive.path)
    assert len(files.batches()) == MANIFESTS[point]
    committed = client.run(cluster_requests.committed(client.cluster, archive.group))
    assert committed == {TopicPartition(name, 0): COMMITTED[point] * RECORDS_PER_BATCH}

    archive.run()

    assert archive.has_everything_once()
    report = archive.repair()
    assert (report.problems, report.lagging) == ([], False)
    assert list(archive.check(with_digests=True).strays) == []


def driven(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    for attempt in range(1, ATTEMPTS + 1):
        ended = subprocess.run(
            [sys.executable, str(DRIVER), *words],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        if LATE not in ended.stderr or attempt == ATTEMPTS:
            return ended
    raise AssertionError("there is at least one attempt")
