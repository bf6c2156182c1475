"""Transactions on real nodes whose wall clocks jump, by clients that others wrote and by ours.

A clock that jumps ends no transaction and keeps none open; only who takes over looks at the clock,
since the start in the log is all that it has. Source: docs/spec/transactions.md §3.6, §3.7, T8.25;
beside the coordinator's own tests (tests/coordinator/transactions/test_timeouts.py).
"""

from __future__ import annotations

import asyncio
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final

import confluent_kafka
import pytest

from barnabas.client import (
    AbortableTransactionError,
    Admin,
    Consumer,
    NewTopic,
    Producer,
    ProducerConfig,
    ProducerFenced,
    TopicPartition,
)
from barnabas.client.cluster import TRANSACTION
from barnabas.client.consumer.list_offsets import LATEST, offsets_for
from barnabas.console.development.cluster import Cluster
from barnabas.console.development.node import NodeProcess
from tests.chaos.networked_cluster import DAY_NS, WallClock
from tests.harness.steady_settings import STEADY

NODES: Final = 3
WAIT_S: Final = 90.0
HOUR_NS: Final = 3_600 * 10**9
TIMEOUT_S: Final = 10.0
"""What is to be sent in time is, also by a client that gets no processor for seconds."""
READING: Final = {"isolation.level": "read_committed", "auto.offset.reset": "earliest"}
SETTINGS: Final = {
    **STEADY,
    "auto.leader.rebalance.enable": "false",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
}
"""No transaction moves unless a test has it moved: who takes over looks at the clock."""


class ClockedNode(NodeProcess):
    """A node by a wall clock of its own."""

    def __init__(self, node: NodeProcess) -> None:
        super().__init__(node.id, node.port, node.directory, signal.SIGKILL)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.clock = WallClock(self.directory / "clock")

    def spawn(self) -> None:
        with self.clock.inherited():
            super().spawn()


class ClockedCluster(Cluster):
    """Nodes whose clocks can be set while they run."""

    def set_clock(self, shift_ns: int, *node_ids: int) -> None:
        """Of these nodes, or of all."""
        for node in self.nodes:
            assert isinstance(node, ClockedNode)
            if not node_ids or node.id in node_ids:
                node.clock.set(shift_ns)

    def _prepare(self) -> None:
        super()._prepare()
        self.nodes = [ClockedNode(node) for node in self.nodes]


@pytest.fixture(scope="module")
def running() -> Iterator[ClockedCluster]:
    with ClockedCluster(NODES, settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def cluster(running: ClockedCluster) -> Iterator[ClockedCluster]:
    """It is the time of day again when a test is over."""
    try:
        yield running
    finally:
        running.set_clock(0)
        running.repair()


@pytest.fixture
async def topic(cluster: ClockedCluster) -> str:
    """Of one partition, and also the transactional id that writes to it."""
    name = f"jumped-{uuid.uuid4().hex[:12]}"
    async with Admin.of(cluster.bootstrap) as admin:
        await admin.create_topics([NewTopic(name=name, partitions=1, replication_factor=NODES)])
    return name


def producer_of(cluster: Cluster, name: str, timeout_s: float = 600.0) -> Producer:
    config = ProducerConfig(transactional_id=name, transaction_timeout_ms=int(timeout_s * 1_000))
    return Producer(cluster.bootstrap, config)


async def settled_end(cluster: Cluster, place: TopicPartition) -> int:
    """The end of a partition, once no transaction is open in it."""
    async with Admin.of(cluster.bootstrap) as admin, asyncio.timeout(WAIT_S):
        while True:
            end, stable_end = [
                (await offsets_for(admin.cluster, {place: LATEST}, read_committed=level))[place]
                for level in (False, True)
            ]
            if end == stable_end:
                return end
            await asyncio.sleep(0.02)


async def committed(cluster: Cluster, topic: str) -> list[str]:
    """What readers of committed records are shown, once no transaction is open."""
    place = TopicPartition(topic, 0)
    end = await settled_end(cluster, place)
    found: list[str] = []
    async with Consumer(cluster.bootstrap, config=READING) as consumer, asyncio.timeout(WAIT_S):
        await consumer.assign({place: 0})
        while consumer.position(place) != end:
            batch = await consumer.next_batch(timeout_s=0.1)
            if batch is not None:
                found += [value.decode() for value in batch.values()]
    return found


async def forgotten(cluster: Cluster, name: str) -> None:
    """Until no coordinator has the id any more."""
    async with Admin.of(cluster.bootstrap) as admin, asyncio.timeout(WAIT_S):
        while True:
            listed = await admin.list_transactions()
            if all(one.transactional_id != name for one in listed):
                return
            await asyncio.sleep(0.02)


async def state_of(cluster: Cluster, name: str) -> str:
    async with Admin.of(cluster.bootstrap) as admin:
        return (await admin.describe_transaction(name)).state


async def coordinator_of(cluster: Cluster, name: str) -> int:
    async with Admin.of(cluster.bootstrap) as admin:
        return (await admin.cluster.coordinator_of(name, TRANSACTION)).id


async def by_ours(cluster: Cluster, topic: str, jump: Callable[[], None]) -> None:
    """Three transactions; the clocks jump in the middle of the second, which is aborted next."""
    async with producer_of(cluster, topic) as producer:
        for number, end in enumerate((producer.commit, producer.commit, producer.abort)):
            producer.begin()
            await producer.send(topic, f"{number} a")
            if number == 1:
                jump()
            await producer.send(topic, f"{number} b")
            await end()


async def by_librdkafka(cluster: Cluster, topic: str, jump: Callable[[], None]) -> None:
    """The same."""
    producer: Any = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": topic, "linger.ms": 0}
    )

    def write() -> None:
        producer.init_transactions(WAIT_S)
        ends = (producer.commit_transaction, producer.commit_transaction)
        for number, end in enumerate((*ends, producer.abort_transaction)):
            producer.begin_transaction()
            producer.produce(topic, f"{number} a", partition=0)
            assert producer.flush(WAIT_S) == 0
            if number == 1:
                jump()
            producer.produce(topic, f"{number} b", partition=0)
            end(WAIT_S)

    await asyncio.to_thread(write)


