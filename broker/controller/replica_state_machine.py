"""The replica state machine: new, online, offline, deleted; leaves the ISR on the way.

Source: docs/spec/cluster.md §2.7, §2.11 and §2.13.
"""

from __future__ import annotations

from collections.abc import Iterable

from .context import ControllerContext, Leadership, Partition, Replica
from .leader_election import ElectionResult, without_replica
from .partition_state_znodes import PartitionStateZnodes
from .request_batch import ControlRequestBatch
from .state_transitions import REPLICA_TRANSITIONS, ReplicaStatus, valid_transitions


class ReplicaStateMachine:
    """Moves replicas between states, telling the nodes that host them."""

    def __init__(self, context: ControllerContext, states: PartitionStateZnodes) -> None:
        self._context = context
        self._states = states

    def become(
        self, replicas: Iterable[Replica], status: ReplicaStatus, batch: ControlRequestBatch
    ) -> list[Replica]:
        """Move replicas to a state that needs no write to ZooKeeper; returns those that moved."""
        assert status is not ReplicaStatus.OFFLINE, "going offline writes the in-sync set"
        moved = valid_transitions(replicas, status, self._context.replicas, REPLICA_TRANSITIONS)
        for replica in moved:
            self._tell(replica, status, batch)
            if status is ReplicaStatus.NON_EXISTENT:
                del self._context.replicas[replica]
            else:
                self._context.replicas[replica] = status
        return moved

    async def go_offline(
        self,
        replicas: Iterable[Replica],
        batch: ControlRequestBatch,
        *,
        settled: Iterable[Partition] = (),
    ) -> None:
        """Stop replicas and take them out of their in-sync sets; a leader among them is no more.

        An election a moment ago took them out of the sets of ``settled`` already.
        """
        current = self._context.replicas
        moved = valid_transitions(replicas, ReplicaStatus.OFFLINE, current, REPLICA_TRANSITIONS)
        by_node: dict[int, list[Partition]] = {}
        for topic, index, node in moved:
            batch.stop((topic, index, node), delete=False)
            by_node.setdefault(node, []).append((topic, index))
            current[topic, index, node] = ReplicaStatus.OFFLINE
        done = set(settled)
        for node, partitions in sorted(by_node.items()):
            left = [partition for partition in partitions if partition not in done]
            await self._leave_in_sync_sets(node, left, batch)

    def _tell(self, replica: Replica, status: ReplicaStatus, batch: ControlRequestBatch) -> None:
        partition, node = replica[:2], replica[2]
        if status is ReplicaStatus.ONLINE and partition in self._context.leaders:
            is_new = self._context.replicas.get(replica) is ReplicaStatus.NEW
            batch.lead([node], partition, is_new=is_new)
        elif status is ReplicaStatus.DELETION_STARTED:
            batch.stop(replica, delete=True)

    async def _leave_in_sync_sets(
        self, node: int, partitions: list[Partition], batch: ControlRequestBatch
    ) -> None:
        def without(_: Partition, state: Leadership) -> ElectionResult | None:
            if node not in state.isr:
                return None
            return without_replica(state.leader, state.isr, node)

        leaders = self._context.leaders
        async for partition, *_ in self._states.change(partitions, leaders, without):
            if partition[0] not in self._context.deleting:
                others = [n for n in self._context.assigned(partition) if n != node]
                batch.lead(others, partition)
