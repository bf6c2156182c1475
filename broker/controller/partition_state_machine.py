"""The partition state machine: new, online, offline, non-existent; elects on the way.

Source: docs/spec/cluster.md §2.6 and §2.13.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from barnabas.protocol.names import is_internal

from .context import ControllerContext, Leadership, Partition
from .leader_election import (
    NO_LEADER,
    ElectionResult,
    elect_for_controlled_shutdown,
    elect_for_new_partition,
    elect_for_offline_partition,
    elect_for_reassigned_partition,
    elect_preferred_replica,
)
from .leadership_handover import LeadershipHandovers
from .partition_state_znodes import CHUNK, PartitionStateZnodes
from .request_batch import ControlRequestBatch
from .state_transitions import PARTITION_TRANSITIONS, PartitionStatus, valid_transitions

log = logging.getLogger(__name__)

ElectionStrategy = Callable[[Partition, Leadership], ElectionResult | None]


class PartitionStateMachine:
    """Moves partitions between states; elections write to ZooKeeper, then tell the nodes."""

    def __init__(
        self,
        context: ControllerContext,
        states: PartitionStateZnodes,
        may_be_unclean: Callable[[str], bool],
        handovers: LeadershipHandovers,
        may_hold_lease: Callable[[int], bool],
    ) -> None:
        """``may_hold_lease`` says of a node that is not registered whether its lease may last."""
        self._context = context
        self._states = states
        self._may_be_unclean = may_be_unclean
        self._handovers = handovers
        self._may_answer = may_hold_lease

    def become(self, partitions: Iterable[Partition], status: PartitionStatus) -> list[Partition]:
        """Note a state other than ONLINE; returns those that could move there."""
        assert status is not PartitionStatus.ONLINE, "a partition comes online by election"
        moved = valid_transitions(
            partitions, status, self._context.partitions, PARTITION_TRANSITIONS
        )
        for partition in moved:
            self._context.partitions[partition] = status
        return moved

    async def create(self, partitions: Iterable[Partition], batch: ControlRequestBatch) -> None:
        """Give new partitions their first leader; without a live replica they stay new."""
        choices, left = {}, []
        for partition in self._movable(partitions):
            replicas = self._context.assigned(partition)
            live = self._context.online_among(replicas, partition)
            choice = elect_for_new_partition(replicas, live)
            if choice is None:
                left.append(partition)
            else:
                choices[partition] = choice
        if left:
            log.warning("left partitions new: no replica is live partitions=%s", left[:10])
        has_partitions = {topic: self._is_led(topic) for topic in {topic for topic, _ in choices}}
        for partition, state in (await self._states.create(choices, has_partitions)).items():
            self._led(partition, state)
            batch.lead(choices[partition].isr, partition, is_new=True)

    async def elect(
        self,
        partitions: Iterable[Partition],
        strategy: ElectionStrategy,
        batch: ControlRequestBatch,
    ) -> list[Partition]:
        """Elect from what ZooKeeper holds, again where a leader wrote meanwhile.

        Returns the partitions that have a leader by this election; the others stay as they were.
        Whatever the strategy, that is so while a lease of a leader that is gone may last: with
        another in its place, two nodes would answer.
        """

        def choose(partition: Partition, state: Leadership) -> ElectionResult | None:
            is_gone = state.leader not in self._context.nodes
            if is_gone and self._may_answer(state.leader):
                return None
            return strategy(partition, state)

        elected: list[Partition] = []
        movable, leaders = self._movable(partitions), self._context.leaders
        async for partition, choice, before, after in self._states.change(movable, leaders, choose):
            self._report_loss(partition, choice)
            self._led(partition, after, before.leader)
            batch.lead(self._context.assigned(partition), partition)
            elected.append(partition)
        return elected

    async def elect_missing_leaders(self, batch: ControlRequestBatch) -> list[Partition]:
        """New partitions are created, offline ones elected; those being deleted are left alone.

        Returns those elected: none but live nodes are in their in-sync sets. Of many, the brokers'
        own topics come first, for groups wait for them, and what is elected is told before the
        next are: 200, then twice as many each time, so that a hundred thousand take ten orders.
        """
        by_status: dict[PartitionStatus, list[Partition]] = {}
        for partition in self._context.all_partitions():
            if partition[0] not in self._context.deleting:
                status = self._context.partitions.get(partition, PartitionStatus.NON_EXISTENT)
                by_status.setdefault(status, []).append(partition)
        await self.create(by_status.get(PartitionStatus.NEW, []), batch)
        offline = by_status.get(PartitionStatus.OFFLINE, [])
        offline.sort(key=lambda partition: not is_internal(partition[0]))
        elected, count = [], CHUNK
        while offline:
            elected += await self.elect(offline[:count], self.offline, batch)
            if offline := offline[count:]:
                batch.send()
            count *= 2
        return elected

    def offline(self, partition: Partition, state: Leadership) -> ElectionResult | None:
        """The strategy when the leader is gone."""
        may_be_unclean = self._may_be_unclean(partition[0])
        return self._elect_for_offline(partition, state, may_be_unclean=may_be_unclean)

    def unclean(self, partition: Partition, state: Leadership) -> ElectionResult | None:
        """The strategy of an administrator who gives records up to have a leader again."""
        return self._elect_for_offline(partition, state, may_be_unclean=True)

    def moved(self, partition: Partition, state: Leadership) -> ElectionResult | None:
        """The strategy at the end of a reassignment: only replicas that stay may lead."""
        target = self._context.target(partition)
        live = self._context.online_among(target, partition)
        return elect_for_reassigned_partition(target, state.isr, live)

    def unchanged(self, partition: Partition, state: Leadership) -> ElectionResult | None:
        """No election: the same leader in a new epoch, so that what was said before is stale."""
        return ElectionResult(state.leader, state.isr)

    def preferred(self, partition: Partition, state: Leadership) -> ElectionResult | None:
        """The strategy that gives leadership back to the first replica."""
        replicas = self._context.assigned(partition)
        if state.leader == replicas[0]:
            return None
        live = self._context.online_among(replicas[:1], partition)
        return elect_preferred_replica(replicas, state.isr, live)

    def controlled_shutdown(self, partition: Partition, state: Leadership) -> ElectionResult | None:
        """The strategy that takes leadership from nodes about to stop."""
        return elect_for_controlled_shutdown(
            self._context.assigned(partition),
            state.isr,
            self._context.nodes,
            self._context.shutting_down,
        )

    def _elect_for_offline(
        self, partition: Partition, state: Leadership, *, may_be_unclean: bool
    ) -> ElectionResult | None:
        replicas = self._context.assigned(partition)
        # Not of the replicas alone: a state may name others as in sync.
        live = self._context.online_among((*replicas, *state.isr), partition)
        return elect_for_offline_partition(replicas, state.isr, live, may_be_unclean=may_be_unclean)

    def _is_led(self, topic: str) -> bool:
        """Some partition of the topic has a state."""
        leaders = self._context.leaders
        return any((topic, index) in leaders for index in self._context.assignments[topic])

    def _movable(self, partitions: Iterable[Partition]) -> list[Partition]:
        current = self._context.partitions
        return valid_transitions(partitions, PartitionStatus.ONLINE, current, PARTITION_TRANSITIONS)

    def _led(self, partition: Partition, state: Leadership, former: int | None = None) -> None:
        self._handovers.began(partition, former, state.leader)
        self._context.leaders[partition] = state
        self._context.partitions[partition] = (
            PartitionStatus.OFFLINE if state.leader == NO_LEADER else PartitionStatus.ONLINE
        )

    def _report_loss(self, partition: Partition, choice: ElectionResult) -> None:
        if choice.is_unclean:
            log.error(
                "elected outside the in-sync set, acknowledged records may be lost "
                "partition=%s-%d leader=%d",
                *partition,
                choice.leader,
            )