@pytest.mark.parametrize("write", [by_ours, by_librdkafka])
@pytest.mark.parametrize("jump_ns", [DAY_NS, -DAY_NS], ids=["forwards", "backwards"])
async def test_transactions_go_on_when_every_clock_jumps_by_a_day(
    cluster: ClockedCluster, topic: str, write: Callable[..., Any], jump_ns: int
) -> None:
    await write(cluster, topic, lambda: cluster.set_clock(jump_ns))
    assert await committed(cluster, topic) == ["0 a", "0 b", "1 a", "1 b"]


@pytest.mark.parametrize("jump_ns", [HOUR_NS, -HOUR_NS], ids=["forwards", "backwards"])
async def test_a_transaction_times_out_when_its_time_is_over_and_not_when_the_clock_says_so(
    cluster: ClockedCluster, topic: str, jump_ns: int
) -> None:
    began = time.monotonic()
    producer = producer_of(cluster, topic, TIMEOUT_S)
    await producer.start()
    producer.begin()
    await producer.send(topic, "late")
    cluster.set_clock(jump_ns)
    assert await committed(cluster, topic) == []
    assert time.monotonic() - began >= TIMEOUT_S
    with pytest.raises(ProducerFenced):
        await producer.commit()
    await producer.close()


async def test_a_clock_that_jumps_by_a_month_forgets_idle_ids_and_no_open_transaction(
    cluster: ClockedCluster, topic: str
) -> None:
    idle = f"{topic}-idle"
    async with producer_of(cluster, idle) as idler, producer_of(cluster, topic) as writer:
        async with idler.transaction() as transaction:
            await transaction.send(topic, "idle")
        writer.begin()
        await writer.send(topic, "open")
        cluster.set_clock(30 * DAY_NS)
        await forgotten(cluster, idle)
        await writer.commit()
        idler.begin()
        with pytest.raises(AbortableTransactionError):
            await idler.send(topic, "refused: 49")
        await idler.abort()
        async with idler.transaction() as transaction:
            await transaction.send(topic, "idle again")
    assert await committed(cluster, topic) == ["idle", "open", "idle again"]


async def test_a_coordinator_whose_clock_was_ahead_hands_on_a_transaction_that_goes_on(
    cluster: ClockedCluster, topic: str
) -> None:
    """The start lies in the future of who takes over."""
    victim = await coordinator_of(cluster, topic)
    cluster.set_clock(HOUR_NS, victim)
    async with producer_of(cluster, topic) as producer:
        producer.begin()
        await producer.send(topic, "before")
        await asyncio.to_thread(cluster.kill, victim)
        await producer.send(topic, "after")
        assert await state_of(cluster, topic) == "Ongoing"
        await producer.commit()
    await asyncio.to_thread(cluster.restart, victim)
    assert await committed(cluster, topic) == ["before", "after"]


async def test_a_coordinator_whose_clock_was_behind_hands_on_a_transaction_that_is_aborted(
    cluster: ClockedCluster, topic: str
) -> None:
    """By the clock of who takes over its time is over: the producer is told, nothing is shown."""
    victim = await coordinator_of(cluster, topic)
    cluster.set_clock(-HOUR_NS, victim)
    producer = producer_of(cluster, topic)
    await producer.start()
    producer.begin()
    await producer.send(topic, "begun an hour ago")
    await asyncio.to_thread(cluster.kill, victim)
    assert await committed(cluster, topic) == []
    with pytest.raises(ProducerFenced):
        await producer.commit()
    await producer.close()
    async with producer_of(cluster, topic) as heir, heir.transaction() as transaction:
        await transaction.send(topic, "of the heir")
    await asyncio.to_thread(cluster.restart, victim)
    assert await committed(cluster, topic) == ["of the heir"]
