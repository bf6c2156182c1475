"""Random faults of a small cluster of controllers, and leaders that behave as brokers do."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Awaitable, Callable
from typing import Final

from barnabas.broker.controller.components import ControllerComponents
from barnabas.client.zookeeper.interface import BadVersion, NodeExists, NoNode
from barnabas.protocol.errors import Refused
from barnabas.protocol.zookeeper import znodes
from tests.controller.small_cluster import SmallCluster, SmallNode
from tests.sim.numbered_faults import inject

NODES: Final = (1, 2, 3, 4)
STEPS: Final = 60
HEALED_S: Final = 90.0
"""Simulated seconds in which everything must be in order again."""

Fault = Callable[[], Awaitable[None]]


class ControllerFaults:
    """Injects one fault after the other, then heals the cluster."""

    def __init__(self, cluster: SmallCluster, rng: random.Random) -> None:
        self.cluster = cluster
        self.rng = rng
        self.names = 0
        self.frozen: set[int] = set()

    async def run(self) -> None:
        """Inject STEPS faults, then heal."""
        faults: list[Fault] = [
            self.create,
            self.create,
            self.delete,
            self.grow,
            self.move,
            self.move,
            self.move_by_znode,
            self.elect,
            self.restart,
            self.expire,
            self.cut,
            self.freeze,
            self.lose_a_write,
            self.deafen,
            self.break_disk,
            self.mend_disks,
        ]
        for _ in range(STEPS):
            fault = self.rng.choice(faults)
            await inject(fault.__name__, fault)
            await asyncio.sleep(self.rng.choice((0.0, 0.05, 1.0, 3.0)))
        await self.heal()

    async def heal(self) -> None:
        for node_id in NODES:
            if node_id not in self.cluster.nodes:
                await self.cluster.start(node_id)
        for node_id in sorted(self.frozen):
            self.cluster.nodes[node_id].zookeeper.resume()
        self.frozen.clear()
        await self.mend_disks()
        await asyncio.sleep(HEALED_S)

    def some_topic(self) -> str | None:
        prefix = znodes.BROKER_TOPICS + "/"
        paths = self.cluster.ensemble.tree.nodes
        names = sorted(
            {path.removeprefix(prefix).split("/")[0] for path in paths if path.startswith(prefix)}
        )
        return self.rng.choice(names) if names else None

    async def create(self) -> None:
        self.names += 1
        factor = self.rng.randint(1, 3)
        assignment = {
            index: tuple(self.rng.sample(NODES, factor)) for index in range(self.rng.randint(1, 4))
        }
        await self.cluster.create(f"t{self.names}", assignment)

    async def delete(self) -> None:
        name = self.some_topic()
        if name is not None:
            try:
                await self.cluster.observer.create(znodes.deletion_path(name))
            except NodeExists:
                return

    async def grow(self) -> None:
        name = self.some_topic()
        if name is None:
            return
        try:
            data, stat = await self.cluster.observer.get(znodes.topic_path(name))
            record = znodes.TopicAssignment.from_json(data)
            if record.adding or record.removing:
                return
            replicas = record.partitions[0]
            partitions = {**record.partitions, len(record.partitions): replicas}
            grown = dataclasses.replace(record, partitions=partitions)
            await self.cluster.observer.set(znodes.topic_path(name), grown.to_json(), stat.version)
        except (NoNode, BadVersion):
            return

    async def move(self) -> None:
        name = self.some_topic()
        ruler = self.cluster.active
        if name is None or ruler is None:
            return
        target = tuple(self.rng.sample(NODES, self.rng.randint(1, 3)))
        wish = None if self.rng.random() < 0.2 else target

        async def work(components: ControllerComponents) -> None:
            await components.reassignments.alter({(name, 0): wish})

        await self.ask(ruler, work)

    async def move_by_znode(self) -> None:
        name = self.some_topic()
        if name is None:
            return
        target = tuple(self.rng.sample(NODES, 2))
        wish = znodes.ReassignPartitions(partitions=(znodes.Reassignment(name, 0, target),))
        try:
            await self.cluster.observer.create(znodes.REASSIGN_PARTITIONS, wish.to_json())
        except NodeExists:
            return

    async def elect(self) -> None:
        ruler = self.cluster.active

        async def work(components: ControllerComponents) -> None:
            await components.elections.elect(None, is_unclean=False)

        if ruler is not None:
            await self.ask(ruler, work)

    async def ask(
        self, ruler: SmallNode, work: Callable[[ControllerComponents], Awaitable[None]]
    ) -> None:
        """Nobody waits longer than a client would."""
        try:
            async with asyncio.timeout(30):
                await ruler.controller.ask("something", work)
        except (Refused, TimeoutError):
            return

    async def restart(self) -> None:
        node = self.some_node()
        if node is None:
            return
        await self.cluster.kill(node.id)
        await asyncio.sleep(self.rng.choice((0.0, 2.0, 8.0)))
        await self.cluster.start(node.id)

    async def expire(self) -> None:
        node = self.some_node()
        if node is not None:
            node.zookeeper.expire()

    async def cut(self) -> None:
        """The connection is gone for a moment; the session survives."""
        node = self.some_node()
        if node is not None:
            node.zookeeper.suspend()
            await asyncio.sleep(self.rng.uniform(0, 2))
            node.zookeeper.resume()

    async def freeze(self) -> None:
        """A node, the controller most of all, is cut off until others have taken over."""
        node = self.cluster.active if self.rng.random() < 0.6 else self.some_node()
        if node is None or node.id in self.frozen or len(self.frozen) == len(NODES) - 1:
            return
        self.frozen.add(node.id)
        node.zookeeper.suspend()
        self.cluster.ensemble.end(node.zookeeper.session_id)
        await asyncio.sleep(self.rng.uniform(0, 4))
        if self.rng.random() < 0.7:
            self.frozen.discard(node.id)
            node.zookeeper.resume()

    async def lose_a_write(self) -> None:
        node = self.some_node()
        if node is not None:
            node.zookeeper.lose_next_answer()

    async def deafen(self) -> None:
        node = self.some_node()
        if node is not None:
            node.zookeeper.lose_watches()

    async def break_disk(self) -> None:
        """A log directory fails, the one with some replica in it; the node says so."""
        node = self.some_node()
        if node is not None and node.hosted:
            node.broken.add(self.rng.choice(sorted(node.hosted)))
            await self.note_disk(node)

    async def mend_disks(self) -> None:
        for node in list(self.cluster.nodes.values()):
            if node.broken:
                node.broken.clear()
                await self.note_disk(node)

    async def note_disk(self, node: SmallNode) -> None:
        note = znodes.LogDirEvent(broker=node.id).to_json()
        await self.cluster.observer.create(znodes.LOG_DIR_EVENT_PREFIX, note, sequence=True)

    def some_node(self) -> SmallNode | None:
        able = [node for node in self.cluster.nodes.values() if node.id not in self.frozen]
        return self.rng.choice(able) if able else None


async def lead(cluster: SmallCluster, rng: random.Random) -> None:
    """Leaders take their followers into the in-sync sets, and tell the controller, or forget to."""
    while True:
        await asyncio.sleep(1.0)
        for node in list(cluster.nodes.values()):
            for (topic, index), replica in list(node.hosted.items()):
                if replica.leader == node.id:
                    await _expand(cluster, node, topic, index, rng)


async def _expand(
    cluster: SmallCluster, node: SmallNode, topic: str, index: int, rng: random.Random
) -> None:
    path = znodes.partition_state_path(topic, index)
    try:
        data, stat = await cluster.observer.get(path)
        assignment = await cluster.assignment(topic)
        state = znodes.PartitionState.from_json(data)
        live = cluster.nodes.keys() & node.cache.snapshot.brokers.keys()
        replicas = assignment.partitions.get(index, ())
        missing = [
            other
            for other in replicas
            if other in live
            and other not in state.isr
            and (held := cluster.nodes[other].hosted.get((topic, index))) is not None
            and held.leader_epoch == state.leader_epoch
        ]
        known = node.hosted.get((topic, index))
        if not missing or known is None or known.leader_epoch != state.leader_epoch:
            return
        wider = dataclasses.replace(state, isr=(*state.isr, *missing))
        await cluster.observer.set(path, wider.to_json(), stat.version)
    except (NoNode, BadVersion):
        return
    if rng.random() < 0.8:
        note = znodes.IsrChange(partitions=(znodes.TopicPartition(topic, index),)).to_json()
        await cluster.observer.create(znodes.ISR_CHANGE_PREFIX, note, sequence=True)
