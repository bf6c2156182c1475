"""The group coordinator of a node, and what tells it which offsets partitions it answers for.

Source: docs/spec/coordinator.md §1; docs/spec/reliability.md §3.1 (who begins to lead waits until
no older lease lasts).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection

from barnabas.broker.controller.auto_topic_creation import AutoTopicCreation
from barnabas.broker.liveness.liveness import Liveness
from barnabas.broker.metadata.metadata_cache import MetadataCache
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.replication.state_log_port import StateLogPort
from barnabas.broker.runtime import gc_tuning
from barnabas.broker.settings.node_config import NodeConfig
from barnabas.broker.storage.files import Files
from barnabas.client.connection.connection import Connection
from barnabas.client.zookeeper.interface import ZooKeeper
from barnabas.coordinator.group_coordinator import GroupCoordinator
from barnabas.coordinator.ports import OFFSETS_TOPIC

from .audit_topic_writer import AuditTopicWriter
from .coordinator_ports import CoordinatorTopics, ZooKeeperOffsetsPort
from .offsets_topic_partitions import OffsetsTopic


class GroupCoordinatorHost:
    """Makes the coordinator, and hands it elections as soon as its node may answer for them."""

    def __init__(
        self,
        config: NodeConfig,
        node_id: int,
        *,
        zookeeper: ZooKeeper,
        replicas: ReplicaManager,
        liveness: Liveness,
        metadata: MetadataCache,
        creation: AutoTopicCreation,
        files: Files,
        now_ms: Callable[[], int],
        rng: random.Random,
        dial: Callable[[str, int], Awaitable[Connection]],
        locate: Callable[[int], tuple[str, int] | None],
    ) -> None:
        """``locate`` gives the address that ``dial`` takes, of another node or of this one."""
        loop = asyncio.get_running_loop()
        self._replicas = replicas
        self._liveness = liveness
        self._metadata = metadata
        self._known_topics: frozenset[str] = frozenset()
        self._audit_topic = AuditTopicWriter(
            metadata, create=creation.ask, dial=dial, locate=locate, now_ms=now_ms
        )
        self.groups = GroupCoordinator(
            node_id=node_id,
            config=config.coordinator,
            log=StateLogPort(replicas, OFFSETS_TOPIC, loop, liveness.lease.holds, files),
            topics=CoordinatorTopics(
                node_id,
                metadata,
                creation.ask,
                offsets_partitions=lambda: self.offsets_topic.partition_count,
                may_answer=liveness.lease.holds,
                ordered=self._ordered,
            ),
            zookeeper_offsets=ZooKeeperOffsetsPort(zookeeper),
            loop=loop,
            now_ms=now_ms,
            random=rng,
            lease_problem=liveness.problem,
            audit_log=self._audit_topic,
        )
        self.groups.when_loaded = once = gc_tuning.FirstLoadFreeze()
        self.groups.loader.after_slice = once.after_slice
        self.offsets_topic = OffsetsTopic(
            zookeeper, self.groups.start, self.groups.offsets_topic_lost
        )
        metadata.on_change.append(lambda: self.offsets_topic.take(metadata.snapshot))
        replicas.on_elected.append(self._elected)
        replicas.on_resigned.append(self._resigned)
        metadata.on_change.append(self.groups.topics_changed)
        liveness.when_lease_begins(self.groups.topics_changed)

    async def close(self) -> None:
        """Keep what makes the next start quick, then stop."""
        await self.groups.save()
        self.groups.stop()
        await self._audit_topic.close()

    def forget_former_session(self, broker_epoch: int) -> None:
        """The session is lost: what was led may be led by others, whose word is to be awaited.

        ``broker_epoch`` is that of the registration that went with it.

        Before the node is registered anew: a session gives it a lease again at once, and a
        controller tells it again what it leads, in most cases in a new leader epoch.
        """
        self._liveness.forget_waiting()
        self._replicas.forget_former_session(broker_epoch)
        self.groups.resign()

    def forget_deleted_topics(self) -> Collection[str]:
        """The metadata changed: drop the offsets of topics that are gone, and name those."""
        topics = self._metadata.snapshot.topics
        gone = [topic for topic in self._known_topics if topic not in topics]
        self._known_topics = frozenset(topics)
        if gone:
            self.groups.topics_deleted(gone)
        return gone

    def _ordered(self, partition: int) -> tuple[int, int] | None:
        """Leader and leader epoch of a replica here, as the controller last ordered."""
        hosted = self._replicas.get(OFFSETS_TOPIC, partition)
        if hosted is None:
            return None
        is_over = hosted.leader_id == self._replicas.node_id and not hosted.is_leader
        return -1 if is_over else hosted.leader_id, hosted.leader_epoch

    def _elected(self, topic: str, partition: int, leader_epoch: int) -> None:
        hosted = self._replicas.get(topic, partition)
        if topic != OFFSETS_TOPIC or hosted is None:
            return

        def begin() -> None:
            if hosted.is_leader and hosted.leader_epoch == leader_epoch:
                self.groups.on_elected(partition, leader_epoch)

        self._liveness.when_settled(hosted.controller_epoch, begin)

    def _resigned(self, topic: str, partition: int, leader_epoch: int | None) -> None:
        if topic == OFFSETS_TOPIC:
            self.groups.on_resigned(partition, leader_epoch)
