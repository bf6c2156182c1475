"""The administrator against Apache Kafka 3.9: the rival's answers are the right ones."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import NewTopic
from barnabas.client.cluster import TopicPartition
from barnabas.client.errors import KafkaError
from barnabas.console.demo import first_half, second_half
from barnabas.console.development import demo_clients
from barnabas.protocol.errors import ErrorCode
from tests.harness.deployments import KafkaCluster

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaCluster]:
    running = KafkaCluster(1, {"group.initial.rebalance.delay.ms": "0"})
    yield running
    running.stop()


@pytest.fixture
async def admin(kafka: KafkaCluster) -> AsyncIterator[Admin]:
    async with Admin.of(kafka.bootstrap) as admin:
        yield admin


async def test_a_created_topic_is_described(admin: Admin) -> None:
    await admin.create_topics([NewTopic(name="made", partitions=3)])
    (topic,) = await admin.describe_topics(["made"])
    assert [partition.partition for partition in topic.partitions] == [0, 1, 2]
    assert {partition.leader for partition in topic.partitions} == {1}


async def test_a_topic_cannot_be_created_twice(admin: Admin) -> None:
    await admin.create_topics([NewTopic(name="twice")])
    with pytest.raises(KafkaError) as failure:
        await admin.create_topics([NewTopic(name="twice")])
    assert failure.value.code is ErrorCode.TOPIC_ALREADY_EXISTS


async def test_a_setting_that_is_none_is_reported_with_the_brokers_words(admin: Admin) -> None:
    with pytest.raises(KafkaError, match=r"segment\.bites"):
        await admin.create_topics([NewTopic(name="odd", configs={"segment.bites": "1"})])


async def test_a_deleted_topic_is_gone(admin: Admin) -> None:
    await admin.create_topics([NewTopic(name="brief")])
    await admin.delete_topics(["brief"])
    assert "brief" not in [topic.name for topic in await admin.list_topics()]


async def test_a_group_nobody_used_is_dead(admin: Admin) -> None:
    group = await admin.describe_group("nobody")
    assert not group.exists


async def test_a_new_topic_ends_where_it_starts(admin: Admin) -> None:
    await admin.create_topics([NewTopic(name="blank", partitions=2)])
    topic_partitions = [TopicPartition("blank", 0), TopicPartition("blank", 1)]
    assert await admin.end_offsets(topic_partitions) == await admin.start_offsets(topic_partitions)


async def test_the_demonstration_is_a_true_story_on_kafka_as_well(
    kafka: KafkaCluster,
    admin: Admin,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(demo_clients, "_SESSION_MS", 60_000)  # its member sends no heartbeats
    assert await first_half(kafka.bootstrap) == 1
    await second_half(kafka.bootstrap)
    (group,) = [group for group in await admin.list_groups() if group.group == "billing"]
    assert (group.state, group.protocol_type) == ("Empty", "consumer")
    rows = await admin.progress(await admin.describe_group("billing"))
    assert [(row.current_offset, row.lag) for row in rows] == [(100, 0)] * 3
