"""The classic consumer against Apache Kafka 3.9: balance, both stores, the way over and back.

Source: docs/spec/coordinator.md §6.4 to §6.8.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import NewTopic
from barnabas.client.classic.consumer_connector import ConsumerConnector
from barnabas.client.classic.kafka_stream import KafkaStream
from barnabas.client.producer.producer import Producer
from barnabas.client.topology import TopicPartition
from tests.harness.deployments import KafkaCluster

pytestmark = pytest.mark.kafka
PARTITIONS = 4
STEPS: list[dict[str, Any]] = [
    {"offsets.storage": "zookeeper"},
    {"offsets.storage": "kafka", "dual.commit.enabled": "true"},
    {"offsets.storage": "kafka", "dual.commit.enabled": "false"},
    {"offsets.storage": "zookeeper", "dual.commit.enabled": "true"},
    {"offsets.storage": "zookeeper", "dual.commit.enabled": "false"},
]


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaCluster]:
    running = KafkaCluster(1, {"offsets.topic.replication.factor": "1"})
    yield running
    running.stop()


async def drained(stream: KafkaStream, count: int) -> list[tuple[int, int]]:
    return [
        (record.partition, record.offset) for record in [await anext(stream) for _ in range(count)]
    ]


async def test_two_members_share_a_topic_and_take_its_offsets_over_and_back(
    kafka: KafkaCluster,
) -> None:
    common = {
        "zookeeper.connect": kafka.zookeeper,
        "group.id": "movers",
        "auto.offset.reset": "smallest",
    }
    async with Admin.of(kafka.bootstrap) as admin, Producer(kafka.bootstrap) as producer:
        await admin.create_topics([NewTopic(name="orders", partitions=PARTITIONS)])
        seen: list[tuple[int, int]] = []
        for number, step in enumerate(STEPS):
            for partition in range(PARTITIONS):
                for _ in range(5):
                    await producer.send("orders", b"%d" % number, partition=partition)
            async with (
                ConsumerConnector(common | step) as one,
                ConsumerConnector(common | step) as two,
            ):
                streams = [
                    (await consumer.create_message_streams({"orders": 1}))["orders"][0]
                    for consumer in (one, two)
                ]
                async with asyncio.timeout(120):  # the first claims its share beside the second
                    while [len(consumer.owned) for consumer in (one, two)] != [2, 2]:  # noqa: ASYNC110
                        await asyncio.sleep(0.02)
                for found in await asyncio.gather(*(drained(stream, 10) for stream in streams)):
                    seen += found
                await one.commit_offsets()
                await two.commit_offsets()
        everything = {
            (partition, number) for partition in range(PARTITIONS) for number in range(25)
        }
        assert len(seen) == len(everything)
        assert set(seen) == everything
        committed = await admin.committed_offsets("movers")
        assert {
            topic_partition: offset.offset for topic_partition, offset in committed.items()
        } == {TopicPartition("orders", partition): 20 for partition in range(PARTITIONS)}
