"""Settings changed by request: of topics, of one node, of all nodes (docs/spec/cluster.md §1.6)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from barnabas.broker.handlers.config_edits import APPEND, DELETE, SET, SUBTRACT
from barnabas.broker.handlers.describe_configs import NODE, TOPIC
from barnabas.broker.settings.dynamic_node_config import DynamicNodeConfig
from barnabas.broker.settings.dynamic_settings import OF_LISTENERS
from barnabas.broker.settings.node_config import NodeConfig, load
from barnabas.broker.settings.ssl_settings import is_secret
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    alter_configs,
    incremental_alter_configs,
)
from barnabas.protocol.settings import ConfigError
from barnabas.protocol.zookeeper import znodes
from tests.controller.settings_desk import SETTINGS, Change, Desk, resource
from tests.handlers.peer import call, over_the_wire


async def test_single_settings_of_a_topic_are_set_and_taken_back(desk: Desk) -> None:
    assert await desk.change(TOPIC, "t", ("retention.ms", SET, "9"), ("flush.ms", SET, "7")) == (
        0,
        None,
    )
    assert await desk.stored("/config/topics/t") == {"retention.ms": "9", "flush.ms": "7"}
    assert (await desk.told(TOPIC, "t"))["retention.ms"] == ("9", 1)
    assert desk.topics.overrides("t")["flush.ms"] == "7"
    await desk.change(TOPIC, "t", ("retention.ms", DELETE, None))
    assert await desk.stored("/config/topics/t") == {"flush.ms": "7"}
    assert (await desk.told(TOPIC, "t"))["retention.ms"] == ("5", 4)


async def test_lists_grow_and_shrink(desk: Desk) -> None:
    await desk.change(TOPIC, "t", ("cleanup.policy", APPEND, "compact"))
    assert await desk.stored("/config/topics/t") == {"cleanup.policy": "delete,compact"}
    await desk.change(TOPIC, "t", ("cleanup.policy", APPEND, "compact"))
    await desk.change(TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete"))
    assert await desk.stored("/config/topics/t") == {"cleanup.policy": "compact"}


async def test_each_change_is_announced(desk: Desk) -> None:
    await desk.change(TOPIC, "t", ("retention.ms", SET, "9"))
    await desk.change(NODE, "1", ("log.retention.ms", SET, "9"))
    await desk.change(NODE, "", ("log.retention.ms", SET, "9"))
    names = sorted(await desk.cluster.observer.children(znodes.CONFIG_CHANGES))
    notes = [
        (await desk.cluster.observer.get(f"{znodes.CONFIG_CHANGES}/{name}"))[0] for name in names
    ]
    assert [znodes.ConfigChange.from_json(note).entity_path for note in notes] == [
        "topics/t",
        "brokers/1",
        "brokers/<default>",
    ]


@pytest.mark.parametrize(
    ("kind", "name", "change", "code"),
    [
        (TOPIC, "t", ("retention.ms", SET, "soon"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("min.insync.replicas", SET, "0"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("retention.mss", SET, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("retention.mss", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("cleanup.policy", APPEND, "burn"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("local.retention.ms", SET, "-3"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("remote.storage.enable", SET, "true"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("remote.log.copy.disable", SET, "true"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("remote.log.delete.on.disable", SET, "true"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (TOPIC, "t", ("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST),
        (TOPIC, "u", ("retention.ms", SET, "1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "", ("retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
        (TOPIC, "a/b", ("retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
        (NODE, "2", ("log.retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
        (NODE, "1", ("log.retention.ms", SET, "soon"), ErrorCode.INVALID_REQUEST),
        (NODE, "1", ("broker.id", SET, "2"), ErrorCode.INVALID_REQUEST),
        (NODE, "", ("broker.id", SET, "2"), ErrorCode.INVALID_REQUEST),
        (NODE, "1", ("log.cleaner.enable", SET, "false"), ErrorCode.INVALID_REQUEST),
        (NODE, "1", ("log.cleaner.threads", SET, "0"), ErrorCode.INVALID_REQUEST),
        (NODE, "1", ("num.io.threads", SET, "0"), ErrorCode.INVALID_REQUEST),
        (NODE, "1", ("num.io.threads", SET, "many"), ErrorCode.INVALID_REQUEST),
        (NODE, "1", ("quota.window.num", SET, "5"), ErrorCode.INVALID_REQUEST),
        (NODE, "1", ("max.connections.per.ip", SET, "0"), ErrorCode.INVALID_REQUEST),
        (NODE, "1", ("max.connections.per.ip.overrides", SET, "a"), ErrorCode.INVALID_REQUEST),
        (NODE, "1", ("producer.id.expiration.ms", SET, "0"), ErrorCode.INVALID_REQUEST),
        (NODE, "1", ("follower.replication.throttled.rate", SET, "-1"), ErrorCode.INVALID_REQUEST),
        (NODE, "1", ("sasl.enabled.mechanisms", SET, "PLAIN"), ErrorCode.INVALID_REQUEST),
        (NODE, "1", ("ssl.keystore.password", SET, "x"), ErrorCode.INVALID_REQUEST),
        (
            NODE,
            "1",
            ("listener.name.plaintext.ssl.client.auth", SET, "required"),
            ErrorCode.INVALID_REQUEST,
        ),
        (NODE, "1", ("listeners", SET, "SSL://127.0.0.1:1"), ErrorCode.INVALID_REQUEST),
        (NODE, "1", ("listeners", SET, "INTERNAL://h:1"), ErrorCode.INVALID_REQUEST),
        (NODE, "1", ("advertised.listeners", SET, "PLAINTEXT://:1"), ErrorCode.INVALID_REQUEST),
        (NODE, "1", ("advertised.listeners", SET, "OTHER://h:1"), ErrorCode.INVALID_REQUEST),
        (NODE, "", ("listeners", SET, "PLAINTEXT://127.0.0.1:1"), ErrorCode.INVALID_REQUEST),
        (NODE, "1", ("no.such.name", SET, "1"), ErrorCode.INVALID_REQUEST),
        (8, "1", ("root", SET, "DEBUG"), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_change_that_cannot_be_made_has_its_code_and_writes_nothing(
    desk: Desk, kind: int, name: str, change: Change, code: ErrorCode
) -> None:
    assert (await desk.change(kind, name, change))[0] == code
    assert await desk.stored("/config/topics/t") == {}
    assert not await desk.cluster.observer.children(znodes.CONFIG_CHANGES)


async def test_a_setting_or_resource_named_twice_is_refused(desk: Desk) -> None:
    twice = [("retention.ms", SET, "1"), ("retention.ms", DELETE, None)]
    assert (await desk.change(TOPIC, "t", *twice))[0] == ErrorCode.INVALID_REQUEST
    named = resource(TOPIC, "t", [("retention.ms", SET, "1")])
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[named, named], validate_only=False
    )
    answer = await desk.alter.alter(call(request, 0))
    assert [each.error_code for each in answer.responses] == [ErrorCode.INVALID_REQUEST] * 2


async def test_validation_writes_nothing(desk: Desk) -> None:
    changed = await desk.change(TOPIC, "t", ("retention.ms", SET, "9"), validate_only=True)
    assert changed == (0, None)
    assert await desk.stored("/config/topics/t") == {}


async def test_what_a_later_kafka_left_in_a_topics_settings_stays(desk: Desk) -> None:
    left = znodes.EntityConfig(config={"remote.copy.lag.ms": "0"}).to_json()
    await desk.cluster.observer.set("/config/topics/t", left)
    assert (await desk.change(TOPIC, "t", ("retention.ms", SET, "9")))[0] == 0
    stored = await desk.stored("/config/topics/t")
    assert stored == {"remote.copy.lag.ms": "0", "retention.ms": "9"}


async def test_settings_of_tiered_storage_may_be_spelt_out_and_are_told(desk: Desk) -> None:
    """As MirrorMaker 2, Terraform and Strimzi spell them out."""
    changes: dict[str, str] = {
        "remote.storage.enable": "false",
        "remote.log.copy.disable": "false",
        "remote.log.delete.on.disable": "false",
        "local.retention.ms": "1000",
        "local.retention.bytes": "-1",
    }
    named = [(name, SET, value) for name, value in changes.items()]
    assert await desk.change(TOPIC, "t", *named) == (0, None)
    assert await desk.stored("/config/topics/t") == changes
    told = await desk.told(TOPIC, "t")
    assert {name: told[name] for name in changes} == {
        name: (value, 1) for name, value in changes.items()
    }


async def test_tiered_storage_is_refused_in_words(desk: Desk) -> None:
    assert await desk.change(TOPIC, "t", ("remote.storage.enable", SET, "true")) == (
        ErrorCode.INVALID_CONFIG,
        "remote.storage.enable=true: tiered storage is not built; all segments stay on local disks",
    )


async def test_a_topic_that_kafka_left_tiered_can_be_altered_and_mended(desk: Desk) -> None:
    left = znodes.EntityConfig(config={"remote.storage.enable": "true"}).to_json()
    await desk.cluster.observer.set("/config/topics/t", left)
    assert (await desk.change(TOPIC, "t", ("retention.ms", SET, "9")))[0] == 0
    assert (await desk.change(TOPIC, "t", ("remote.storage.enable", SET, "false")))[0] == 0
    assert await desk.stored("/config/topics/t") == {
        "remote.storage.enable": "false",
        "retention.ms": "9",
    }


async def test_topics_inherit_local_retention_from_nodes(desk: Desk) -> None:
    assert (await desk.told(TOPIC, "t"))["local.retention.ms"] == ("-2", 5)
    await desk.change(NODE, "", ("log.local.retention.ms", SET, "6"))
    assert (await desk.told(TOPIC, "t"))["local.retention.ms"] == ("6", 3)
    assert (await desk.told(NODE, ""))["log.local.retention.ms"] == ("6", 3)
    refused = await desk.change(NODE, "", ("log.local.retention.ms", SET, "-3"))
    assert refused[0] == ErrorCode.INVALID_REQUEST


async def test_the_older_request_replaces_all_settings(desk: Desk) -> None:
    await desk.change(TOPIC, "t", ("retention.ms", SET, "9"))
    for version in (0, 1, 2):
        config = alter_configs.Config(name="flush.ms", value=str(version))
        resource = alter_configs.Resource(resource_type=TOPIC, resource_name="t", configs=[config])
        request = alter_configs.AlterConfigsRequest(resources=[resource], validate_only=False)
        answer: Any = over_the_wire(await desk.alter.replace(call(request, version)), version)
        assert answer.responses[0].error_code == 0
        assert await desk.stored("/config/topics/t") == {"flush.ms": str(version)}


async def test_the_settings_of_nodes_hold_for_topics_that_set_nothing(desk: Desk) -> None:
    """Topic, then node, then all nodes, then the file, then the default."""

    async def retention() -> tuple[str | None, int]:
        return (await desk.told(TOPIC, "t"))["retention.ms"]

    assert await retention() == ("5", 4)
    await desk.change(NODE, "", ("log.retention.ms", SET, "6"))
    assert await retention() == ("6", 3)
    assert (desk.nodes.log_defaults.retention_ms, (await desk.told(NODE, ""))) == (
        6,
        {"log.retention.ms": ("6", 3)},
    )
    await desk.change(NODE, "1", ("log.retention.ms", SET, "7"))
    assert await retention() == ("7", 2)
    assert (await desk.told(NODE, "1"))["log.retention.ms"] == ("7", 2)
    assert desk.nodes.log_defaults.retention_ms == 7
    await desk.change(TOPIC, "t", ("retention.ms", SET, "8"))
    assert await retention() == ("8", 1)
    await desk.change(NODE, "1", ("log.retention.ms", DELETE, None))
    assert desk.nodes.log_defaults.retention_ms == 6


async def test_a_change_of_nodes_is_heard_by_those_that_did_not_make_it(desk: Desk) -> None:
    heard: list[int] = []
    other = DynamicNodeConfig(desk.cluster.observer, 2, load(SETTINGS))
    other.on_change.append(lambda: heard.append(other.log_defaults.retention_ms))
    await desk.change(NODE, "", ("log.retention.ms", SET, "6"))
    await other.load()
    await other.load()
    assert heard == [6]


async def test_settings_of_nodes_that_make_no_sense_change_nothing(desk: Desk) -> None:
    await desk.change(NODE, "1", ("log.retention.ms", SET, "6"))
    nonsense = znodes.EntityConfig(config={"log.retention.ms": "soon"}).to_json()
    await desk.cluster.observer.set("/config/brokers/1", nonsense)
    await desk.nodes.load()
    assert desk.nodes.log_defaults.retention_ms == 6


KAFKA: Final = json.loads((Path(__file__).parents[1] / "golden" / "node-configs.json").read_text())[
    "configs"
]


@pytest.mark.parametrize("name", sorted(OF_LISTENERS))
async def test_stores_of_certificates_are_changed_of_single_listeners_only(
    desk: Desk, name: str
) -> None:
    """As in Kafka; and no password is kept in ZooKeeper (S12, S13)."""
    for text in ("", "x"):
        code, message = await desk.change(NODE, "1", (name, SET, text))
        assert code == ErrorCode.INVALID_REQUEST
        assert "behind listener.name.NAME. only" in str(message)
    own = f"listener.name.plaintext.{name}"
    code, message = await desk.change(NODE, "1", (own, SET, "Hush.Value"))
    assert code == ErrorCode.INVALID_REQUEST
    assert ("no password is kept" in str(message)) is is_secret(name)
    assert "Hush" not in str(message)


FIXED: Final = {
    "sasl.enabled.mechanisms",
    "sasl.jaas.config",
    "sasl.mechanism.inter.broker.protocol",
}
"""Who may log in is changed by a restart: no request makes a node more open than its file."""


@pytest.mark.parametrize("name", sorted(FIXED))
async def test_how_peers_log_in_is_changed_by_no_request(desk: Desk, name: str) -> None:
    for setting in (
        name,
        f"listener.name.plaintext.plain.{name}",
        f"listener.name.internal.{name}",
    ):
        code, _ = await desk.change(NODE, "1", (setting, SET, "PLAIN"))
        assert code == ErrorCode.INVALID_REQUEST


DYNAMIC: Final = sorted(
    name
    for name in KAFKA
    if KAFKA[name][2] is not None and name not in OF_LISTENERS and name not in FIXED
)


@pytest.mark.parametrize("name", DYNAMIC)
async def test_each_of_kafkas_dynamic_settings_can_be_set_to_what_it_is(
    desk: Desk, name: str
) -> None:
    told = await desk.told(NODE, "1")
    text = told[name][0] or ""
    if name.endswith("listeners"):
        text = "PLAINTEXT://127.0.0.1:9092"
    code, message = await desk.change(NODE, "1", (name, SET, text))
    assert (code, message) == (0, None)
    assert (await desk.told(NODE, "1"))[name][1] == 2
    code, message = await desk.change(NODE, "", (name, SET, text))
    assert (code == 0) is (KAFKA[name][2] == "cluster"), message
    assert (name in await desk.told(NODE, "")) is (code == 0)


async def test_what_is_not_enforced_is_kept_and_told_and_the_log_says_so(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    assert await desk.change(NODE, "", ("num.io.threads", SET, "9")) == (0, None)
    assert (await desk.told(NODE, "1"))["num.io.threads"] == ("9", 3)
    assert "num.io.threads: has no meaning here" in caplog.text


async def test_what_means_something_is_in_force_at_once(desk: Desk) -> None:
    changes = {
        "log.cleaner.threads": "2",
        "log.cleaner.io.max.bytes.per.second": "5000",
        "max.connections": "7",
        "max.connections.per.ip.overrides": "127.0.0.1:3",
        "max.connection.creation.rate": "9",
        "listener.name.plaintext.max.connections": "4",
        "producer.id.expiration.ms": "1000",
        "transaction.partition.verification.enable": "false",
        "message.max.bytes": "2000",
        "advertised.listeners": "PLAINTEXT://example.org:9092",
    }
    assert await desk.change(NODE, "1", *((name, SET, text) for name, text in changes.items())) == (
        0,
        None,
    )
    now = desk.nodes.current
    assert (now.cleaner.threads, now.cleaner.bytes_per_second) == (2, 5000)
    assert (now.network.max_connections, now.network.max_connection_creation_rate) == (7, 9)
    assert now.listener_quotas["PLAINTEXT"].connections_max == 4
    assert now.storage.producer_id_expiration_ms == 1000
    assert not now.transactions.verification_enable
    assert now.log_defaults.max_message_bytes == 2000
    assert now.advertised["PLAINTEXT"].host == "example.org"
    told = await desk.told(NODE, "1")
    assert {name: told[name] for name in changes} == {
        name: (text, 2) for name, text in changes.items()
    }
    await desk.change(NODE, "1", *((name, DELETE, None) for name in changes))
    assert desk.nodes.current == desk.nodes.file


async def test_a_listener_that_cannot_be_bound_is_refused_and_nothing_is_written(
    desk: Desk,
) -> None:
    async def refuse(config: NodeConfig) -> None:
        raise ConfigError("listeners=OTHER://127.0.0.1:1: address already in use")

    await desk.nodes.load()
    desk.alter._check_listeners = refuse
    code, message = await desk.change(NODE, "1", ("listeners", SET, "PLAINTEXT://127.0.0.1:1"))
    assert (code, "in use" in (message or "")) == (ErrorCode.INVALID_REQUEST, True)
    assert not await desk.cluster.observer.children(znodes.CONFIG_CHANGES)


async def test_the_nodes_own_listener_stays_where_it_is(desk: Desk) -> None:
    moved = "PLAINTEXT://127.0.0.1:9092,INTERNAL://127.0.0.1:9999"
    protocols = "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT"
    change = ("listeners", SET, moved), ("listener.security.protocol.map", SET, protocols)
    code, message = await desk.change(NODE, "1", *change)
    assert (code, "only with a restart" in (message or "")) == (ErrorCode.INVALID_REQUEST, True)
    wider = ("listeners", SET, "PLAINTEXT://0.0.0.0:9092")
    told = ("advertised.listeners", SET, "PLAINTEXT://h:9092")
    assert (await desk.change(NODE, "1", wider, told))[0] == 0
    bound = {each.listener: each.host for each in desk.nodes.current.listeners}
    assert bound == {"PLAINTEXT": "0.0.0.0", "INTERNAL": "127.0.0.1"}


async def test_what_nobody_can_use_among_the_settings_of_nodes_is_left_out(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    left = {"a.plugins.name": "1", "log.retention.ms": "6", "num.io.threads": "many"}
    await desk.change(NODE, "1", ("log.flush.interval.ms", SET, "7"))
    data = znodes.EntityConfig(config=left).to_json()
    await desk.cluster.observer.set("/config/brokers/1", data)
    await desk.nodes.load()
    assert desk.nodes.log_defaults.retention_ms == 6
    assert "num.io.threads" in caplog.text
    assert (await desk.change(NODE, "1", ("message.max.bytes", SET, "9999")))[0] != 0
    assert (await desk.change(NODE, "1", ("num.io.threads", SET, "9")))[0] == 0
    assert (await desk.stored("/config/brokers/1"))["a.plugins.name"] == "1"


async def test_the_throttles_of_tools_are_taken_and_given_back(desk: Desk) -> None:
    name = "leader.replication.throttled.rate"
    assert (await desk.change(NODE, "1", (name, SET, "1000")))[0] == 0
    assert (await desk.told(NODE, "1"))[name] == ("1000", 2)
    assert (await desk.change(NODE, "1", (name, DELETE, None)))[0] == 0
    assert name not in await desk.told(NODE, "1")
