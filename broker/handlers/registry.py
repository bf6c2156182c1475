"""Which handler serves which API: every handler of a node is made and registered here.

Source: docs/spec/protocol.md §2 (the APIs that are served).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from barnabas.broker.authorizer.access_control import AccessControl
from barnabas.broker.controller.controller import Controller
from barnabas.broker.controller.create_partitions import PartitionCreator
from barnabas.broker.controller.create_topics import TopicCreator
from barnabas.broker.markers.receiver import MarkerWriter
from barnabas.broker.metadata.metadata_cache import MetadataCache
from barnabas.broker.quota.quotas import Quotas
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.security.audit_log import AuditLog
from barnabas.broker.security.credential_cache import CredentialCache
from barnabas.broker.security.delegation_tokens import DelegationTokens
from barnabas.broker.security.scram_credentials import ScramCredentials
from barnabas.broker.settings.config_changes import ConfigChanges
from barnabas.broker.settings.dynamic_node_config import DynamicNodeConfig
from barnabas.broker.settings.group_configs import GroupConfigs
from barnabas.broker.settings.node_config import NodeConfig
from barnabas.broker.settings.topic_configs import TopicConfigs
from barnabas.broker.storage.files import Files
from barnabas.broker.storage.log_manager import LogManager
from barnabas.broker.verification.verifier import Verifier
from barnabas.client.zookeeper.interface import ZooKeeper
from barnabas.coordinator.group_coordinator import GroupCoordinator
from barnabas.coordinator.transactions.service import TransactionCoordinator
from barnabas.protocol.errors import ErrorCode

from . import sasl
from .acls import AclsHandler
from .alter_configs import AlterConfigsHandler
from .api_versions import ApiVersionsHandler
from .audited_changes import audited
from .authorization import guarded
from .call import Handler, Peer
from .client_quotas import ClientQuotasHandler
from .control_plane import ControlPlaneHandler
from .conversion_process import ConversionProcess
from .create_partitions import CreatePartitionsHandler
from .delegation_tokens import DelegationTokensHandler
from .delete_records import DeleteRecordsHandler
from .describe_cluster import DescribeClusterHandler
from .describe_configs import DescribeConfigsHandler, inherited_sources
from .describe_log_dirs import DescribeLogDirsHandler
from .describe_producers import DescribeProducersHandler
from .elect_leaders import ElectLeadersHandler
from .fetch import FetchHandler
from .fetch_sessions import FetchSessionCache
from .fetch_topic_ids import FetchTopicIds
from .groups import GroupsHandler
from .guards import GuardContext
from .leader_hints import LeaderHints
from .list_config_resources import ListConfigResourcesHandler
from .list_offsets import ListOffsetsHandler
from .metadata import MetadataHandler
from .offset_for_leader_epoch import OffsetForLeaderEpochHandler
from .partition_reassignments import PartitionReassignmentsHandler
from .produce import ProduceHandler
from .scram_users import ScramUsersHandler
from .stale_leaders import StaleLeaders
from .topics import TopicsHandler
from .transactional import TransactionalBatches
from .transactions import TransactionsHandler
from .update_features import UpdateFeaturesHandler
from .write_txn_markers import WriteTxnMarkersHandler


class ApiHandler(Protocol):
    """Serves one API, or some that belong together."""

    def handlers(self) -> Mapping[int, Handler]:
        """What to register with the dispatcher, by API key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerDependencies:
    """The parts of a node that handlers use."""

    config: NodeConfig
    node_id: int
    cluster_id: str
    loop: asyncio.AbstractEventLoop
    now_ms: Callable[[], int]
    rng: random.Random
    zookeeper: ZooKeeper
    files: Files
    logs: LogManager
    replicas: ReplicaManager
    metadata: MetadataCache
    controller: Controller
    groups: GroupCoordinator
    topic_configs: TopicConfigs
    group_configs: GroupConfigs
    node_configs: DynamicNodeConfig
    credentials: CredentialCache
    tokens: DelegationTokens | None
    """None where no secret for delegation tokens is configured."""
    topic_creator: TopicCreator
    conversions: ConversionProcess
    supported_versions: Callable[[Peer], list[tuple[int, int]]]
    """What ApiVersions tells a peer; the dispatcher knows."""
    offers_consumer_groups: Callable[[], bool]
    """Whether groups of KIP-848 are on in all of the cluster now."""
    auto_create: Callable[[str], bool] | None
    """Has a topic created that a client asks about; None where that is switched off."""
    auto_create_answer: Callable[[str], ErrorCode]
    """What such a topic is answered with: that it comes, or why it cannot."""
    transactions: TransactionCoordinator
    marker_writer: MarkerWriter
    verifier: Verifier
    verifies_transactions: Callable[[], bool]
    """Whether ``transaction.partition.verification.enable`` is on now."""
    answer_bytes_left: Callable[[], int]
    """How many bytes of fetch answers may still be made before slow readers take them."""
    holds_lease: Callable[[], bool]
    broker_epoch: Callable[[], int]
    check_listeners: Callable[[NodeConfig], Awaitable[None]]
    """Raises ConfigError for listeners that could not be bound."""
    fetch_sessions: FetchSessionCache
    quotas: Quotas
    acls: AccessControl | None
    """Who may do what; None where no authorizer is configured: then everybody everything."""
    audit: AuditLog
    """Told of every change that somebody asks for."""

    @property
    def rights(self) -> GuardContext | None:
        """What guards ask; None where nothing is asked."""
        if self.acls is None:
            return None
        return GuardContext(self.acls.authorizer, lambda: self.controller.is_active, self.metadata)


