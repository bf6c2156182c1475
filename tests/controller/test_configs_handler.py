"""The settings of topics and of a node, as clients are told them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from barnabas.broker.controller.create_topics import RequestedTopic
from barnabas.broker.handlers.describe_configs import NODE, PROTOCOL, TOPIC, DescribeConfigsHandler
from barnabas.broker.settings.dynamic_node_config import DynamicNodeConfig
from barnabas.broker.settings.group_configs import GroupConfigs
from barnabas.broker.settings.node_config import SECTIONS, load
from barnabas.broker.settings.topic_configs import TopicConfigs
from barnabas.broker.settings.unsupported_settings import HIDDEN_NAMES, UNSUPPORTED_SETTINGS
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import describe_configs as messages
from barnabas.protocol.settings import declared
from tests.controller.small_cluster import SmallCluster
from tests.handlers.peer import call, over_the_wire

GOLDEN: Final = Path(__file__).parents[1] / "golden" / "node-configs.json"
OF_TOPICS: Final = {"log.preallocate", "log.local.retention.ms", "log.local.retention.bytes"}
"""What topics inherit and nobody acts on."""
SETTINGS = {
    "zookeeper.connect": "z:1",
    "log.dirs": "d",
    "log.retention.hours": "1",
    "cluster.secret": "hush",
}


@pytest.fixture
async def handler(cluster: SmallCluster) -> DescribeConfigsHandler:
    """Node 1 of a cluster with one topic, which sets one thing itself."""
    node = await cluster.start(1)
    await cluster.elected()
    writer = cluster.writer()
    await writer.create(
        await writer.plan(RequestedTopic(name="t", configs={"segment.bytes": "77"}))
    )
    await cluster.led("t", 0, 1)
    configs = TopicConfigs(cluster.observer, lambda: 0)
    config = load(SETTINGS)
    nodes = DynamicNodeConfig(cluster.observer, 1, config)
    groups = GroupConfigs(cluster.observer, lambda: 0, config.coordinator)
    return DescribeConfigsHandler(1, node.cache, configs, groups, nodes)


async def described(
    handler: DescribeConfigsHandler,
    kind: int,
    name: str,
    version: int = 4,
    keys: Sequence[str] | None = None,
    **wishes: bool,
) -> Any:
    resource = messages.Resource(resource_type=kind, resource_name=name, configuration_keys=keys)
    request = messages.DescribeConfigsRequest(resources=[resource], **wishes)
    answer = await handler.describe(call(request, version))
    return over_the_wire(answer, version).results[0]


async def test_a_topic_has_its_own_settings_the_nodes_and_the_defaults(
    handler: DescribeConfigsHandler,
) -> None:
    result = await described(handler, TOPIC, "t")
    found = {config.name: (config.value, config.config_source) for config in result.configs}
    assert result.error_code == ErrorCode.NONE
    assert found["segment.bytes"] == ("77", 1)
    assert found["retention.ms"] == ("3600000", 5), "given in hours alone"
    assert found["cleanup.policy"] == ("delete", 5)
    assert found["preallocate"] == ("false", 5)
    assert found["remote.storage.enable"] == ("false", 5)
    assert found["local.retention.bytes"] == ("-2", 5)


async def test_only_what_is_asked_for_is_told_with_what_would_hold_without_it(
    handler: DescribeConfigsHandler,
) -> None:
    result = await described(handler, TOPIC, "t", keys=["segment.bytes"], include_synonyms=True)
    (config,) = result.configs
    assert (config.config_type, config.documentation) == (3, None)
    assert [(other.name, other.value, other.source) for other in config.synonyms] == [
        ("segment.bytes", "77", 1),
        ("log.segment.bytes", str(1 << 30), 5),
    ]
    documented = await described(handler, TOPIC, "t", include_documentation=True)
    assert all(config.documentation for config in documented.configs)
    tiering = {config.name: config for config in documented.configs}["remote.storage.enable"]
    assert (tiering.config_type, tiering.documentation[:13]) == (1, "not enforced:")


async def test_version_0_tells_defaults_apart(handler: DescribeConfigsHandler) -> None:
    result = await described(handler, TOPIC, "t", version=0)
    defaults = {config.name: config.is_default for config in result.configs}
    assert not defaults["segment.bytes"]
    assert defaults["cleanup.policy"]


async def test_a_node_tells_what_consoles_look_for_and_no_secret(
    handler: DescribeConfigsHandler,
) -> None:
    result = await described(handler, NODE, "1", include_synonyms=True)
    found = {config.name: config for config in result.configs}
    assert len(found) == len(result.configs)
    assert found["delete.topic.enable"].value == "true"
    assert found["inter.broker.protocol.version"].value == "2.7-IV1"
    assert found["log.retention.ms"].value == "3600000"
    assert found["offsets.topic.num.partitions"].value == "50"
    assert found["broker.rack"].value is None
    assert found["cluster.secret"].is_sensitive
    assert "hush" not in repr(result)


async def test_a_node_tells_every_setting_that_it_has_or_that_kafka_tells(
    handler: DescribeConfigsHandler,
) -> None:
    result = await described(handler, NODE, "1", include_documentation=True)
    found = {config.name: config for config in result.configs}
    kafka = json.loads(GOLDEN.read_text())["configs"]
    ours = {name for section in SECTIONS for name in declared(section)}
    assert found.keys() == (kafka.keys() | ours) - HIDDEN_NAMES
    for name, (_, _, scope) in kafka.items():
        is_fixed = scope is None or (name in ours and name.startswith("sasl."))
        assert found[name].read_only is is_fixed, name
    assert all(found[name].read_only for name in ours - kafka.keys() - HIDDEN_NAMES)
    unmeant = {name for name, each in found.items() if each.documentation[:13] == "not enforced:"}
    assert unmeant >= {"num.io.threads", "queued.max.requests", "client.quota.callback.class"}
    assert unmeant - OF_TOPICS - {PROTOCOL.name} <= UNSUPPORTED_SETTINGS.keys()
    assert found["sasl.jaas.config"].is_sensitive
    assert (found["num.io.threads"].value, found["num.io.threads"].config_source) == ("8", 5)


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "no/name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NODE, "2", ErrorCode.INVALID_REQUEST),
        (NODE, "", ErrorCode.NONE),
        (8, "1", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_what_is_not_there_to_describe_has_its_code(
    handler: DescribeConfigsHandler, kind: int, name: str, code: ErrorCode
) -> None:
    result = await described(handler, kind, name)
    assert result.error_code == code
    assert not result.configs


async def test_a_node_tells_the_types_that_kafka_tells(handler: DescribeConfigsHandler) -> None:
    types = json.loads(GOLDEN.read_text())["types"]
    result = await described(handler, NODE, "1")
    told = {config.name: config.config_type for config in result.configs}
    assert {name: told[name] for name in types} == types


async def test_levels_of_compression_and_in_sync_replicas_are_told_as_int(
    handler: DescribeConfigsHandler,
) -> None:
    names = {f"compression.{codec}.level" for codec in ("gzip", "lz4", "zstd")}
    result = await described(handler, TOPIC, "t", version=4)
    found = {config.name: config.config_type for config in result.configs}
    assert {found[name] for name in (*names, "min.insync.replicas")} == {3}
