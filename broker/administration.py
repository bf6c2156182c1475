"""The handlers for administrators, put together: settings, partitions, elections, moves, disks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol

from barnabas.broker.storage.log_manager import LogManager
from barnabas.client.zookeeper.interface import ZooKeeper

from .controller.controller import Controller
from .controller.create_partitions import PartitionCreator
from .handlers.alter_configs import AlterConfigsHandler
from .handlers.call import Handler
from .handlers.create_partitions import PartitionsHandler
from .handlers.describe_configs import ConfigsHandler
from .handlers.describe_log_dirs import LogDirsHandler
from .handlers.elect_leaders import ElectionsHandler
from .handlers.partition_reassignments import ReassignmentsHandler
from .metadata.metadata_cache import MetadataCache
from .replication.replica_manager import ReplicaManager
from .settings.config_changes import ConfigChanges
from .settings.dynamic_node_config import DynamicNodeConfig
from .settings.node_config import NodeConfig
from .settings.topic_configs import TopicConfigs
from .storage.files import Files


class Handlers(Protocol):
    """Whatever serves some APIs."""

    def handlers(self) -> Mapping[int, Handler]:
        """What to register with the dispatcher."""


def administration(
    node_id: int,
    config: NodeConfig,
    *,
    zookeeper: ZooKeeper,
    metadata: MetadataCache,
    controller: Controller,
    topic_configs: TopicConfigs,
    node_configs: DynamicNodeConfig,
    logs: LogManager,
    replicas: ReplicaManager,
    files: Files,
    check_listeners: Callable[[NodeConfig], Awaitable[None]],
) -> Iterable[Handlers]:
    """One handler an area, each with what it needs of the node."""
    return (
        ConfigsHandler(node_id, metadata, topic_configs, node_configs),
        AlterConfigsHandler(
            node_id,
            metadata,
            ConfigChanges(zookeeper),
            topic_configs,
            node_configs,
            check_listeners,
        ),
        PartitionsHandler(
            PartitionCreator(zookeeper),
            metadata,
            is_controller=lambda: controller.is_active,
            heard=controller.heard,
        ),
        ElectionsHandler(controller, metadata),
        ReassignmentsHandler(controller),
        LogDirsHandler(logs, replicas, files),
    )
