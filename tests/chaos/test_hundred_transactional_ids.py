"""A hundred transactional ids on real nodes while their coordinator and a leader are killed.

Source: docs/spec/transactions.md §10, check T10.1; tests/sim/test_hundred_transactional_ids.py is
the same in a simulation, with other producers.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Final

import pytest

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import NewTopic, PartitionDescription, TopicDescription
from barnabas.client.client_config import ClientConfig
from barnabas.client.cluster import TRANSACTION
from barnabas.client.errors import AbortableTransactionError, KafkaError
from barnabas.client.producer.producer import Producer
from barnabas.console.development.cluster import Cluster
from barnabas.protocol.hashing import group_partition
from benchmarks.cluster_view import ClusterView
from tests.chaos.committed_reader import CommittedReader, final_logs
from tests.chaos.transaction_campaign import OWN_SETTINGS
from tests.transactions.history import FinalLog, Outcome, Partition

IDS: Final = 100
NODES: Final = 4
"""With two of them gone every partition that is used has two of its three replicas left."""
COUNT: Final = 12
"""Partitions of the topic and of the transaction log: each pair of nodes leads some."""
TOPIC: Final = "hundred"
TRANSACTIONS: Final = "__transaction_state"
SETTINGS: Final = {**OWN_SETTINGS, "transaction.state.log.num.partitions": str(COUNT)}
CONFIG: Final = ClientConfig(request_timeout_ms=5_000, retry_backoff_ms=50)
PRODUCER: Final = {"transaction.timeout.ms": "20000", "request.timeout.ms": "5000"}
WARM: Final = 3
"""Transactions of an id before anybody is killed."""
REST_S: Final = 1.5
STABLE_AGAIN_S: Final = 2.0
WATCHED_S: Final = 5.0
PATIENCE_S: Final = 60.0


class Victim(Enum):
    """Who is killed, by ``kill -9``."""

    COORDINATOR = "coordinator"
    LEADER = "leader"
    BOTH = "both, at the same moment"


@dataclass(slots=True)
class Told:
    """One transaction, and what its producer knows of it."""

    name: str
    partitions: Sequence[Partition]
    outcome: Outcome = Outcome.ABORTED


@dataclass(frozen=True, slots=True)
class Cast:
    """Two nodes that are not the controller, and what they have to do with each other."""

    coordinator: int
    leader: int
    written: Sequence[Partition]
    """Led by the leader; the coordinator has no replica."""
    ids: Sequence[str]
    """Coordinated by the coordinator; the leader has no replica."""

    def victims(self, victim: Victim) -> Sequence[int]:
        """The nodes to be killed."""
        return {
            Victim.COORDINATOR: [self.coordinator],
            Victim.LEADER: [self.leader],
            Victim.BOTH: [self.coordinator, self.leader],
        }[victim]


def apart(partitions: Sequence[PartitionDescription], leader: int, other: int) -> Iterator[int]:
    """The partitions that a node leads and another one has no replica of."""
    for one in partitions:
        if one.leader == leader and other not in one.replicas:
            yield one.partition


def cast_in(
    written: TopicDescription, log: TopicDescription, controller: int | None
) -> Cast | None:
    """Two such nodes; None where there are none now, since leaders are away."""
    nodes = {one.leader for one in (*written.partitions, *log.partitions) if one.leader is not None}
    for coordinator, leader in itertools.permutations(nodes - {controller}, 2):
        used = [(TOPIC, index) for index in apart(written.partitions, leader, coordinator)]
        keeping = set(apart(log.partitions, coordinator, leader))
        if used and keeping:
            names = (f"id-{number}" for number in itertools.count())
            ids = (name for name in names if group_partition(name, COUNT) in keeping)
            return Cast(coordinator, leader, used, list(itertools.islice(ids, IDS)))
    return None


async def cast_of(admin: Admin, controller: int | None) -> Cast:
    """Such nodes as there are in a cluster of four."""
    await admin.create_topics([NewTopic(name=TOPIC, partitions=COUNT)])
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await admin.cluster.coordinator_of("any", TRANSACTION)  # makes the transaction log
                written, log = await admin.describe_topics([TOPIC, TRANSACTIONS])
            except KafkaError as failure:
                if not failure.retriable:
                    raise
            else:
                found = cast_in(written, log, controller)
                if found is not None:
                    return found
            await asyncio.sleep(0.1)


@dataclass(slots=True)
class Life:
    """One transactional id: producers one after the other, and what they were told."""

    bootstrap: str
    name: str
    partitions: Sequence[Partition]
    random: Random
    told: list[Told] = field(default_factory=list)
    is_warm: asyncio.Event = field(default_factory=asyncio.Event)
    """It has done its first transactions."""

    async def run(self, stopping: asyncio.Event) -> None:
        """Transactions until told to stop; a producer of no more use is followed by the next."""
        while not stopping.is_set():
            try:
                async with Producer(self.bootstrap, PRODUCER, transactional_id=self.name) as one:
                    while not stopping.is_set():
                        await self._transact(one)
                        await asyncio.sleep(self.random.uniform(0, REST_S))
            except KafkaError:
                continue

    async def _transact(self, producer: Producer) -> None:
        count = min(len(self.partitions), self.random.randint(1, 2))
        chosen = self.random.sample(list(self.partitions), count)
        now = Told(f"{self.name}/{len(self.told)}", chosen)
        self.told.append(now)
        if len(self.told) >= WARM:
            self.is_warm.set()
        producer.begin()
        try:
            for topic, index in chosen:
                await producer.send(topic, now.name.encode(), partition=index)
            if self.random.random() < 0.2:
                await producer.abort()
                return
            now.outcome = Outcome.UNKNOWN
            await producer.commit()
            now.outcome = Outcome.COMMITTED
        except AbortableTransactionError:
            await producer.abort()
            now.outcome = Outcome.ABORTED


async def longest_standstill(
    admin: Admin, partition: Partition, since: float, stable: int
) -> float:
    """For how long readers of committed records got nowhere, from a moment on."""
    reader = CommittedReader(admin.cluster, "gap")
    moved, longest = since, 0.0
    while (now := time.monotonic()) < since + WATCHED_S:
        await reader.read(partition)
        told = reader.readings[-1].last_stable if reader.readings else None
        if told is not None and told > stable:
            longest = max(longest, now - moved)
            moved, stable = now, told
        await asyncio.sleep(0.02)
    return max(longest, now - moved)


async def stable_offset(admin: Admin, partition: Partition) -> int:
    """As a reader is told now."""
    reader = CommittedReader(admin.cluster, "before")
    while not reader.readings:
        await reader.read(partition)
    return reader.readings[-1].last_stable or 0


def check(told: Sequence[Told], logs: dict[Partition, FinalLog]) -> None:
    """Each transaction in all of its partitions or in none, as its producer was told, once."""
    for partition, log in logs.items():
        shown = Counter(row.origin for row in log.committed)
        assert log.last_stable == log.end, f"{partition} has an open transaction"
        assert not [name for name, count in shown.items() if count > 1], "doubled"
    rows = {partition: {row.origin for row in log.committed} for partition, log in logs.items()}
    for one in told:
        found = {one.name in rows[partition] for partition in one.partitions}
        assert len(found) == 1, f"{one.name} is half committed"
        if one.outcome is not Outcome.UNKNOWN:
            assert found == {one.outcome is Outcome.COMMITTED}, f"{one.name} was {one.outcome}"


async def hurt(cluster: Cluster, victim: Victim, seed: int) -> tuple[list[Told], list[float]]:
    """The story: what producers were told, and how long readers of each partition waited."""
    with ClusterView(cluster.zookeeper) as view:
        controller = view.controller()
    async with Admin.of(cluster.bootstrap, CONFIG) as admin:
        cast = await cast_of(admin, controller)
        lives = [
            Life(cluster.bootstrap, name, cast.written, Random(f"{seed}/{name}"))
            for name in cast.ids
        ]
        stopping = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            for life in lives:
                tasks.create_task(life.run(stopping))
            async with asyncio.timeout(PATIENCE_S):
                for life in lives:
                    await life.is_warm.wait()
            before = {one: await stable_offset(admin, one) for one in cast.written}
            since = time.monotonic()
            for node in cast.victims(victim):
                cluster.kill(node)
            gaps = await asyncio.gather(
                *(longest_standstill(admin, one, since, mark) for one, mark in before.items())
            )
            await asyncio.sleep(REST_S)
            stopping.set()
        await asyncio.to_thread(cluster.repair)
        logs = await final_logs(admin.cluster, {TOPIC: COUNT})
        told = [one for life in lives for one in life.told]
        check(told, {partition: logs[partition] for partition in cast.written})
        return told, list(gaps)


@pytest.mark.nightly
@pytest.mark.parametrize("victim", Victim, ids=lambda one: one.name.lower())
def test_a_hundred_ids_lose_and_double_nothing_when_their_nodes_are_killed(victim: Victim) -> None:
    """Check T10.1; readers of committed records go on within two seconds."""
    with Cluster(NODES, settings=SETTINGS) as cluster:
        told, gaps = asyncio.run(hurt(cluster, victim, seed=1))
    outcomes = Counter(one.outcome for one in told)
    print(victim.value, outcomes, gaps)  # noqa: T201 - pytest shows it when the test fails
    assert outcomes[Outcome.COMMITTED] > IDS, "little was tried"
    assert max(gaps) < STABLE_AGAIN_S, gaps
