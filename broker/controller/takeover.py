"""Takeover of a new controller: it reads everything, tells every node, and elects what is missing.

Kafka's onControllerFailover. The order matters:

    1  watch, then read: a change after the read fires a watch, a change before it was read
    2  delete old notifications: what they are about is read anyway
    3  bind the voters to what is known of the nodes, before any node hears of this controller
    4  UpdateMetadata to all: a node must know its leaders' addresses before LeaderAndIsr names
       them, or its followers never start (KAFKA-4443)
    5  LeaderAndIsr with the states as they are, then replicas of restarted nodes leave their ISRs,
       where others are left
    6  elections for partitions that are new, or whose leader is gone or was restarted
    7  replicas of dead nodes leave the other ISRs: clients wait for leaders, and for nothing else
    8  what a predecessor left half done: reassignments, deletions, preferred leaders

Nothing of a predecessor's memory is needed for that, so a controller may die at any point.

Source: docs/spec/cluster.md §2.3; docs/spec/cluster.md §6, pitfall 26, for restarted leaders.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from .context import Partition, Replica
from .failovers import Cause, Failover
from .leader_election import NO_LEADER
from .state_transitions import PartitionStatus, ReplicaStatus

if TYPE_CHECKING:
    from .components import ControllerComponents

log = logging.getLogger(__name__)


class Takeover:
    """Brings a term from an election won to a cluster in order."""

    def __init__(self, components: ControllerComponents) -> None:
        self._term = components.term
        self._context = components.context
        self._components = components

    async def run(self) -> None:
        """Read the cluster, tell the nodes what was true so far, then who leads now, and elect."""
        began = asyncio.get_running_loop().time()
        await self._components.notifications.discard()
        nodes = await self._components.nodes.read()
        await self._components.topics.read(await self._components.topics.read_names())
        marked = await self._components.deletion.read_markers()
        leaders = await self._term.states.read(self._context.all_partitions())
        self._context.leaders.update(leaders)
        if self._term.dependencies.may_delete_topics:
            self._context.deleting |= marked & self._context.assignments.keys()
        self._context.nodes.update(nodes)
        led = self._led_by_the_gone()
        self._term.voters.intend()
        log.info(
            "took over epoch=%d nodes=%s topics=%d partitions=%d",
            self._term.election.epoch,
            sorted(nodes),
            len(self._context.assignments),
            len(list(self._context.all_partitions())),
        )
        self._term.dependencies.failovers.begin(self._term.election.epoch, sorted(nodes))
        self._term.open_channels(sorted(nodes))
        batch = self._term.batch()
        # At first: one that has just started knows nothing, or but a part (KAFKA-4443).
        batch.publish_all()
        batch.send()
        restarted = self._restarted()
        shortened = self._perhaps_shortened()
        dead = self._place_replicas(restarted)
        await self._term.replicas.go_offline(shortened, batch)
        batch.send()
        self._place_partitions(restarted)
        self._term.replicas.become(shortened, ReplicaStatus.ONLINE, batch)
        elected = await self._term.partitions.elect_missing_leaders(batch)
        batch.inform()
        batch.send()
        self._elect_when_leases_are_over(lambda: self._note_failovers(led, began))
        living = self._term.without_deleting_topics(dead)
        await self._term.replicas.go_offline(living, batch, settled=elected)
        batch.send()
        await self._components.reassignments.resume()
        await self._components.reassignments.process_admin_znode()
        await self._components.deletion.changed()
        await self._components.deletion.resume()
        await self._components.preferred_leaders.process_admin_znode()

    def _led_by_the_gone(self) -> dict[int, set[Partition]]:
        """By node that is not registered, what it leads according to ZooKeeper."""
        found: dict[int, set[Partition]] = {}
        for partition, state in self._context.leaders.items():
            if state.leader != NO_LEADER and state.leader not in self._context.nodes:
                found.setdefault(state.leader, set()).add(partition)
        return found

    def _note_failovers(self, led: Mapping[int, Collection[Partition]], began: float) -> None:
        seconds = asyncio.get_running_loop().time() - began
        leaders = self._context.leaders
        for node, partitions in led.items():
            known = [leaders[each].leader for each in partitions if each in leaders]
            self._term.dependencies.failovers.note(
                Failover(
                    node=node,
                    cause=Cause.TAKEOVER,
                    noticed_s=None,
                    elected_s=seconds,
                    partitions=len(partitions),
                    leaderless=sum(leader not in self._context.nodes for leader in known),
                )
            )

    def _elect_when_leases_are_over(self, elected: Callable[[], None]) -> None:
        """A predecessor may have let nodes answer that are not registered any more.

        Electing in their place before that is over would have two nodes answer; so the elections
        of takeover leave them out, and this asks again once the last lease is over. ``elected`` is
        called when others lead.
        """
        failure_detector = self._term.failure_detector
        leaders = {state.leader for state in self._context.leaders.values()}
        unregistered = leaders - self._context.nodes.keys()
        gone = [node for node in unregistered if self._term.may_hold_lease(node)]
        if failure_detector is None or not gone:
            elected()
            return

        async def elect() -> None:
            await self._term.elect_missing_leaders()
            elected()

        last = max(map(failure_detector.lease_over_at, gone))
        self._term.after(last - failure_detector.clock(), "leases are over", elect)

    def _restarted(self) -> set[Partition]:
        """Partitions whose leader registered after their state was written.

        It may have lost the end of its log: leading on in the same epoch it could give offsets
        a second time, so it needs a new one. Followers hold other records under the same (offset,
        epoch), and no later comparison of epochs finds the difference. Zxids are ordered in the
        whole ensemble: the czxid of the registration against the mzxid of the state tells.
        """
        return {
            partition
            for partition, state in self._context.leaders.items()
            if state.leader in self._context.nodes
            and self._context.nodes[state.leader].epoch > state.mzxid
        }

    def _perhaps_shortened(self) -> list[Replica]:
        """In-sync replicas of nodes that registered after the in-sync set was written.

        A power cut may have taken the end of their logs, and no controller was there to see them
        go. Elected again, such a leader would have all others cut off what was acknowledged; a
        follower would, once its leader is lost. So they leave the set, as when a controller sees
        them go, and return when they have caught up. Where all in-sync nodes that live were
        restarted nobody knows better, and the set stays.
        """
        found: list[Replica] = []
        nodes = self._context.nodes
        for (topic, index), state in self._context.leaders.items():
            here = [node for node in state.isr if node in nodes]
            again = [node for node in here if nodes[node].epoch > state.mzxid]
            if len(again) < len(here) and topic not in self._context.deleting:
                found += [(topic, index, node) for node in again]
        return found

    def _place_replicas(self, restarted: set[Partition]) -> list[Replica]:
        """Give each a status and tell those that live what they lead; returns those of the dead."""
        batch = self._term.batch()
        replicas = self._context.replicas_of(self._context.all_partitions())
        dead = [replica for replica in replicas if replica[2] not in self._context.nodes]
        for replica in replicas:
            self._context.replicas[replica] = ReplicaStatus.ONLINE
            settled = replica[:2] in self._context.leaders and replica[:2] not in restarted
            is_live = replica[2] in self._context.nodes
            if is_live and settled and replica[0] not in self._context.deleting:
                batch.lead([replica[2]], replica[:2])
        for replica in dead:
            # From where it may go offline, and where a deletion of its topic waits for its node.
            self._context.replicas[replica] = ReplicaStatus.DELETION_INELIGIBLE
        batch.send()
        return dead

    def _place_partitions(self, restarted: set[Partition]) -> None:
        for partition in self._context.all_partitions():
            state = self._context.leaders.get(partition)
            if state is None:
                status = PartitionStatus.NEW
            elif state.leader in self._context.nodes and partition not in restarted:
                status = PartitionStatus.ONLINE
            else:
                status = PartitionStatus.OFFLINE
            self._context.partitions[partition] = status
