"""examples/spark_batch.py, run in the session of these tests: to start Spark takes seconds."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from barnabas.client import SyncConsumer
from barnabas.console.development.cluster import Cluster

EXAMPLES = Path(__file__).parents[2] / "examples"
FIRST = {"auto.offset.reset": "earliest"}


def test_the_batch_of_the_examples_counts_orders_by_guest(
    spark: SparkSession,
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert spark.version
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", cluster.bootstrap)
    monkeypatch.setattr(sys, "argv", ["produce.py", "30"])
    for name in ("produce.py", "spark_batch.py"):
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert "|kim" in capsys.readouterr().out
    with SyncConsumer(cluster.bootstrap, "orders-by-guest", config=FIRST) as consumer:
        batch = consumer.next_batch(timeout_s=60)
        assert batch is not None
        found = {record.key: json.loads(record.value)["orders"] for record in batch}
    assert found == {b"kim": 10, b"max": 10, b"ada": 10}
