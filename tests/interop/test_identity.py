"""One id, one node.

Source: docs/spec/cluster.md §1.2.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.apache_kafka import kafka_node
from benchmarks.barnabas_node import barnabas_node
from tests.harness.deployments import SMALL_JVM, Deployment, is_apache_kafka
from tests.harness.needs import apache_kafka_jars
from tests.harness.raw_calls import live_brokers
from tests.harness.raw_connection import RawConnection
from tests.harness.znodes import data

EXIT_S = 240.0


def test_a_second_node_with_the_same_id_refuses_to_start(
    cluster: Deployment, tmp_path: Path
) -> None:
    registration = data(cluster.zookeeper, "/brokers/ids/1")
    settings = {"zookeeper.session.timeout.ms": "3000"}
    if is_apache_kafka():
        jars = apache_kafka_jars()
        second = kafka_node(
            jars, tmp_path, cluster.zookeeper, settings=settings, jvm_flags=SMALL_JVM
        )
    else:
        second = barnabas_node(tmp_path, cluster.zookeeper, settings=settings)
    second.launch()
    code = second.wait_or_kill(EXIT_S)
    assert code > 0, second.last_words()
    if not is_apache_kafka():
        words = second.last_words().lower()
        assert "another" in words, words
        assert "session" in words, words
    assert data(cluster.zookeeper, "/brokers/ids/1") == registration
    with RawConnection(cluster.addresses[0]) as link:
        assert live_brokers(link)[0] == {1, 2, 3}