def register_handlers(
    register: Callable[[Mapping[int, Handler]], None], node: HandlerDependencies
) -> None:
    """Hand every handler of the node to ``register``, the dispatcher's."""
    register(
        ApiVersionsHandler(
            node.supported_versions,
            offers_consumer_groups=node.offers_consumer_groups,
            features_epoch=lambda: node.metadata.controller_epoch,
        ).handlers()
    )
    register(sasl.handlers())
    for area in (_records, _groups, _cluster, _administration):
        for handler in area(node):
            register(audited(guarded(handler.handlers(), node.rights), node.audit))


def _records(node: HandlerDependencies) -> Iterator[ApiHandler]:
    leaders = LeaderHints(node.metadata, node.replicas)
    stale_leaders = StaleLeaders(node.holds_lease)
    yield ProduceHandler(
        node.replicas,
        loop=node.loop,
        now_ms=node.now_ms,
        transactions=TransactionalBatches(
            node.verifier, is_enabled=node.verifies_transactions, now_ms=node.now_ms
        ),
        conversions=node.conversions,
        leaders=leaders,
    )
    yield FetchHandler(
        node.replicas,
        loop=node.loop,
        bytes_max=node.config.network.fetch_max_bytes,
        room=node.answer_bytes_left,
        sessions=node.fetch_sessions,
        leader_quota=node.quotas.replication.leader,
        topic_ids=FetchTopicIds(node.metadata, leaders),
        stale_leaders=stale_leaders,
        conversions=node.conversions,
        rights=node.rights,
    )
    yield ListOffsetsHandler(node.replicas, node.conversions)
    yield DeleteRecordsHandler(node.replicas, node.logs.write_log_starts, loop=node.loop)
    yield OffsetForLeaderEpochHandler(node.replicas, stale_leaders)


def _groups(node: HandlerDependencies) -> Iterator[ApiHandler]:
    yield GroupsHandler(node.groups, node.rights)
    yield DescribeProducersHandler(node.replicas)
    yield TransactionsHandler(node.transactions, node.groups)
    yield WriteTxnMarkersHandler(node.marker_writer)


def _cluster(node: HandlerDependencies) -> Iterator[ApiHandler]:
    yield MetadataHandler(
        node.metadata,
        node.cluster_id,
        create=node.auto_create,
        creation_answer=node.auto_create_answer,
        mutations=node.quotas.mutations,
        partitions=node.config.topics.num_partitions,
        rights=node.rights,
    )
    yield DescribeClusterHandler(node.metadata, node.cluster_id)
    yield ControlPlaneHandler(
        node.replicas,
        node.metadata,
        node.topic_configs,
        node.controller,
        broker_epoch=node.broker_epoch,
    )


def _administration(node: HandlerDependencies) -> Iterator[ApiHandler]:
    controller, metadata = node.controller, node.metadata
    yield TopicsHandler(
        node.topic_creator,
        metadata,
        is_controller=lambda: controller.is_active,
        heard=controller.heard,
        may_delete=node.config.topics.delete_topic_enable,
        mutations=node.quotas.mutations,
        inherited=lambda: inherited_sources(node.node_configs),
    )
    yield CreatePartitionsHandler(
        PartitionCreator(node.zookeeper),
        metadata,
        is_controller=lambda: controller.is_active,
        heard=controller.heard,
        mutations=node.quotas.mutations,
    )
    yield ElectLeadersHandler(controller, metadata)
    yield PartitionReassignmentsHandler(controller)
    yield DescribeLogDirsHandler(node.logs, node.replicas, node.files)
    settings = (node.topic_configs, node.group_configs, node.node_configs)
    yield DescribeConfigsHandler(node.node_id, metadata, *settings)
    yield ListConfigResourcesHandler(metadata, node.group_configs)
    yield AlterConfigsHandler(
        node.node_id,
        metadata,
        ConfigChanges(node.zookeeper),
        *settings,
        node.check_listeners,
    )
    yield UpdateFeaturesHandler(is_controller=lambda: controller.is_active)
    yield ClientQuotasHandler(node.quotas.store)
    yield AclsHandler(node.acls)
    yield DelegationTokensHandler(node.tokens, node.rights)
    yield ScramUsersHandler(
        node.credentials,
        ScramCredentials(node.zookeeper),
        is_controller=lambda: controller.is_active,
    )
