"""The first call of many a program: which topics are there?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient, KafkaConsumer

from tests.harness.confluent_client import Confluent
from tests.harness.deployments import Deployment, await_leaders

WAIT_S = 60


def of_a_confluent_admin(bootstrap: str) -> set[str]:
    return set(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=WAIT_S).topics)


def of_a_confluent_producer(bootstrap: str) -> set[str]:
    return set(Producer({"bootstrap.servers": bootstrap}).list_topics(timeout=WAIT_S).topics)


def of_a_confluent_consumer(bootstrap: str) -> set[str]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    try:
        return set(consumer.list_topics(timeout=WAIT_S).topics)
    finally:
        consumer.close()


def of_a_kafka_python_admin(bootstrap: str) -> set[str]:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        return set(admin.list_topics())
    finally:
        admin.close()


def of_a_kafka_python_consumer(bootstrap: str) -> set[str]:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap)
    try:
        return set(consumer.topics())
    finally:
        consumer.close()


def of_an_aiokafka_admin(bootstrap: str) -> set[str]:
    async def ask() -> set[str]:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            return set(await admin.list_topics())
        finally:
            await admin.close()

    return asyncio.run(ask())


ASKED: tuple[Callable[[str], set[str]], ...] = (
    of_a_confluent_admin,
    of_a_confluent_producer,
    of_a_confluent_consumer,
    of_a_kafka_python_admin,
    of_a_kafka_python_consumer,
    of_an_aiokafka_admin,
)


@pytest.mark.parametrize("ask", ASKED, ids=lambda ask: ask.__name__.removeprefix("of_a_"))
def test_every_client_lists_all_topics(
    cluster: Deployment, topic: str, ask: Callable[[str], set[str]]
) -> None:
    Confluent().create_topic(cluster.bootstrap, topic, 1)
    await_leaders(cluster, topic, 1)
    assert topic in ask(cluster.bootstrap)
