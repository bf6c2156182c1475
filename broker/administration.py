"""The handlers for administrators, put together: settings, partitions, elections, moves, disks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol

from barnabas.client.ensemble import ZooKeeper

from .config import NodeConfig
from .config_changes import ConfigChanges
from .controller.controller import Controller
from .controller.growth import TopicGrowth
from .handlers.alter_configs import AlterConfigsHandler
from .handlers.call import Handler
from .handlers.configs import ConfigsHandler
from .handlers.elections import ElectionsHandler
from .handlers.log_dirs import LogDirsHandler
from .handlers.partitions import PartitionsHandler
from .handlers.reassignments import ReassignmentsHandler
from .metadata import MetadataCache
from .node_configs import NodeConfigs
from .replication.replicas import Replicas
from .storage.files import Files
from .storage.manager import LogManager
from .topic_configs import TopicConfigs


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
    node_configs: NodeConfigs,
    logs: LogManager,
    replicas: Replicas,
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
            TopicGrowth(zookeeper),
            metadata,
            is_controller=lambda: controller.is_active,
            heard=controller.heard,
        ),
        ElectionsHandler(controller, metadata),
        ReassignmentsHandler(controller),
        LogDirsHandler(logs, replicas, files),
    )
