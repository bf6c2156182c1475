"""The group coordinator of a node, put together with what it needs of the node.

Source: docs/spec/coordinator.md §1.
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
from barnabas.coordinator.consumer_groups.group_settings import SettingsOf
from barnabas.coordinator.group_coordinator import GroupCoordinator
from barnabas.coordinator.ports import OFFSETS_TOPIC, TransactionLookup, TransactionVerification

from .audit_topic_writer import AuditTopicWriter
from .coordinator_ports import CoordinatorTopics, ZooKeeperOffsetsPort
from .leadership_notices import LeadershipNotices
from .state_topic_partitions import StateTopic
from .topic_catalog import NodeTopicCatalog


class GroupCoordinatorHost:
    """Makes the coordinator, and tells it of elections, of its topic and of deleted topics."""

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
        verification: TransactionVerification,
        transaction_lookup: TransactionLookup,
        settings_of: SettingsOf,
    ) -> None:
        """``locate`` gives what ``dial`` takes of a node; ``settings_of`` what a group is given."""
        loop = asyncio.get_running_loop()
        self._replicas = replicas
        self._liveness = liveness
        self._metadata = metadata
        self._known_topics: frozenset[str] = frozenset()
        self._audit_topic = AuditTopicWriter(
            metadata, create=creation.ask, dial=dial, locate=locate, now_ms=now_ms
        )
        self.topic_catalog = NodeTopicCatalog(
            metadata, is_enabled=config.coordinator.offers_consumer_groups
        )
        self.groups = GroupCoordinator(
            node_id=node_id,
            config=config.coordinator,
            log=StateLogPort(replicas, OFFSETS_TOPIC, loop, liveness.lease.holds, files),
            topics=self._topics(node_id, creation),
            zookeeper_offsets=ZooKeeperOffsetsPort(zookeeper),
            loop=loop,
            now_ms=now_ms,
            random=rng,
            lease_problem=liveness.problem,
            audit_log=self._audit_topic,
            verification=verification,
            transaction_lookup=transaction_lookup,
            catalog=self.topic_catalog,
            settings_of=settings_of,
        )
        self._notices = LeadershipNotices(
            OFFSETS_TOPIC,
            replicas,
            liveness,
            on_elected=self.groups.on_elected,
            on_resigned=self.groups.on_resigned,
        )
        self.topic = StateTopic(
            OFFSETS_TOPIC, zookeeper, self.groups.start, self.groups.offsets_topic_lost
        )
        self._connect_callbacks()

    def _topics(self, node_id: int, creation: AutoTopicCreation) -> CoordinatorTopics:
        return CoordinatorTopics(
            node_id,
            self._metadata,
            creation.ask,
            topic=OFFSETS_TOPIC,
            counts={OFFSETS_TOPIC: lambda: self.topic.partition_count},
            may_answer=self._liveness.lease.holds,
            ordered=lambda partition: self._notices.ordered(partition),
        )

    def _connect_callbacks(self) -> None:
        """Loads end, the metadata changes, a lease begins."""
        groups, metadata = self.groups, self._metadata
        groups.when_loaded = once = gc_tuning.FirstLoadFreeze()
        groups.loader.after_slice = once.after_slice
        metadata.on_change.append(lambda: self.topic.take(metadata.snapshot))
        metadata.on_change.append(groups.topics_changed)
        self._liveness.when_lease_begins(groups.topics_changed)

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
        self.groups.topics_known(topics)
        gone = [topic for topic in self._known_topics if topic not in topics]
        self._known_topics = frozenset(topics)
        if gone:
            self.groups.topics_deleted(gone)
        return gone
