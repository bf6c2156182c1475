"""Nodes that register, vanish, or come back before anybody saw them go.

Source: docs/spec/cluster.md §2.5. The broker epoch, a registration's czxid, tells a bounce from
nothing having happened.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping

from barnabas.client.zookeeper.interface import NoNode
from barnabas.protocol.zookeeper import znodes

from .context import LiveNode, Partition, Replica
from .failovers import Cause, Failover
from .reassignment import Reassignments
from .state_transitions import PartitionStatus, ReplicaStatus
from .term import ControllerTerm
from .topic_deletion import TopicDeletion

log = logging.getLogger(__name__)


class NodeChanges:
    """What the controller does when ``/brokers/ids`` changes."""

    def __init__(
        self, term: ControllerTerm, deletion: TopicDeletion, reassignments: Reassignments
    ) -> None:
        self._term = term
        self._context = term.context
        self._deletion = deletion
        self._reassignments = reassignments
        self._loop = asyncio.get_running_loop()

    async def read(self) -> dict[int, LiveNode]:
        """Every registered node, watching for nodes to come and go and for changed endpoints."""
        watch = self._term.watch("nodes", self.changed)
        names = await self._term.zookeeper.children(znodes.BROKER_IDS, watch)
        ids = znodes.broker_ids(names)
        nodes = await asyncio.gather(*map(self._read_one, ids))
        return {node.id: node for node in nodes if node is not None}

    async def changed(self) -> None:
        """Compare with what was known: new nodes, bounced ones, dead ones, in this order."""
        current = await self.read()
        known = self._context.nodes
        self._forget_suspects(current)
        suspected = self._context.suspected
        new = [node for node_id, node in current.items() if node_id not in known | suspected]
        dead = self._surely_over([node_id for node_id in known if node_id not in current])
        again = [
            node_id
            for node_id, node in current.items()
            if node_id in known and node.epoch > known[node_id].epoch
        ]
        bounced = [current[node_id] for node_id in self._surely_over(again)]
        if new or dead or bounced:
            log.info(
                "nodes changed new=%s bounced=%s dead=%s",
                sorted(node.id for node in new),
                sorted(node.id for node in bounced),
                sorted(dead),
            )
        await self.start(new)
        await self._fail(dict.fromkeys((node.id for node in bounced), Cause.RESTARTED))
        await self.start(bounced)
        await self._fail({node: self._why_gone(node) for node in dead})
        self._take_endpoints(current)

    async def suspect(self, silent: Collection[int]) -> None:
        """Treat nodes that fell silent as dead; their leases are over, their sessions are not."""
        found = {node: self._context.nodes[node] for node in silent if node in self._context.nodes}
        if not found:
            return
        log.warning("suspected silent nodes=%s", sorted(found))
        self._context.suspected.update(found)
        await self._fail({node: self._why_gone(node, Cause.SILENT) for node in found})

    async def readmit_suspects(self) -> None:
        """Nodes that were suspected and send beacons again are started like new ones."""
        failure_detector = self._term.failure_detector
        assert failure_detector is not None, "who suspects keeps vigil"
        back = [
            node
            for node in self._context.suspected.values()
            if failure_detector.is_heard(node.id, node.epoch)
        ]
        for node in back:
            del self._context.suspected[node.id]
        if back:
            log.info("heard suspected nodes again nodes=%s", sorted(node.id for node in back))
        await self.start(back)

    def _forget_suspects(self, current: Mapping[int, LiveNode]) -> None:
        """Suspects that are gone, or have registered anew, are suspects no longer."""
        self._context.suspected = {
            node_id: node
            for node_id, node in self._context.suspected.items()
            if node_id in current and current[node_id].epoch == node.epoch
        }

    def _surely_over(self, gone: Collection[int]) -> list[int]:
        """Those whose leases are over; the others are looked at again when theirs are.

        Also where the node is registered anew: the process that was may live on elsewhere, cut off
        from ZooKeeper alone, and not know that another has its id.
        """
        failure_detector = self._term.failure_detector
        waiting = [node for node in gone if self._may_answer(node)]
        for node in waiting:
            assert failure_detector is not None
            failure_detector.stop_echoing(node)
            self._term.after(
                failure_detector.lease_over_at(node) - failure_detector.clock(),
                "nodes",
                self.changed,
            )
        return [node for node in gone if node not in waiting]

    def _may_answer(self, node: int) -> bool:
        """A lease of the process that was registered may still last."""
        failure_detector, known = self._term.failure_detector, self._context.nodes[node]
        if failure_detector is not None and failure_detector.has_left(node, known.epoch):
            return False
        return self._term.may_hold_lease(node)

    async def start(self, nodes: Collection[LiveNode]) -> None:
        """Let new nodes know the cluster, then lead what they can lead."""
        if not nodes:
            return
        ids = {node.id for node in nodes}
        others = self._context.nodes.keys() - ids
        self._context.nodes.update({node.id: node for node in nodes})
        self._term.voters.intend()  # before they hear of this controller
        self._term.open_channels(ids)
        batch = self._term.batch()
        batch.publish([], others)
        batch.send()
        batch.publish_all(ids)
        batch.send()
        hosted = self._context.replicas_on(ids)
        self._term.replicas.become(
            self._term.without_deleting_topics(hosted), ReplicaStatus.ONLINE, batch
        )
        for replica in sorted(self._context.undeleted_replicas):
            if replica[2] in ids and self._is_led(replica[:2]):
                batch.stop(replica, delete=True)
        await self._term.partitions.elect_missing_leaders(batch)
        batch.inform(ids)
        batch.send()
        self._term.dependencies.failovers.joined(sorted(ids))
        await self._reassignments.resume({replica[:2] for replica in hosted})
        await self._deletion.retry({replica[0] for replica in hosted})

    def _is_led(self, partition: Partition) -> bool:
        """Not while nobody does: what a returning node has left may be the last copy then.

        It sets that aside itself. Of a topic that is gone nobody needs a copy.
        """
        state = self._context.leaders.get(partition)
        return state is None or state.leader in self._context.nodes

    async def are_others_registered(self) -> bool:
        """Whether the registrations are others than those known; watches nothing."""
        names = await self._term.zookeeper.children(znodes.BROKER_IDS)
        ids = znodes.broker_ids(names)
        paths = map(znodes.broker_path, ids)
        stats = await asyncio.gather(*map(self._term.zookeeper.exists, paths))
        found = {node: stat.czxid for node, stat in zip(ids, stats, strict=True) if stat}
        known = [*self._context.nodes.values(), *self._context.suspected.values()]
        return found != {node.id: node.epoch for node in known}

    async def replicas_failed(self, replicas: list[Replica]) -> None:
        """Live nodes answered that their disk does not serve these replicas."""
        log.error("took replicas offline: their log directory failed replicas=%s", replicas)
        led = {
            node: self._led_by(node, {replica[:2] for replica in replicas if replica[2] == node})
            for node in sorted({replica[2] for replica in replicas})
        }
        self._context.failed_replicas |= set(replicas)
        began = self._loop.time()
        await self._take_offline(replicas)
        self._note(dict.fromkeys(led, Cause.DIRECTORY), led, {}, began)

    def _why_gone(self, node: int, otherwise: Cause = Cause.SESSION) -> Cause:
        return Cause.SHUTDOWN if node in self._context.shutting_down else otherwise

    def _led_by(self, node: int, partitions: Collection[Partition]) -> set[Partition]:
        leaders = self._context.leaders
        return {each for each in partitions if each in leaders and leaders[each].leader == node}

    def _note(
        self,
        causes: Mapping[int, Cause],
        led: Mapping[int, Collection[Partition]],
        silence: Mapping[int, float],
        began: float,
    ) -> None:
        """Tell of what was lost, once others lead it and the orders are on their way."""
        seconds = self._loop.time() - began
        for node, cause in causes.items():
            failover = Failover(
                node=node,
                cause=cause,
                noticed_s=silence.get(node),
                elected_s=seconds,
                partitions=len(led[node]),
                leaderless=sum(map(self._is_leaderless, led[node])),
            )
            self._term.dependencies.failovers.note(failover)

    async def _fail(self, causes: Mapping[int, Cause]) -> None:
        """Find other leaders for what dead nodes led, and take them out of in-sync sets."""
        if not causes:
            return
        began, gone = self._loop.time(), set(causes)
        hosted = self._context.replicas_on(gone)
        led = {node: self._led_by(node, {replica[:2] for replica in hosted}) for node in causes}
        heard = self._term.failure_detector.heard() if self._term.failure_detector else {}
        silence = {
            node: heard[node][0]
            for node, cause in causes.items()
            if node in heard and cause in (Cause.SILENT, Cause.SESSION)
        }
        for node_id in gone:
            self._context.nodes.pop(node_id, None)
            self._term.channels.close(node_id)
            if self._term.failure_detector is not None:
                self._term.failure_detector.stop_echoing(node_id)
            self._term.handovers.gone(node_id)
        self._context.shutting_down -= gone
        self._context.failed_replicas -= set(hosted)
        self._context.unacknowledged_replicas -= set(hosted)
        await self._take_offline(hosted)
        self._note(causes, led, silence, began)

    async def _take_offline(self, replicas: list[Replica]) -> None:
        batch = self._term.batch()
        living = self._term.without_deleting_topics(replicas)
        partitions = {replica[:2] for replica in living}
        self._term.partitions.become(
            filter(self._is_leaderless, sorted(partitions)), PartitionStatus.OFFLINE
        )
        elected = await self._term.partitions.elect_missing_leaders(batch)
        # Before the in-sync sets of all others are written: clients wait for these leaders.
        batch.send()
        await self._term.replicas.go_offline(living, batch, settled=elected)
        batch.publish(partitions & self._context.leaders.keys())
        batch.send()
        self._deletion.fail(sorted(set(replicas) - set(living)))

    def _is_leaderless(self, partition: Partition) -> bool:
        state = self._context.leaders.get(partition)
        return state is not None and not self._context.is_online(state.leader, partition)

    def _take_endpoints(self, current: dict[int, LiveNode]) -> None:
        """A node may advertise other endpoints under the same registration: tell everybody."""
        changed = [
            node
            for node in current.values()
            if (known := self._context.nodes.get(node.id)) is not None
            and node.epoch == known.epoch  # else it has to be started first
            and node.registration != known.registration
        ]
        if changed:
            self._context.nodes.update({node.id: node for node in changed})
            batch = self._term.batch()
            batch.publish([])
            batch.send()

    async def _read_one(self, node_id: int) -> LiveNode | None:
        try:
            data, stat = await self._term.zookeeper.get(
                znodes.broker_path(node_id), self._term.watch("nodes", self.changed)
            )
        except NoNode:
            return None
        try:
            registration = znodes.BrokerRegistration.from_json(data)
        except ValueError as error:
            log.error("ignored a registration that cannot be read node=%d: %s", node_id, error)
            known = self._context.nodes.get(node_id)
            return known if known is not None and known.epoch == stat.czxid else None
        return LiveNode(node_id, stat.czxid, registration, is_kafka_peer=b'"roles"' not in data)
