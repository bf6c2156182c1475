"""Consumers of committed records, on logs whose transactions Apache Kafka coordinated."""

from __future__ import annotations

import base64
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.console.development.cluster import Cluster
from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from tests.harness.committed_readers import READERS, Reader, Row
from tests.harness.deployments import is_apache_kafka
from tests.harness.steady_settings import STEADY
from tests.harness.znodes import session
from tests.records.vectors import GOLDEN

pytestmark = pytest.mark.skipif(is_apache_kafka(), reason="takes a directory over from Kafka")

FACTS: dict[str, Any] = json.loads((GOLDEN / "kafka-data.json").read_text())
PARTITIONS = (0, 1)


def restore(directory: Path) -> None:
    """The golden data directory as that of our node 1, and the znodes that belonged to it."""
    node = directory / "node-1"
    with tarfile.open(GOLDEN / "kafka-data.tar.gz") as archive:
        archive.extractall(node, filter="data")
    with (
        EmbeddedZooKeeper(directory / "zookeeper") as zookeeper,
        session(zookeeper.hosts) as client,
    ):
        for path, (text, is_ephemeral) in FACTS["zookeeper"].items():
            if not is_ephemeral and path != "/":
                client.ensure_path(path)
                client.set(path, (text or "").encode())


@pytest.fixture(scope="module")
def taken_over(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("taken-over")
    restore(directory)
    with Cluster(1, directory, settings=STEADY) as cluster:
        yield cluster


def rows(partition: int, key: str) -> list[Row]:
    return [
        (row[0], base64.b64decode(row[4])) for row in FACTS["topics"][f"m2-txn-{partition}"][key]
    ]


@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_committed_records_are_exactly_those_that_kafka_gave_its_clients(
    taken_over: Cluster, reader: Reader, partition: int
) -> None:
    end = FACTS["topics"][f"m2-txn-{partition}"]["high_watermark"]
    for isolation, key in (
        ("read_committed", "records_read_committed"),
        ("read_uncommitted", "records"),
    ):
        found = reader(taken_over.bootstrap, "m2-txn", partition, isolation, end)
        assert found == rows(partition, key)
