"""Apache Kafka serves what Barnabas wrote, and Barnabas what Kafka made of it: files and znodes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from barnabas.console.development.cluster import Cluster
from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from barnabas.coordinator.ports import SNAPSHOT
from benchmarks.apache_kafka import kafka_node
from tests.harness.confluent_client import Confluent
from tests.harness.deployments import SMALL_JVM
from tests.harness.needs import apache_kafka_jars
from tests.harness.records import numbered
from tests.harness.steady_settings import STEADY
from tests.harness.waiting import eventually

pytestmark = pytest.mark.kafka

RECORDS = 1_000
CLIENT = Confluent()


@contextmanager
def ours(directory: Path) -> Iterator[str]:
    """A node of ours on the directory, and its address."""
    with Cluster(1, directory, settings=STEADY) as cluster:
        yield cluster.bootstrap


@contextmanager
def apache_kafka(directory: Path, **overrides: str) -> Iterator[str]:
    """A node of Kafka in the place of ours: its id, its log directory, its ZooKeeper."""
    jars = apache_kafka_jars()
    settings = {"log.dirs": str(directory / "node-1" / "data")}
    settings |= {key.replace("_", "."): value for key, value in overrides.items()}
    with (
        EmbeddedZooKeeper(directory / "zookeeper") as zookeeper,
        kafka_node(
            jars, directory / "kafka", zookeeper.hosts, settings=settings, jvm_flags=SMALL_JVM
        ) as node,
    ):
        has_logs = any(Path(settings["log.dirs"]).glob("*-0"))
        eventually(lambda: leads(node.bootstrap, has_logs), within_s=240, what="Kafka leads")
        yield node.bootstrap


def leads(bootstrap: str, has_logs: bool) -> bool:
    """A client that comes before every leader is known may wait a minute with its question."""
    try:
        found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=10)
    except KafkaException:  # it listens, and does not answer yet
        return False
    partitions = [one for topic in found.topics.values() for one in topic.partitions.values()]
    return bool(partitions or not has_logs) and all(one.leader >= 0 for one in partitions)


def read_and_commit(bootstrap: str, group: str, topic: str, count: int) -> list[bytes]:
    """What a lone member is given after what its group has committed."""
    member = CLIENT.join(bootstrap, group, topic)
    values: list[bytes] = []

    def has_all() -> bool:
        values.extend(record.value or b"" for record in member.poll())
        return len(values) >= count

    eventually(has_all, what="every record")
    member.commit()
    member.close()
    return values


def committed(bootstrap: str, group: str) -> dict[int, int]:
    """What the group has committed, asked for until its coordinator has loaded it."""

    def loaded() -> dict[int, int] | None:
        try:
            return CLIENT.committed(bootstrap, group)
        except KafkaException as error:
            if error.args[0].code() in (14, 15, 16):
                return None
            raise

    return eventually(loaded, what="loaded offsets") or {}


def test_records_and_commits_pass_to_apache_kafka_and_back(
    tmp_path: Path, topic: str, group: str
) -> None:
    sent = [numbered(start, RECORDS) for start in (0, RECORDS, 2 * RECORDS)]
    values = [[record.value for record in records] for records in sent]
    with ours(tmp_path) as bootstrap:
        CLIENT.create_topic(bootstrap, topic, 1)
        CLIENT.produce(bootstrap, topic, sent[0], "zstd")
        assert read_and_commit(bootstrap, group, topic, RECORDS) == values[0]
    snapshots = [path / SNAPSHOT for path in tmp_path.glob("node-1/data/__consumer_offsets-*")]
    assert snapshots
    for path in snapshots:
        path.write_bytes(b"of another time")
    with apache_kafka(tmp_path) as bootstrap:
        assert committed(bootstrap, group) == {0: RECORDS}
        CLIENT.produce(bootstrap, topic, sent[1], "lz4")
        assert read_and_commit(bootstrap, group, topic, RECORDS) == values[1]
    assert all(path.exists() for path in snapshots), "Kafka leaves alone what it does not know"
    with ours(tmp_path) as bootstrap:
        assert committed(bootstrap, group) == {0: 2 * RECORDS}
        CLIENT.produce(bootstrap, topic, sent[2])
        assert read_and_commit(bootstrap, group, topic, RECORDS) == values[2]
        stored = CLIENT.read(bootstrap, topic, {0: "beginning"})
        assert [record.value for record in stored] == [value for part in values for value in part]
