"""The same job on a Spark cluster of three JVMs, with our package shipped to its executors."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.client.cluster import TopicPartition
from barnabas.console.development.cluster import Cluster
from barnabas.pipeline import cluster_requests
from barnabas.pipeline.blocking_client import BlockingClient

from .standalone_cluster import StandaloneCluster, bare_python, job

pytestmark = pytest.mark.nightly


@pytest.fixture
def python(tmp_path: Path) -> Path:
    return bare_python(tmp_path / "bare")


@pytest.fixture
def workers(tmp_path: Path, python: Path) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path, python) as running:
        yield running


def test_the_interpreter_of_executors_does_not_know_us(python: Path) -> None:
    asked = [str(python), "-c", "import pyspark, pyarrow, msgpack; import barnabas"]
    refused = subprocess.run(asked, capture_output=True, text=True, check=False, cwd="/")
    assert "No module named 'barnabas'" in refused.stderr


def test_a_job_runs_on_two_workers_that_were_sent_our_package(
    cluster: Cluster,
    client: BlockingClient,
    filled: Callable[..., str],
    group: str,
    tmp_path: Path,
    python: Path,
    workers: StandaloneCluster,
) -> None:
    topic = filled(30)
    committed = {TopicPartition(topic, partition): 9 for partition in range(2)}
    client.run(cluster_requests.commit(client.cluster, group, committed))
    report, page, log = tmp_path / "report.json", tmp_path / "report.html", tmp_path / "job.log"
    code = job(
        ["lag-history", "--master", workers.url, "--bootstrap", cluster.bootstrap,
         "--groups", f"^{group}$", "--window", "1s", "--report", str(report), "--html", str(page),
         "--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1",
         "--conf", "spark.executor.memory=512m",
         "--conf", "spark.sql.shuffle.partitions=2"],
        python,
        log,
    )  # fmt: skip
    assert code in (0, 1), log.read_text(errors="replace")[-3000:]
    (table,) = json.loads(report.read_text())["tables"]
    (row,) = table["rows"]
    assert dict(zip(table["columns"], row, strict=True))["lag"] == 12
    assert "<svg" in page.read_text()
    assert workers.executors == 2
