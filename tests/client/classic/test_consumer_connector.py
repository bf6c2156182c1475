"""The high-level consumer on a real cluster and a real ZooKeeper.

Source: docs/spec/coordinator.md §6, §6.12 checks C6.2, C6.5, C6.7 and C6.8.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from barnabas.client.admin.admin import Admin
from barnabas.client.classic.blocking_connector import SyncConsumerConnector
from barnabas.client.classic.classic_config import ClassicConfig
from barnabas.client.classic.consumer_connector import ConsumerConnector
from barnabas.client.classic.kafka_stream import ConsumerTimeout, KafkaStream
from barnabas.client.classic.topic_filter import blacklist, whitelist
from barnabas.client.consumer.group_offsets import GroupOffsets
from barnabas.client.errors import KafkaError, OffsetOutOfRange
from barnabas.client.group_metadata import CommittedOffset
from barnabas.client.producer.producer import Producer
from barnabas.client.topology import TopicPartition
from barnabas.client.zookeeper.interface import NoNode, ZooKeeper
from barnabas.client.zookeeper.kazoo_session import KazooSession, connect
from barnabas.console.development.cluster import Cluster
from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from tests.zookeeper.conftest import expire

six_partitions = pytest.mark.kafka_topic(partitions=6)


def a_config(cluster: Cluster, group: str, **settings: Any) -> ClassicConfig:
    values: dict[str, Any] = {
        "zookeeper_connect": cluster.zookeeper,
        "zookeeper_session_timeout_ms": 10_000,
        "group_id": group,
        "auto_offset_reset": "smallest",
        "rebalance_backoff_ms": 1_000,
        "rebalance_max_retries": 60,
        **settings,
    }
    return ClassicConfig(**values)


@pytest.fixture
async def zookeeper(kafka_cluster: Cluster) -> AsyncIterator[ZooKeeper]:
    session = await connect(kafka_cluster.zookeeper)
    yield session
    await session.close()


async def eventually(ask: Callable[[], Awaitable[bool]], within_s: float = 120) -> None:
    async with asyncio.timeout(within_s):
        while not await ask():  # noqa: ASYNC110 - another process answers
            await asyncio.sleep(0.02)


async def owners(zookeeper: ZooKeeper, group: str, topic: str) -> dict[int, str]:
    path = f"/consumers/{group}/owners/{topic}"
    if await zookeeper.exists(path) is None:
        return {}
    found = {}
    for name in await zookeeper.children(path):
        with suppress(NoNode):  # released since the children were listed
            found[int(name)] = (await zookeeper.get(f"{path}/{name}"))[0].decode()
    return found


async def write(cluster: Cluster, topic: str, count: int, partitions: int) -> None:
    async with Producer(cluster.bootstrap) as producer:
        for partition in range(partitions):
            for number in range(count):
                producer.send_soon(topic, b"%d" % number, partition=partition)
        await producer.flush()


async def drained(stream: KafkaStream, count: int) -> list[tuple[int, int]]:
    return [
        (record.partition, record.offset) for record in [await anext(stream) for _ in range(count)]
    ]


@six_partitions
async def test_members_join_one_by_one_and_every_partition_has_one_living_owner(
    kafka_cluster: Cluster, kafka_topic: str, kafka_group: str, zookeeper: ZooKeeper
) -> None:
    members: list[ConsumerConnector] = []

    async def is_settled() -> bool:
        claimed = [owned for member in members for owned in member.owned.items()]
        found = await owners(zookeeper, kafka_group, kafka_topic)
        shares = [len(member.owned) for member in members]
        return shares == [6 // len(members)] * len(members) and found == {
            topic_partition.partition: thread for topic_partition, thread in claimed
        }

    for _ in range(3):
        member = await ConsumerConnector.create(a_config(kafka_cluster, kafka_group))
        members.append(member)
        await member.create_message_streams({kafka_topic: 1})
        await eventually(is_settled)
    while members:
        await members.pop(0).shutdown()
        if members:
            await eventually(is_settled)
    assert await owners(zookeeper, kafka_group, kafka_topic) == {}


async def test_the_znodes_are_those_of_kafka(
    kafka_cluster: Cluster, kafka_topic: str, kafka_group: str, zookeeper: ZooKeeper
) -> None:
    config = a_config(kafka_cluster, kafka_group, consumer_id="one")
    async with ConsumerConnector(config, now_ms=lambda: 17) as connector:
        await write(kafka_cluster, kafka_topic, 5, 1)
        streams = await connector.create_message_streams({kafka_topic: 2})
        await drained(streams[kafka_topic][0], 5)
        await connector.commit_offsets()
        root = f"/consumers/{kafka_group}"
        data, stat = await zookeeper.get(f"{root}/ids/{kafka_group}_one")
        assert data.decode() == json.dumps(
            {
                "version": 1,
                "subscription": {kafka_topic: 2},
                "pattern": "static",
                "timestamp": "17",
            },
            separators=(",", ":"),
        )
        assert stat.ephemeral_owner
        data, stat = await zookeeper.get(f"{root}/owners/{kafka_topic}/0")
        assert data == f"{kafka_group}_one-0".encode()
        assert stat.ephemeral_owner
        data, stat = await zookeeper.get(f"{root}/offsets/{kafka_topic}/0")
        assert data == b"5"
        assert not stat.ephemeral_owner


async def test_an_expired_session_registers_again_and_owns_partitions_again(
    kafka_cluster: Cluster, kafka_topic: str, kafka_group: str
) -> None:
    session = await connect(kafka_cluster.zookeeper, session_timeout_ms=10_000)
    server = kafka_cluster._zookeeper
    assert isinstance(session, KazooSession)
    assert isinstance(server, EmbeddedZooKeeper)
    config = a_config(kafka_cluster, kafka_group)
    async with ConsumerConnector(config, zookeeper=session) as connector:
        streams = await connector.create_message_streams({kafka_topic: 1})
        former = session.session_id
        await asyncio.to_thread(expire, session, server)

        async def is_back() -> bool:
            return session.session_id != former and len(connector.owned) == 1

        await eventually(is_back)
        await write(kafka_cluster, kafka_topic, 1, 1)
        assert await drained(streams[kafka_topic][0], 1) == [(0, 0)]


async def test_a_partition_that_others_took_is_reported_at_a_commit_and_claimed_again(
    kafka_cluster: Cluster, kafka_topic: str, kafka_group: str, zookeeper: ZooKeeper
) -> None:
    await write(kafka_cluster, kafka_topic, 3, 1)
    async with ConsumerConnector(a_config(kafka_cluster, kafka_group)) as connector:
        [stream] = (await connector.create_message_streams({kafka_topic: 1}))[kafka_topic]
        await drained(stream, 1)
        await connector.commit_offsets()
        await zookeeper.delete(f"/consumers/{kafka_group}/owners/{kafka_topic}/0")

        async def is_told() -> bool:
            try:
                await connector.commit_offsets()
            except KafkaError as error:
                return error.name == "UNKNOWN_MEMBER_ID"
            return False

        async def is_claimed() -> bool:
            return bool(await owners(zookeeper, kafka_group, kafka_topic))

        await eventually(is_told)
        await eventually(is_claimed)
        assert await drained(stream, 2) == [(0, 1), (0, 2)]


async def test_a_new_topic_that_passes_the_filter_is_read_without_a_restart(
    kafka_cluster: Cluster, kafka_topic: str, kafka_group: str
) -> None:
    white, black = f"{kafka_topic}|{kafka_topic}-more", f".*-other,{kafka_topic}"
    async with (
        ConsumerConnector(a_config(kafka_cluster, kafka_group)) as one,
        ConsumerConnector(a_config(kafka_cluster, f"{kafka_group}-b")) as two,
        Admin.of(kafka_cluster.bootstrap) as admin,
    ):
        [stream] = await one.create_message_streams_by_filter(whitelist(white))
        await two.create_message_streams_by_filter(blacklist(black), 2)
        assert {topic_partition.topic for topic_partition in one.owned} == {kafka_topic}
        created = [f"{kafka_topic}-more", f"{kafka_topic}-other"]
        for name in created:
            kafka_cluster.create_topic(name)

        async def is_read() -> bool:
            mine, theirs = (
                {topic_partition.topic for topic_partition in consumer.owned}
                for consumer in (one, two)
            )
            return created[0] in mine and created[0] in theirs

        await eventually(is_read)
        assert not any(
            topic_partition.topic == created[1] for topic_partition in (*one.owned, *two.owned)
        )
        await write(kafka_cluster, created[0], 3, 1)
        assert await drained(stream, 3) == [(0, 0), (0, 1), (0, 2)]
        await admin.delete_topics(created)


async def test_both_stores_are_read_as_the_larger_and_written_alike(
    kafka_cluster: Cluster, kafka_topic: str, kafka_group: str, zookeeper: ZooKeeper
) -> None:
    await write(kafka_cluster, kafka_topic, 120, 1)
    path = f"/consumers/{kafka_group}/offsets/{kafka_topic}/0"
    await zookeeper.create(path, b"100", parents=True)
    topic_partition = TopicPartition(kafka_topic, 0)
    async with Admin.of(kafka_cluster.bootstrap) as admin:
        config = a_config(kafka_cluster, kafka_group, offsets_storage="kafka")
        committed = GroupOffsets(admin.cluster, kafka_group)
        await committed.commit({topic_partition: CommittedOffset(90)})
        async with ConsumerConnector(config) as connector:
            streams = await connector.create_message_streams({kafka_topic: 1})
            assert await drained(streams[kafka_topic][0], 7) == [(0, 100 + n) for n in range(7)]
            await connector.commit_offsets()
            assert (await zookeeper.get(path))[0] == b"107"
            assert (await committed.fetch([topic_partition]))[topic_partition].offset == 107
            assert connector.writes == {"kafka": 2, "zookeeper": 1}


async def test_the_message_in_hand_comes_again_unless_it_was_committed_on_purpose(
    kafka_cluster: Cluster, kafka_topic: str, kafka_group: str
) -> None:
    await write(kafka_cluster, kafka_topic, 10, 1)
    config = a_config(kafka_cluster, kafka_group)
    begins = []
    for count, is_on_purpose in ((3, False), (3, True), (1, False)):
        async with ConsumerConnector(config) as connector:
            streams = await connector.create_message_streams({kafka_topic: 1})
            read = await drained(streams[kafka_topic][0], count)
            begins.append(read[0][1])
            if is_on_purpose:
                await connector.commit_offsets()
    assert begins == [0, 2, 5]


async def test_without_a_message_in_time_a_stream_says_so_and_goes_on(
    kafka_cluster: Cluster, kafka_topic: str, kafka_group: str
) -> None:
    config = a_config(kafka_cluster, kafka_group, consumer_timeout_ms=50)
    async with ConsumerConnector(config) as connector:
        [stream] = (await connector.create_message_streams({kafka_topic: 1}))[kafka_topic]
        with pytest.raises(ConsumerTimeout):
            await anext(stream)
        await write(kafka_cluster, kafka_topic, 1, 1)

        async def came() -> bool:
            try:
                return (await anext(stream)).offset == 0
            except ConsumerTimeout:
                return False

        await eventually(came)


@pytest.mark.parametrize(("reset", "begins"), [("earliest", 0), ("largest", 4)])
async def test_an_offset_off_the_log_is_reset_as_the_policy_says(
    kafka_cluster: Cluster,
    kafka_topic: str,
    kafka_group: str,
    zookeeper: ZooKeeper,
    reset: str,
    begins: int,
) -> None:
    await write(kafka_cluster, kafka_topic, 4, 1)
    await zookeeper.create(
        f"/consumers/{kafka_group}/offsets/{kafka_topic}/0", b"1000", parents=True
    )
    config = a_config(kafka_cluster, kafka_group, auto_offset_reset=reset)
    async with ConsumerConnector(config) as connector:
        [stream] = (await connector.create_message_streams({kafka_topic: 1}))[kafka_topic]
        first = asyncio.create_task(drained(stream, 1))
        if reset == "largest":

            async def is_reset() -> bool:
                assert connector._member is not None
                return connector._member._positions[TopicPartition(kafka_topic, 0)].consumed == 4

            await eventually(is_reset)
            await write(kafka_cluster, kafka_topic, 1, 1)
        assert await first == [(0, begins)]


async def test_without_an_offset_and_a_policy_the_stream_raises(
    kafka_cluster: Cluster, kafka_topic: str, kafka_group: str
) -> None:
    config = a_config(kafka_cluster, kafka_group, auto_offset_reset="none")
    async with ConsumerConnector(config) as connector:
        [stream] = (await connector.create_message_streams({kafka_topic: 1}))[kafka_topic]
        with pytest.raises(OffsetOutOfRange, match="no offset to begin at"):
            await anext(stream)
        await connector.commit_offsets()
        assert connector.writes == {"zookeeper": 0}, "an unknown position is never committed"


async def test_streams_are_created_once(
    kafka_cluster: Cluster, kafka_topic: str, kafka_group: str
) -> None:
    async with ConsumerConnector(a_config(kafka_cluster, kafka_group)) as connector:
        for wrong in ({}, {kafka_topic: 0}, {"no/topic": 1}):
            with pytest.raises(ValueError, match=r"topic|stream"):
                await connector.create_message_streams(wrong)
        await connector.create_message_streams({kafka_topic: 1})
        with pytest.raises(RuntimeError, match="once"):
            await connector.create_message_streams({kafka_topic: 1})


async def test_a_commit_that_is_refused_is_reported(
    kafka_cluster: Cluster, kafka_topic: str, kafka_group: str
) -> None:
    config = a_config(
        kafka_cluster,
        kafka_group,
        offsets_storage="kafka",
        dual_commit_enabled=False,
        offsets_commit_max_retries=0,
    )
    await write(kafka_cluster, kafka_topic, 1, 1)
    async with ConsumerConnector(config) as connector:
        [stream] = (await connector.create_message_streams({kafka_topic: 1}))[kafka_topic]
        await drained(stream, 1)
        kafka_cluster.delete_topic(kafka_topic)

        async def is_refused() -> bool:
            try:
                await connector.commit_offsets()
            except KafkaError as error:
                return error.name == "UNKNOWN_TOPIC_OR_PARTITION"
            return False

        await eventually(is_refused)


@six_partitions
async def test_streams_without_await_may_each_have_a_thread(
    kafka_cluster: Cluster, kafka_topic: str, kafka_group: str
) -> None:
    await write(kafka_cluster, kafka_topic, 20, 6)
    seen: list[tuple[int, int]] = []
    is_all = threading.Event()

    def consume(stream: Any) -> None:
        for message in stream:
            seen.append((message.partition, message.offset))
            if len(seen) == 120:
                is_all.set()

    with SyncConsumerConnector(a_config(kafka_cluster, kafka_group)) as connector:
        streams = connector.create_message_streams({kafka_topic: 2})[kafka_topic]
        threads = [threading.Thread(target=consume, args=(stream,)) for stream in streams]
        for thread in threads:
            thread.start()
        assert await asyncio.to_thread(is_all.wait, 120)
        connector.commit_offsets()
    for thread in threads:
        await asyncio.to_thread(thread.join, 120)
        assert not thread.is_alive()
    assert sorted(seen) == [(partition, number) for partition in range(6) for number in range(20)]
