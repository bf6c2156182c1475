"""Bounds what moving copies costs: as kafka-reassign-partitions --throttle does, and its way back.

    of each node that sends or takes   leader.replication.throttled.rate, follower....rate
    of each topic that is moved        leader.replication.throttled.replicas, follower....replicas

Source: docs/spec/security.md §9; KIP-73.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.partition_admin import alter_node_settings
from barnabas.client.admin.topic_changes import alter_settings
from barnabas.client.admin.topic_configs import describe_settings
from barnabas.client.cluster import Cluster, TopicPartition
from barnabas.client.errors import raise_for
from barnabas.protocol.messages import describe_configs

RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
REPLICAS: Final = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)
_BROKER: Final = 4
_DYNAMIC: Final = 2
"""The source of a setting that this node was given while it runs."""

Copies = Mapping[TopicPartition, tuple[Sequence[int], Sequence[int]]]
"""By partition, which nodes have it and which are to copy it."""


async def set_throttle(admin: Admin, copies: Copies, bytes_per_second: int) -> None:
    """Before the moves begin, so that nothing is copied unbounded. Raises KafkaError."""
    pairs: dict[str, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    nodes: set[int] = set()
    for place, (sources, targets) in sorted(copies.items()):
        senders, takers = pairs[place.topic]
        senders += (f"{place.partition}:{node}" for node in sources)
        takers += (f"{place.partition}:{node}" for node in targets)
        nodes |= {*sources, *targets}
    for topic, lists in sorted(pairs.items()):
        settings = {name: ",".join(words) for name, words in zip(REPLICAS, lists, strict=True)}
        await alter_settings(admin.cluster, topic, settings)
    up = {node.id for node in await admin.cluster.nodes()}
    for node in sorted(nodes & up):
        rates = dict.fromkeys(RATES, str(bytes_per_second))
        await alter_node_settings(admin.cluster, node, rates)


async def throttled_nodes(cluster: Cluster, nodes: Iterable[int]) -> dict[int, dict[str, str]]:
    """Which nodes were given a bound while they run, and which one. Raises KafkaError."""
    found: dict[int, dict[str, str]] = {}
    for node in nodes:
        request = describe_configs.DescribeConfigsRequest(
            resources=[
                describe_configs.Resource(
                    resource_type=_BROKER, resource_name=str(node), configuration_keys=list(RATES)
                )
            ]
        )
        answer = await cluster.to_node(node, request, _codes)
        raise_for(answer.results[0].error_code, answer.results[0].error_message)
        given = {
            setting.name: setting.value
            for setting in answer.results[0].configs
            if setting.config_source == _DYNAMIC and setting.value is not None
        }
        if given:
            found[node] = given
    return found


async def clear_throttle(
    admin: Admin, topics: Iterable[str] | None = None, nodes: Iterable[int] | None = None
) -> list[str]:
    """Take bounds back, of these or of all; what was cleared, in words. Raises KafkaError."""
    up = [node.id for node in await admin.cluster.nodes()]
    asked = up if nodes is None else [node for node in sorted(nodes) if node in up]
    given = await throttled_nodes(admin.cluster, asked)
    for node, rates in given.items():
        await alter_node_settings(admin.cluster, node, dict.fromkeys(rates))
    names = topics
    if names is None:
        names = [topic.name for topic in await admin.list_topics()]
    cleared = [f"node {node}" for node in given]
    for topic, settings in (await describe_settings(admin.cluster, sorted(set(names)))).items():
        own = [
            setting.name
            for setting in settings
            if setting.name in REPLICAS and setting.source == "DYNAMIC_TOPIC_CONFIG"
        ]
        if own:
            await alter_settings(admin.cluster, topic, {}, own)
            cleared.append(f"topic {topic}")
    return cleared


def _codes(answer: Any) -> Iterable[int]:
    return (result.error_code for result in answer.results)
