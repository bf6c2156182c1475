"""Transactions of our client on three of our nodes, of which the one in charge is killed.

Check T7.3 on a real cluster: whichever coordinator or leader goes between any two requests, the
transaction has one result, and records are there once.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from typing import Final

import pytest

from barnabas.client import (
    Admin,
    Consumer,
    GroupMetadata,
    KafkaError,
    NewTopic,
    Producer,
    ProducerConfig,
    TopicPartition,
)
from barnabas.client.cluster import GROUP, TRANSACTION
from barnabas.client.consumer.list_offsets import LATEST, offsets_for
from barnabas.console.development.cluster import Cluster
from tests.harness.kafka_peers import Tree

NODES: Final = 3
WAIT_S: Final = 240.0
SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "transaction.state.log.min.isr": "2",
}
STEPS: Final = ("begun", "sent", "stored", "ended")
"""After what of the transaction the node goes."""
READING: Final = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
}


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    with Cluster(NODES, settings=SETTINGS) as cluster:
        yield cluster


class Work:
    """Transactions of one id, and what of them must be readable."""

    def __init__(self, cluster: Cluster, end: str) -> None:
        name = uuid.uuid4().hex[:12]
        self.cluster, self.is_commit = cluster, end == "commit"
        self.topic, self.group, self.id = f"moved-{name}", f"g-{name}", f"id-{name}"
        self.place = TopicPartition(self.topic, 0)
        self.kept: list[bytes] = []
        self.offset = 0

    async def node_of(self, role: str) -> int:
        async with Admin.of(self.cluster.bootstrap) as admin:
            if role == "leader":
                return (await admin.cluster.leaders([self.place]))[self.place]
            of_group = role == "group coordinator"
            key, key_type = (self.group, GROUP) if of_group else (self.id, TRANSACTION)
            async with asyncio.timeout(WAIT_S):
                while True:
                    try:
                        return (await admin.cluster.coordinator_of(key, key_type)).id
                    except KafkaError:  # the topic is new, or leaderless
                        await asyncio.sleep(0.1)

    async def transaction(self, producer: Producer, number: int, role: str, step: str) -> None:
        """One transaction; ``step`` is followed by the end of the node that has ``role``."""
        victim = await self.node_of(role)

        async def reached(at: str) -> None:
            if at == step:
                await asyncio.to_thread(self.cluster.kill, victim)
                if at == "begun":
                    # As on a slow machine, which goes on when the session is over.
                    left = set(range(1, NODES + 1)) - {victim}
                    await asyncio.to_thread(Tree(self.cluster.zookeeper).await_registered, left)

        values = [b"%d-%d" % (number, index) for index in range(5)]
        producer.begin()
        await reached("begun")
        await producer.send_all(self.topic, values)
        await reached("sent")
        await producer.send_offsets(GroupMetadata(self.group), {self.place: number + 1})
        await reached("stored")
        await (producer.commit() if self.is_commit else producer.abort())
        await reached("ended")
        if self.is_commit:
            self.kept += values
            self.offset = number + 1
        await asyncio.to_thread(self.cluster.restart, victim)

    async def verify(self) -> None:
        found: list[bytes] = []
        end = await self._settled_end()
        async with (
            Consumer(self.cluster.bootstrap, group=self.group, config=READING) as consumer,
            asyncio.timeout(WAIT_S),
        ):
            stored = await consumer.committed([self.place])
            assert (stored[self.place].offset if stored else 0) == self.offset
            await consumer.assign({self.place: 0})
            while consumer.position(self.place) != end:
                batch = await consumer.next_batch(timeout_s=0.1)
                if batch is not None:
                    found += batch.values()
        assert found == self.kept

    async def _settled_end(self) -> int:
        """Where the log ends once the last transaction has its marker: not before its answer."""
        async with Admin.of(self.cluster.bootstrap) as admin, asyncio.timeout(WAIT_S):
            while True:
                end, stable_end = [
                    (await offsets_for(admin.cluster, {self.place: LATEST}, read_committed=level))[
                        self.place
                    ]
                    for level in (False, True)
                ]
                if end == stable_end:
                    return end
                await asyncio.sleep(0.02)


@pytest.mark.parametrize("end", ["commit", pytest.param("abort", marks=pytest.mark.nightly)])
@pytest.mark.parametrize(
    "role",
    [
        "coordinator",
        pytest.param("group coordinator", marks=pytest.mark.nightly),
        pytest.param("leader", marks=pytest.mark.nightly),
    ],
)
async def test_a_node_that_is_killed_changes_no_transaction(
    nodes: Cluster, role: str, end: str
) -> None:
    work = Work(nodes, end)
    # A state topic is made while there are as many nodes as it has replicas, and not until then.
    await work.node_of("group coordinator")
    async with Admin.of(nodes.bootstrap) as admin:
        topic = NewTopic(name=work.topic, partitions=1, replication_factor=NODES)
        await admin.create_topics([topic])
    lasting = ProducerConfig(  # no coordinator ends one because a node is slow to come back
        transactional_id=work.id, transaction_timeout_ms=600_000, delivery_timeout_ms=240_000
    )
    async with Producer(nodes.bootstrap, lasting) as producer:
        for number, step in enumerate(STEPS):
            await work.transaction(producer, number, role, step)
    await work.verify()
