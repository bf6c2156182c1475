"""The transaction coordinator of a node, put together with what it needs of the node.

Source: docs/spec/transactions.md §1.1, §3.2, §3.3 and §10.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from barnabas.broker.controller.auto_topic_creation import AutoTopicCreation
from barnabas.broker.liveness.liveness import Liveness
from barnabas.broker.metadata.metadata_cache import MetadataCache
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.replication.state_log_port import StateLogPort
from barnabas.broker.settings.node_config import NodeConfig
from barnabas.broker.storage.files import Files
from barnabas.client.zookeeper.interface import ZooKeeper
from barnabas.coordinator.ports import OFFSETS_TOPIC, TRANSACTION_TOPIC
from barnabas.coordinator.transactions.ports import Markers, ProducerIds
from barnabas.coordinator.transactions.service import TransactionCoordinator

from .coordinator_ports import CoordinatorTopics
from .leadership_notices import LeadershipNotices
from .state_topic_partitions import StateTopic


class TransactionCoordinatorHost:
    """Makes the coordinator, and tells it of elections and of its topic."""

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
        markers: Markers,
        producer_ids: ProducerIds,
        offsets_partitions: Callable[[], int | None],
    ) -> None:
        """``offsets_partitions`` counts those of the offsets topic; None until it is found."""
        loop = asyncio.get_running_loop()
        counts: Mapping[str, Callable[[], int | None]] = {
            OFFSETS_TOPIC: offsets_partitions,
            TRANSACTION_TOPIC: lambda: self.topic.partition_count,
        }
        self.topics = CoordinatorTopics(
            node_id,
            metadata,
            creation.ask,
            topic=TRANSACTION_TOPIC,
            counts=counts,
            may_answer=liveness.lease.holds,
            ordered=lambda partition: self._notices.ordered(partition),
        )
        self.transactions = TransactionCoordinator(
            node_id=node_id,
            config=config.transactions,
            log=StateLogPort(replicas, TRANSACTION_TOPIC, loop, liveness.lease.holds, files),
            topics=self.topics,
            markers=markers,
            producer_ids=producer_ids,
            loop=loop,
            now_ms=now_ms,
            lease_problem=liveness.problem,
        )
        self.on_found: Callable[[], None] = lambda: None
        """Called when the topic is there: who asked for a coordinator may be answered."""
        self.topic = StateTopic(
            TRANSACTION_TOPIC, zookeeper, self._found, self.transactions.topic_lost
        )
        metadata.on_change.append(lambda: self.topic.take(metadata.snapshot))
        self._notices = LeadershipNotices(
            TRANSACTION_TOPIC,
            replicas,
            liveness,
            on_elected=self.transactions.on_elected,
            on_resigned=self.transactions.on_resigned,
        )
        metadata.on_change.append(self.transactions.topics_changed)
        liveness.when_lease_begins(self.transactions.topics_changed)

    def _found(self, partition_count: int) -> None:
        self.transactions.start(partition_count)
        self.on_found()

    def forget_former_session(self) -> None:
        """The session is lost: what was led may be led by others.

        The replicas know already (``GroupCoordinatorHost.forget_former_session``): no election of
        before is handed on any more.
        """
        self.transactions.resign()

    def close(self) -> None:
        """Answer nothing any more."""
        self.transactions.stop()
