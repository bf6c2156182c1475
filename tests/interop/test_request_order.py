"""Requests of one connection see what those before them did: every pair, beside Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.broker.net.request_order import CLASSES
from tests.harness.deployments import Deployment, KafkaCluster, OwnCluster
from tests.harness.request_pairs import REQUESTS, SETTINGS, everything, golden
from tests.harness.steady_settings import STEADY


@pytest.fixture(scope="module")
def one_node() -> Iterator[Deployment]:
    running = OwnCluster(1, {**STEADY, **SETTINGS})
    yield running
    running.stop()


@pytest.fixture(scope="module")
def kafka() -> Iterator[Deployment]:
    running = KafkaCluster(1, {**SETTINGS, "zookeeper.session.timeout.ms": "18000"})
    yield running
    running.stop()


DIFFERENT = {
    # Kafka answers DeleteTopics while log and znodes are still being removed; here the name is free
    # again by then (decisions/0006), so that both say it is unknown.
    ("DeleteTopics", "ListOffsets"): [{"code": 0}, {"code": 3, "offset": -1}],
    ("DeleteTopics", "CreatePartitions"): [{"code": 0}, {"code": 3}],
}
"""Where our answers are others than Kafka's, and why."""


@pytest.mark.parametrize("first", REQUESTS)
def test_a_request_sees_what_the_one_before_it_did_as_on_kafka(
    one_node: Deployment, first: str
) -> None:
    expected = {
        second: DIFFERENT.get((first, second), answers)
        for second, answers in golden()[first].items()
    }
    assert everything(one_node.addresses[0], first) == expected


@pytest.mark.kafka
@pytest.mark.parametrize("first", REQUESTS)
def test_kafka_answers_as_the_stored_answers_say(kafka: Deployment, first: str) -> None:
    found = everything(kafka.addresses[0], first)
    depends_on_time = {second for before, second in DIFFERENT if before == first}
    for second, answers in golden()[first].items():
        assert second in depends_on_time or found[second] == answers, second


UNKNOWN_TO_KAFKA = {"ConsumerGroupHeartbeat"}
"""What Kafka 3.9 with ZooKeeper does not serve (KIP-848), so that there is nothing to compare."""


def test_every_class_of_the_table_has_a_request() -> None:
    asked = {name.split()[0] for name in REQUESTS}
    for class_ in CLASSES:
        if class_.name in UNKNOWN_TO_KAFKA:
            continue
        names = {"".join(word.capitalize() for word in key.name.split("_")) for key in class_.keys}
        assert asked & names, class_.name
