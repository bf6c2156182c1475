"""Our consumer in groups of the consumer protocol, with a coordinator that others wrote.

Source: docs/spec/consumer-groups.md §12; KIP-848.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Any, Final

import pytest

from barnabas.client import (
    Admin,
    CommitFailed,
    Consumer,
    KafkaError,
    NewTopic,
    Producer,
    RebalanceListener,
    SyncConsumer,
    TopicPartition,
)
from barnabas.client.consumer.rebalance_listener import PartitionSet
from barnabas.protocol.errors import ErrorCode
from tests.harness.consumer_protocol_clusters import consumer_groups
from tests.harness.deployments import Deployment

__all__ = ["consumer_groups"]

FROM_START: Final = {"auto.offset.reset": "earliest"}
SOON_S: Final = 240.0
_NUMBERS = count()


class Noting(RebalanceListener):
    def __init__(self) -> None:
        self.told: list[str] = []

    async def on_revoked(self, topic_partitions: PartitionSet) -> None:
        self.told.append("revoked")

    async def on_assigned(self, topic_partitions: PartitionSet) -> None:
        self.told.append("assigned")

    async def on_lost(self, topic_partitions: PartitionSet) -> None:
        self.told.append("lost")


async def made(cluster: Deployment, partitions: int = 6, records: int = 0) -> str:
    """A new topic with so many records in each partition."""
    topic = f"own.consumer.{next(_NUMBERS)}"
    async with Admin.of(cluster.bootstrap) as admin:
        await admin.create_topics([NewTopic(name=topic, partitions=partitions)])
    async with Producer(cluster.bootstrap) as producer:
        for partition in range(partitions):
            for number in range(records):
                await producer.send(topic, f"{partition}/{number}", partition=partition)
    return topic


def consumer_of(cluster: Deployment, *topics: str, group: str, **options: Any) -> Consumer:
    options = {"config": FROM_START, **options}
    return Consumer(cluster.bootstrap, *topics, group=group, group_protocol="consumer", **options)


async def polled(holds: Callable[[], Any], *consumers: Consumer) -> list[bytes | None]:
    """Have all consumers poll until something holds; returns the values that came."""
    values: list[bytes | None] = []
    async with asyncio.timeout(SOON_S):
        while not holds():
            for consumer in consumers:
                batch = await consumer.next_batch(timeout_s=0.05)
                values += [] if batch is None else batch.values()
    return values


async def test_members_share_a_topic_and_read_each_record_once(consumer_groups: Deployment) -> None:
    topic = await made(consumer_groups, records=20)
    values: list[bytes | None] = []
    async with consumer_of(consumer_groups, topic, group=topic) as first:
        while len(values) < 60:
            batch = await first.next_batch(10, timeout_s=SOON_S)
            assert batch is not None
            values += batch.values()
        async with consumer_of(consumer_groups, topic, group=topic) as second:

            def is_shared() -> bool:
                return len(first.assignment) == len(second.assignment) == 3

            values += await polled(is_shared, first, second)
            assert not first.assignment & second.assignment
        values += await polled(lambda: len(first.assignment) == 6, first)
        committed = await first.committed()
    assert len(values) == len(set(values))
    assert sum(offset.offset for offset in committed.values()) >= 60
    async with consumer_of(consumer_groups, topic, group=topic) as last:
        wanted = 120 - len(values)
        rest: list[bytes | None] = []
        while len(rest) < wanted:
            batch = await last.next_batch(timeout_s=SOON_S)
            assert batch is not None
            rest += batch.values()
    assert len({*values, *rest}) == 120
    assert len(rest) == wanted


async def test_an_expression_is_matched_by_the_coordinator_whole(
    consumer_groups: Deployment,
) -> None:
    topic = await made(consumer_groups, 2)
    pattern = topic.replace(".", r"\.") + "(-[a-z]+)?"
    async with consumer_of(consumer_groups, pattern=pattern, group=topic) as consumer:
        await polled(lambda: len(consumer.assignment) == 2, consumer)
        assert {place.topic for place in consumer.assignment} == {topic}


async def test_an_expression_that_nobody_can_read_is_told(consumer_groups: Deployment) -> None:
    async with consumer_of(consumer_groups, pattern="a(?!b)", group="unreadable") as consumer:
        with pytest.raises(KafkaError) as failure:
            await consumer.next_batch(timeout_s=SOON_S)
    assert failure.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


async def test_an_assignor_that_the_coordinator_has_not_is_told(
    consumer_groups: Deployment,
) -> None:
    topic = await made(consumer_groups, 1)
    settings = {**FROM_START, "group.remote.assignor": "none-such"}
    async with consumer_of(consumer_groups, topic, group=topic, config=settings) as consumer:
        with pytest.raises(KafkaError) as failure:
            await consumer.next_batch(timeout_s=SOON_S)
    assert failure.value.code is ErrorCode.UNSUPPORTED_ASSIGNOR


async def test_a_static_member_comes_back_to_its_partitions_and_nobody_else_is_disturbed(
    consumer_groups: Deployment,
) -> None:
    topic = await made(consumer_groups, 4)
    settings = {**FROM_START, "group.instance.id": "clerk"}
    noting = Noting()
    async with consumer_of(consumer_groups, topic, group=topic, listener=noting) as other:
        async with consumer_of(consumer_groups, topic, group=topic, config=settings) as static:
            await polled(lambda: len(static.assignment) == 2, other, static)
            had = static.assignment
            told = list(noting.told)
        async with consumer_of(consumer_groups, topic, group=topic, config=settings) as static:
            await polled(lambda: static.assignment == had, other, static)
            twin = consumer_of(consumer_groups, topic, group=topic, config=settings)
            async with twin:
                with pytest.raises(KafkaError) as failure:
                    await twin.next_batch(timeout_s=SOON_S)
            assert failure.value.code is ErrorCode.UNRELEASED_INSTANCE_ID
            await polled(lambda: static.assignment == had, other, static)
        assert noting.told == told


async def test_who_holds_records_for_too_long_loses_its_partitions_and_comes_back(
    consumer_groups: Deployment,
) -> None:
    topic = await made(consumer_groups, 2, records=5)
    settings = {**FROM_START, "max.poll.interval.ms": 1_000}
    noting = Noting()
    slow = consumer_of(consumer_groups, topic, group=topic, config=settings, listener=noting)
    async with slow:
        batch = await slow.next_batch(1, timeout_s=SOON_S)
        assert batch is not None
        async with consumer_of(consumer_groups, topic, group=topic) as other:
            await polled(lambda: len(other.assignment) == 2, other)
            with pytest.raises(CommitFailed):
                await batch.commit()
            await polled(lambda: len(slow.assignment) == len(other.assignment) == 1, slow, other)
    assert noting.told[:3] == ["assigned", "lost", "assigned"]


async def test_commits_go_on_while_members_come_and_go(consumer_groups: Deployment) -> None:
    topic = await made(consumer_groups, 4)
    settings = {**FROM_START, "enable.auto.commit": False}
    async with consumer_of(consumer_groups, topic, group=topic, config=settings) as consumer:
        await polled(lambda: len(consumer.assignment) == 4, consumer)
        for number in range(4):
            async with consumer_of(consumer_groups, topic, group=topic) as other:
                await polled(lambda: other.assignment, consumer, other)
                place = min(consumer.assignment)
                await consumer.commit({place: number})
                assert (await consumer.committed([place]))[place].offset == number


def test_without_await_it_is_the_same(consumer_groups: Deployment) -> None:
    topic = asyncio.run(made(consumer_groups, 3, records=4))
    found = []
    with SyncConsumer(
        consumer_groups.bootstrap, topic, group=topic, group_protocol="consumer", config=FROM_START
    ) as consumer:
        for record in consumer:
            found.append((record.partition, record.offset))
            if len(found) == 12:
                break
        consumer.commit()
        assert consumer.committed()[TopicPartition(topic, 0)].offset == 4
    assert sorted(found) == [(partition, offset) for partition in range(3) for offset in range(4)]
