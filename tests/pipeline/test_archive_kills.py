"""A driver killed in the middle of archiving: whatever it was doing, no row is lost or doubled.

Source: pipeline.md sections 10 and 13; issue 8.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from barnabas.client.cluster import TopicPartition
from barnabas.console.development_cluster import Cluster
from barnabas.pipeline import cluster_calls
from barnabas.pipeline.link import Link
from barnabas.pipeline.sink.archive_files import ArchiveFiles
from tests.pipeline.conftest import Fill
from tests.pipeline.doomed_driver import POINTS, RECORDS_PER_BATCH
from tests.pipeline.patience import ATTEMPTS, LATE
from tests.pipeline.test_archive import Archive

DRIVER = Path(__file__).with_name("doomed_driver.py")
ROOT = Path(__file__).parents[2]
BATCHES = 3

MANIFESTS = {"before write": 1, "after write": 1, "after manifest": 2, "after group commit": 2}
COMMITTED = {"before write": 1, "after write": 1, "after manifest": 1, "after group commit": 2}
"""How many batches had a manifest, and were known to the group, when the driver died."""


def points() -> Sequence[object]:
    nightly = pytest.mark.nightly
    marks = {point: () if point == "after manifest" else (nightly,) for point in POINTS}
    return [pytest.param(point, marks=marks[point], id=point) for point in POINTS]


@pytest.mark.parametrize("point", points())
def test_a_driver_killed_at_any_point_loses_and_doubles_nothing(
    spark: SparkSession,
    cluster: Cluster,
    filled: Fill,
    link: Link,
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
    committed = link.run(cluster_calls.committed(link.cluster, archive.group))
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
