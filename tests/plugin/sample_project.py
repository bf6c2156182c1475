"""The project of another team: folders with our folders' names, and tests that need a Kafka.

Its files are written out where a test wants them; nothing in them knows of this repository.
Its member of kafka-python is as patient as ours: tests/harness/kafka_python_client.py, FRESH.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

_SETTINGS: Final = """\
[pytest]
addopts = --strict-markers --strict-config -p no:cacheprovider
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
filterwarnings =
    error
    ignore:(open|read)_text is deprecated:DeprecationWarning
barnabas_settings =
    log.retention.hours = 24
    num.partitions=2
"""

_SENDING: Final = """\
from kafka import KafkaProducer

def sell(bootstrap, topic, orders):
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    try:
        for order in orders:
            producer.send(topic, order).get(120)
    finally:
        producer.close()
"""

_CONFTEST: Final = """\
import pytest

def pytest_addoption(parser):
    parser.addoption("--kafka-bootstrap")
    parser.addoption("--brokers")

@pytest.fixture
def kafka_group():
    return "a-name-of-ours"
"""

_TESTS: Final = """\
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer
from kafka import KafkaConsumer

import broker
import client.orders
from barnabas.testing import Cluster


def test_our_folders_are_ours():
    assert client.orders.sell.__module__ == "client.orders"
    assert broker.COMMISSION == 3


def test_kafka_python(kafka_bootstrap, kafka_topic):
    client.orders.sell(kafka_bootstrap, kafka_topic, [b"tea", b"milk"])
    consumer = KafkaConsumer(
        kafka_topic,
        bootstrap_servers=kafka_bootstrap,
        group_id="warehouse",
        auto_offset_reset="earliest",
        metadata_max_age_ms=5_000,
    )
    try:
        assert [next(consumer).value, next(consumer).value] == [b"tea", b"milk"]
    finally:
        consumer.close()


@pytest.mark.kafka_topic(partitions=3)
async def test_aiokafka(kafka_bootstrap, kafka_topic, kafka_group):
    assert kafka_group == "a-name-of-ours"
    async with AIOKafkaProducer(bootstrap_servers=kafka_bootstrap) as producer:
        await producer.send_and_wait(kafka_topic, b"tea", partition=2)
    consumer = AIOKafkaConsumer(
        kafka_topic,
        bootstrap_servers=kafka_bootstrap,
        group_id=kafka_group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    async with consumer:
        record = await consumer.getone()
        assert (record.value, record.partition) == (b"tea", 2)
        await consumer.commit()


def test_confluent_kafka(kafka_bootstrap, kafka_topic):
    client.orders.sell(kafka_bootstrap, kafka_topic, [b"tea"])
    consumer = Consumer(
        {
            "bootstrap.servers": kafka_bootstrap,
            "group.id": kafka_topic,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([kafka_topic])
    try:
        (record,) = consumer.consume(1, timeout=120)
        assert record.value() == b"tea"
    finally:
        consumer.close()


def test_a_lost_broker(kafka_cluster: Cluster, kafka_topic):
    client.orders.sell(kafka_cluster.bootstrap, kafka_topic, [b"tea"])
    kafka_cluster.kill(1)


async def test_the_broker_is_back(kafka_cluster: Cluster, kafka_topic):
    client.orders.sell(kafka_cluster.bootstrap, kafka_topic, [b"tea"])
    assert kafka_cluster.create_topic("of-two", 2) == "of-two"
    kafka_cluster.pause(1)


def test_that_a_frozen_broker_spoils_nothing(kafka_bootstrap, kafka_topic):
    client.orders.sell(kafka_bootstrap, kafka_topic, [b"tea"])
"""

SLEEPER: Final = """\
import threading
from pathlib import Path

def test_that_never_ends(kafka_cluster):
    kafka_cluster.pause(1)
    Path("started").touch()
    threading.Event().wait()
"""
"""A test to interrupt, in the worst state: a process that is frozen hears no polite signal."""


def write_sample_project(home: Path) -> Path:
    """The project, in ``home``; its tests are run there by ``python -m pytest``."""
    files = {
        "pytest.ini": _SETTINGS,
        "broker/__init__.py": "COMMISSION = 3\n",
        "client/__init__.py": "",
        "client/orders.py": _SENDING,
        "coordinator.py": "raise AssertionError('nobody asked for this file')\n",
        "tests/__init__.py": "",
        "tests/conftest.py": _CONFTEST,
        "tests/test_orders.py": _TESTS,
    }
    return write_project(home, files)


def write_project(home: Path, files: dict[str, str]) -> Path:
    """Files by their path below ``home``."""
    for name, text in files.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return home
