"""What tells a coordinator which partitions of its topic it answers for, and from when on.

Source: docs/spec/coordinator.md §1; docs/spec/reliability.md §3.1 (who begins to lead waits until
no older lease lasts).
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.broker.liveness.liveness import Liveness
from barnabas.broker.replication.replica_manager import ReplicaManager


class LeadershipNotices:
    """Hands on elections as soon as the node may answer for them, resignations at once."""

    def __init__(
        self,
        topic: str,
        replicas: ReplicaManager,
        liveness: Liveness,
        *,
        on_elected: Callable[[int, int], None],
        on_resigned: Callable[[int, int | None], None],
    ) -> None:
        """Both are called with partition and leader epoch, None where the replica was deleted."""
        self._topic = topic
        self._replicas = replicas
        self._liveness = liveness
        self._on_elected = on_elected
        self._on_resigned = on_resigned
        replicas.on_elected.append(self._elected)
        replicas.on_resigned.append(self._resigned)

    def ordered(self, partition: int) -> tuple[int, int] | None:
        """Leader and leader epoch of a replica here, as the controller last ordered."""
        hosted = self._replicas.get(self._topic, partition)
        if hosted is None:
            return None
        is_over = hosted.leader_id == self._replicas.node_id and not hosted.is_leader
        return -1 if is_over else hosted.leader_id, hosted.leader_epoch

    def _elected(self, topic: str, partition: int, leader_epoch: int) -> None:
        if topic != self._topic:
            return
        hosted = self._replicas.get(topic, partition)
        if hosted is None:
            return

        def begin() -> None:
            if hosted.is_leader and hosted.leader_epoch == leader_epoch:
                self._on_elected(partition, leader_epoch)

        self._liveness.when_settled(hosted.controller_epoch, begin)

    def _resigned(self, topic: str, partition: int, leader_epoch: int | None) -> None:
        if topic == self._topic:
            self._on_resigned(partition, leader_epoch)
