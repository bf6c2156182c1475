"""Admin clients of others move the start of a log, and consumers are reset to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kafka.structs import TopicPartition as PythonTopicPartition

from tests.harness.client_libraries import ClientLibrary
from tests.harness.deployments import Deployment, create_topic
from tests.harness.fixtures import LIBRARIES
from tests.harness.kafka_tools import Tool
from tests.harness.records import numbered

DELETE = "org.apache.kafka.tools.DeleteRecordsCommand"


@pytest.fixture
def filled(cluster: Deployment, topic: str) -> str:
    """A topic of one partition with ten records."""
    create_topic(cluster, LIBRARIES[0], topic, 1)
    LIBRARIES[0].produce(cluster.bootstrap, topic, numbered(0, 10))
    return topic


def remaining(cluster: Deployment, topic: str, reader: ClientLibrary) -> list[int]:
    return [one.offset for one in reader.read(cluster.bootstrap, topic, {0: "beginning"})]


def test_confluent_kafka_deletes_records(
    cluster: Deployment, filled: str, library: ClientLibrary
) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    [future] = admin.delete_records([TopicPartition(filled, 0, 4)]).values()
    assert future.result(90).low_watermark == 4
    assert remaining(cluster, filled, library) == list(range(4, 10))


def test_kafka_python_deletes_records(
    cluster: Deployment, filled: str, library: ClientLibrary
) -> None:
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    admin.delete_records({PythonTopicPartition(filled, 0): 6})
    admin.close()
    assert remaining(cluster, filled, library) == list(range(6, 10))


@pytest.mark.kafka
def test_the_script_of_kafka_deletes_records(
    cluster: Deployment, filled: str, library: ClientLibrary, tool: Tool, tmp_path: Path
) -> None:
    wanted = {"partitions": [{"topic": filled, "partition": 0, "offset": 7}], "version": 1}
    offsets = tmp_path / "offsets.json"
    offsets.write_text(json.dumps(wanted))
    at = ("--bootstrap-server", cluster.bootstrap)
    assert "low_watermark: 7" in tool(DELETE, *at, "--offset-json-file", str(offsets))
    assert remaining(cluster, filled, library) == [7, 8, 9]
