"""Shutting down a classic consumer that is cancelled on the way, over a ZooKeeper in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from barnabas.client.classic.consumer_connector import ConsumerConnector
from barnabas.client.classic.kafka_stream import KafkaStream
from barnabas.protocol.zookeeper import znodes
from barnabas.protocol.zookeeper.znodes import BrokerRegistration, TopicAssignment
from tests.client.scripted_cluster import scripted_cluster
from tests.sim.simulated_zookeeper import SimEnsemble, SimZooKeeper

SETTINGS = {
    "zookeeper.connect": "nowhere:2181",
    "group.id": "g",
    "auto.offset.reset": "smallest",
}


class Reading:
    """A connector that has a message in hand behind one that it has yet to commit."""

    def __init__(self, session: SimZooKeeper, connector: ConsumerConnector) -> None:
        self.session = session
        self.connector = connector
        self.stream: KafkaStream

    def stall(self) -> asyncio.Event:
        """ZooKeeper answers nothing from now on; the event tells that it was asked something."""
        asked = asyncio.Event()
        self.session._ensemble.stall()
        self.session.on_ask = asked.set
        return asked

    @property
    def is_alive(self) -> bool:
        return self.session.session_id in self.session._ensemble.alive


@pytest.fixture
async def reading() -> AsyncIterator[Reading]:
    ensemble = SimEnsemble(asyncio.get_running_loop())
    session, tools = ensemble.connect(600_000), ensemble.connect()
    async with scripted_cluster(1) as cluster:
        (place,) = cluster.topic("t")
        cluster.logs[place].add(b"0", b"1")
        assignment = TopicAssignment(partitions={0: (1,)})
        await tools.create(znodes.topic_path("t"), assignment.to_json(), parents=True)
        endpoints = {"PLAINTEXT": ("127.0.0.1", cluster.brokers[1].port)}
        broker = BrokerRegistration(endpoints=endpoints, timestamp=1)
        await tools.create(znodes.broker_path(1), broker.to_json(), parents=True)
        found = Reading(session, ConsumerConnector(SETTINGS, zookeeper=session))
        await found.connector.start()
        (found.stream,) = (await found.connector.create_message_streams({"t": 1}))["t"]
        for _ in range(2):
            await anext(found.stream)
        yield found
        await found.connector.shutdown()


async def test_a_shutdown_that_is_cancelled_while_it_commits_ends_the_session(
    reading: Reading,
) -> None:
    asked = reading.stall()
    leaving = asyncio.ensure_future(reading.connector.shutdown())
    await asked.wait()
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert not reading.is_alive
    assert not reading.stream.topic_partitions
    assert reading.stream.is_over


async def test_a_shutdown_that_is_cancelled_while_others_commit_ends_the_session(
    reading: Reading,
) -> None:
    asked = reading.stall()
    committing = asyncio.ensure_future(reading.connector.commit_offsets())
    await asked.wait()
    leaving = asyncio.ensure_future(reading.connector.shutdown())
    async with asyncio.timeout(60):
        while not reading.stream.is_over:  # noqa: ASYNC110 - it leaves the group next
            await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert not reading.is_alive
    committing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await committing


async def test_a_shutdown_commits_and_may_be_repeated(reading: Reading) -> None:
    tools = reading.session._ensemble.connect()
    await reading.connector.shutdown()
    await reading.connector.shutdown()
    assert not reading.is_alive
    assert (await tools.get("/consumers/g/offsets/t/0"))[0] == b"1"
