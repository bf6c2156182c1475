"""Compacted topics: ours under clients, then the same files under Apache Kafka and back."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from barnabas.console.development.cluster import Cluster
from tests.harness.confluent_client import Confluent
from tests.harness.records import Received, Sent
from tests.harness.steady_settings import STEADY
from tests.harness.waiting import eventually
from tests.interop.test_log_handover import apache_kafka, committed, read_and_commit

SETTINGS = {
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "offsets.topic.segment.bytes": "5000",
}
OURS = {**STEADY, **SETTINGS}
TOPIC = {"cleanup.policy": "compact", "segment.bytes": "20000", "min.cleanable.dirty.ratio": "0.01"}
KEYS = 20
CLIENT = Confluent()


def create(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(topic, 1, replication_factor=1, config=TOPIC)])
    made[topic].result(90)


def produce(bootstrap: str, topic: str, turn: int, codec: str) -> None:
    """Many small batches; key 0 ends as a tombstone."""
    for part in range(10):
        records = [
            Sent(Random(turn * 1000 + part * 100 + number).randbytes(200), b"k%d" % number)
            for number in range(KEYS)
        ]
        records[0] = Sent(None, records[0].key)
        CLIENT.produce(bootstrap, topic, records, codec)


def read(bootstrap: str, topic: str) -> list[Received]:
    return CLIENT.read(bootstrap, topic, {0: "beginning"})


def newest(records: list[Received]) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for record in records}


def compacted(bootstrap: str, topic: str, below: int) -> list[Received]:
    found: list[Received] = []

    def is_short() -> bool:
        found[:] = read(bootstrap, topic)
        return len(found) < below

    eventually(is_short, what="a compacted topic")
    offsets = [record.offset for record in found]
    assert offsets == sorted(set(offsets))
    return found


def test_a_client_finds_the_newest_value_of_every_key_in_a_compacted_topic(
    tmp_path: Path, topic: str
) -> None:
    with Cluster(1, tmp_path, settings=OURS) as cluster:
        create(cluster.bootstrap, topic)
        produce(cluster.bootstrap, topic, 0, "none")
        expected = newest(read(cluster.bootstrap, topic))
        assert newest(compacted(cluster.bootstrap, topic, 150)) == expected
    with Cluster(1, tmp_path, settings=OURS) as cluster:
        assert newest(read(cluster.bootstrap, topic)) == expected


@pytest.mark.kafka
def test_a_compacted_topic_and_compacted_offsets_pass_to_apache_kafka_and_back(
    tmp_path: Path, topic: str, group: str
) -> None:
    with Cluster(1, tmp_path, settings=OURS) as cluster:
        create(cluster.bootstrap, topic)
        produce(cluster.bootstrap, topic, 0, "zstd")
        found = read(cluster.bootstrap, topic)
        compacted(cluster.bootstrap, topic, 150)
        read_and_commit(cluster.bootstrap, group, topic, 1)
        offsets = committed(cluster.bootstrap, group)
    overrides = {key.replace(".", "_"): value for key, value in SETTINGS.items()}
    with apache_kafka(tmp_path, **overrides) as bootstrap:
        assert newest(read(bootstrap, topic)) == newest(found)
        assert committed(bootstrap, group) == offsets
        produce(bootstrap, topic, 1, "lz4")
        theirs = compacted(bootstrap, topic, 150)
    with Cluster(1, tmp_path, settings=OURS) as cluster:
        assert newest(read(cluster.bootstrap, topic)) == newest(theirs)
        assert committed(cluster.bootstrap, group) == offsets
        produce(cluster.bootstrap, topic, 2, "gzip")
        expected = newest(read(cluster.bootstrap, topic))
        assert newest(compacted(cluster.bootstrap, topic, 150)) == expected
