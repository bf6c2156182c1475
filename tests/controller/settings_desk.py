"""One node's handlers for settings over a small cluster, for tests of what requests change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from barnabas.broker.handlers.alter_configs import AlterConfigsHandler
from barnabas.broker.handlers.describe_configs import DescribeConfigsHandler
from barnabas.broker.settings.config_changes import ConfigChanges
from barnabas.broker.settings.dynamic_node_config import DynamicNodeConfig
from barnabas.broker.settings.group_configs import GroupConfigs
from barnabas.broker.settings.node_config import NodeConfig, load
from barnabas.broker.settings.topic_configs import TopicConfigs
from barnabas.protocol.messages import describe_configs, incremental_alter_configs
from barnabas.protocol.zookeeper import znodes
from tests.controller.small_cluster import SmallCluster
from tests.handlers.peer import call, over_the_wire

SETTINGS: Final = {
    "zookeeper.connect": "z:1",
    "log.dirs": "d",
    "log.retention.ms": "5",
    "group.consumer.heartbeat.interval.ms": "6000",
}

Change = tuple[str, int, str | None]


@dataclass
class Desk:
    """One node's handlers for settings, with what they share."""

    cluster: SmallCluster
    alter: AlterConfigsHandler
    describe: DescribeConfigsHandler
    topics: TopicConfigs
    groups: GroupConfigs
    nodes: DynamicNodeConfig

    async def change(
        self, kind: int, name: str, *changes: Change, validate_only: bool = False
    ) -> tuple[int, str | None]:
        request = incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[resource(kind, name, changes)], validate_only=validate_only
        )
        answer = over_the_wire(await self.alter.alter(call(request, 1)), 1)
        (result,) = answer.responses
        return result.error_code, result.error_message

    async def told(self, kind: int, name: str) -> dict[str, tuple[str | None, int]]:
        resource = describe_configs.Resource(
            resource_type=kind, resource_name=name, configuration_keys=None
        )
        request = describe_configs.DescribeConfigsRequest(resources=[resource])
        answer = over_the_wire(await self.describe.describe(call(request, 4)), 4)
        return {each.name: (each.value, each.config_source) for each in answer.results[0].configs}

    async def stored(self, path: str) -> dict[str, str]:
        data, _stat = await self.cluster.observer.get(path)
        return dict(znodes.EntityConfig.from_json(data).config)


def resource(kind: int, name: str, changes: Sequence[Change]) -> incremental_alter_configs.Resource:
    return incremental_alter_configs.Resource(
        resource_type=kind,
        resource_name=name,
        configs=[
            incremental_alter_configs.Config(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ],
    )


async def _any_listeners(config: NodeConfig) -> None:
    """Binds nothing."""


async def open_desk(cluster: SmallCluster) -> Desk:
    """Of node 1, which leads the only partition of topic "t"."""
    node = await cluster.start(1)
    await cluster.create("t", {0: (1,)})
    await cluster.led("t", 0, 1)
    config = load(SETTINGS)
    topics = TopicConfigs(cluster.observer, lambda: 0)
    nodes = DynamicNodeConfig(cluster.observer, 1, config)
    groups = GroupConfigs(cluster.observer, lambda: 0, config.coordinator)
    return Desk(
        cluster,
        AlterConfigsHandler(
            1, node.cache, ConfigChanges(cluster.observer), topics, groups, nodes, _any_listeners
        ),
        DescribeConfigsHandler(1, node.cache, topics, groups, nodes),
        topics,
        groups,
        nodes,
    )
