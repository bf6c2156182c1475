"""Every setting that Kafka knows, and what becomes of it: no node is more open than its file says.

Source: tests/golden/node-configs.json, what a node of Apache Kafka 3.9.1 tells of itself.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, Final

import pytest

from barnabas.broker.settings.node_config import SECTIONS, known_names, load
from barnabas.broker.settings.properties import from_environment, variables
from barnabas.broker.settings.unsupported_settings import (
    HIDDEN_NAMES,
    UNSUPPORTED_SETTINGS,
    Treatment,
)
from barnabas.protocol.settings import ConfigError, parsed

LEAST: Final = {"zookeeper.connect": "127.0.0.1:2181", "log.dirs": "/data"}
KAFKA: Final[dict[str, list[Any]]] = json.loads(
    (Path(__file__).parents[1] / "golden" / "node-configs.json").read_text()
)["configs"]
OTHER_VALUES: Final[dict[Any, str]] = {bool: "", int | None: "7", float | None: "0.7"}
SECRET: Final = "Hush.Value"
IDLE, LIMIT, SECURITY, MISLEADING = Treatment


def other_value(name: str) -> str:
    """Something that this setting may be and that is not its default."""
    item = UNSUPPORTED_SETTINGS[name].setting
    if item.kind is bool:
        return str(not item.default).lower()
    return OTHER_VALUES.get(item.kind, SECRET)


@pytest.mark.parametrize("name", sorted(UNSUPPORTED_SETTINGS))
def test_a_name_that_is_not_acted_on_may_have_its_default(name: str) -> None:
    default = UNSUPPORTED_SETTINGS[name].setting.default
    text = ",".join(default) if isinstance(default, tuple) else str(default or "")
    (warning,) = load(LEAST | {name: text.lower() if isinstance(default, bool) else text}).warnings
    assert warning.startswith(f"{name}: ")
    assert ("not enforced" in warning) is (UNSUPPORTED_SETTINGS[name].treatment is LIMIT)


@pytest.mark.parametrize("name", sorted(UNSUPPORTED_SETTINGS))
def test_another_value_is_refused_where_it_promises_what_is_not_kept(name: str) -> None:
    values = LEAST | {name: other_value(name)}
    if UNSUPPORTED_SETTINGS[name].treatment in (IDLE, LIMIT):
        assert len(load(values).warnings) == 1
        return
    with pytest.raises(ConfigError) as refused:
        load(values)
    (problem,) = refused.value.problems
    assert problem.startswith(f"{name}: ")
    assert SECRET not in problem


@pytest.mark.parametrize(
    ("name", "text", "treatment"),
    [
        ("num.io.threads", "3", IDLE),
        ("password.encoder.secret", "s", IDLE),
        ("zookeeper.sync.time.ms", "1", IDLE),
        ("queued.max.requests", "3", LIMIT),
        ("client.quota.callback.class", "org.Mine", LIMIT),
        ("replica.alter.log.dirs.io.max.bytes.per.second", "3", LIMIT),
        ("ssl.provider", "SunJSSE", SECURITY),
        ("ssl.client.auth", "required", SECURITY),
        ("sasl.kerberos.service.name", "kafka", SECURITY),
        ("sasl.server.callback.handler.class", "org.Mine", SECURITY),
        ("security.inter.broker.protocol", "SASL_PLAINTEXT", SECURITY),
        ("zookeeper.ssl.truststore.location", "/trust", SECURITY),
        ("principal.builder.class", "org.Mine", SECURITY),
        ("listener.name.plaintext.ssl.client.auth", "required", SECURITY),
        ("listener.name.inside.oauthbearer.sasl.server.callback.handler.class", "C", SECURITY),
        ("listener.name.inside.socket.send.buffer.bytes", "9", IDLE),
        ("process.roles", "broker", MISLEADING),
        ("remote.log.storage.system.enable", "true", MISLEADING),
    ],
)
def test_each_kind_of_name_has_its_fate(name: str, text: str, treatment: Treatment) -> None:
    if treatment in (IDLE, LIMIT):
        (warning,) = load(LEAST | {name: text}).warnings
        assert ("not enforced" in warning) is (treatment is LIMIT)
        return
    with pytest.raises(ConfigError, match=rf"^{name}: ") as refused:
        load(LEAST | {name: text})
    assert ("never more open" in str(refused.value)) is (treatment is SECURITY)


SECURITY_WORDS: Final = {"ssl", "sasl", "security", "acl", "authorizer", "principal", "key"}
KNOWN_EXCEPTIONS: Final = {
    "authorizer.class.name": "acted on",
    "password.encoder.key.length": "no password is ever kept",
}


def test_no_name_that_speaks_of_security_is_only_warned_of() -> None:
    named = {name for name in KAFKA if SECURITY_WORDS & set(name.split("."))}
    treated = {name for name, each in UNSUPPORTED_SETTINGS.items() if each.treatment is SECURITY}
    assert named - treated - known_names() <= KNOWN_EXCEPTIONS.keys()


def test_every_name_that_kafka_tells_is_known_with_its_kind_and_default() -> None:
    assert KAFKA.keys() - known_names() == UNSUPPORTED_SETTINGS.keys() - HIDDEN_NAMES
    assert not known_names() & UNSUPPORTED_SETTINGS.keys()
    for name in KAFKA.keys() & UNSUPPORTED_SETTINGS.keys():
        kind, default, scope = KAFKA[name]
        each = UNSUPPORTED_SETTINGS[name]
        wanted = default if default in (None, "") else parsed(each.setting, default)
        assert each.setting.default == (() if (default, kind) == ("", "list") else wanted), name
        assert (each.scope.value if each.scope else None) == scope, name
        assert each.is_secret is (kind == "password"), name


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (
            {
                "listeners": "PLAINTEXT://:9092,INTERNAL://:9093",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:SASL_PLAINTEXT",
            },
            "needs a cluster.secret",
        ),
        (
            {
                "cluster.secret": "s",
                "listeners": "PLAINTEXT://:9092,INTERNAL://:9093",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
            },
            "must be SASL_PLAINTEXT",
        ),
    ],
)
def test_a_listener_whose_proof_nobody_would_ask_for_is_refused(
    settings: dict[str, str], reason: str
) -> None:
    with pytest.raises(ConfigError, match=r"^listeners=\S+: ") as refused:
        load(LEAST | settings)
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    "variable",
    [
        "KAFKA_PATH",
        "KAFKA_URI",
        "KAFKA_URL",
        "KAFKA_BROKERS",
        "KAFKA_BOOTSTRAP_SERVERS",
        "KAFKA_TOPIC",
        "KAFKA_CLIENT_ID",
        "KAFKA_SECURITY_PROTOCOL",
        "KAFKA_SASL_MECHANISM",
        "KAFKA_SASL_USERNAME",
        "KAFKA_SSL_CA_LOCATION",
        "KAFKA_BROKER_SERVICE_HOST",
        "KAFKA_BROKER_PORT_9092_TCP",
        "KAFKA_",
    ],
)
def test_a_stray_variable_is_named_in_a_warning_and_stops_nothing(variable: str) -> None:
    environment = {"KAFKA_ZOOKEEPER_CONNECT": "z:1", "KAFKA_LOG_DIRS": "/d", variable: "x"}
    config = load(from_environment(environment), variables(environment))
    (warning,) = config.warnings
    assert warning.endswith(f"ignored, from the environment variable {variable}")
    assert "did you mean" not in warning


@pytest.mark.parametrize("variable", ["KAFKA_HOME", "KAFKA_VERSION", "KAFKA_OPTS"])
def test_what_kafkas_own_images_leave_in_the_environment_is_not_even_warned_of(
    variable: str,
) -> None:
    assert variables({variable: "x"}) == {}


def test_a_misspelt_variable_is_warned_of_with_the_name_that_was_meant() -> None:
    environment = {"KAFKA_OFFSETS_TOPIC_NUM_PARTITION": "3"}
    (warning,) = load(LEAST | from_environment(environment), variables(environment)).warnings
    assert "did you mean offsets.topic.num.partitions?" in warning


def test_a_wrong_value_from_the_environment_names_its_variable() -> None:
    environment = {"KAFKA_CFG_NUM_PARTITIONS": "many", "KAFKA_PROCESS_ROLES": "broker"}
    with pytest.raises(ConfigError) as refused:
        load(LEAST | from_environment(environment), variables(environment))
    assert {problem.rpartition("(")[2] for problem in refused.value.problems} == {
        "from the environment variable KAFKA_CFG_NUM_PARTITIONS)",
        "from the environment variable KAFKA_PROCESS_ROLES)",
    }


def test_every_wrong_setting_is_told_at_once() -> None:
    wrong = {
        "zookeeper.connect": "",
        "num.partitions": "0",
        "num.network.threads": "many",
        "log.segment.bytes": "3",
        "log.roll.hours": "soon",
        "log.cleanup.policy": "burn",
        "nonsense": "1",
        "ssl.client.auth": "sometimes",
        "process.roles": "broker",
        "broker.id": "2000",
        "listeners": "SSL://h:1,CLIENTS://h:2",
        "group.min.session.timeout.ms": "9999999",
        "metrics.listener": "nowhere",
    }
    with pytest.raises(ConfigError) as refused:
        load({"log.dirs": "/data", **wrong})
    told = " ".join(refused.value.problems)
    assert all(name in told for name in wrong), told


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("log.dirs", '"/path"'),
        ("log.dirs", "'/path'"),
        ("log.dirs", '"/a","/b"'),
        ("log.dir", '"/path"'),
        ("zookeeper.connect", '"127.0.0.1:2181"'),
        ("num.partitions", '"3"'),
        ("broker.rack", '"r1"'),
    ],
)
def test_quotes_are_refused_instead_of_becoming_part_of_a_value(name: str, text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(LEAST | {name: text})
    assert f"{name}={text}: leave the quotes out" in str(refused.value)


def test_a_secret_may_begin_with_a_quote() -> None:
    assert load(LEAST | {"cluster.secret": '"s'}).node.cluster_secret == '"s'


@pytest.mark.parametrize("path", ["~/data", "~", "$HOME/data", "/a,~/b"])
def test_a_path_that_a_shell_would_complete_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="not replaced here as in a shell"):
        load(LEAST | {"log.dirs": path})


def test_a_directory_that_is_named_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="named once"):
        load(LEAST | {"log.dirs": "/a,/a/"})


def test_every_class_of_settings_is_a_part_of_a_nodes() -> None:
    """Else a node that is asked for its settings fails: it tells those of every class."""
    config = load(LEAST)
    parts = [type(getattr(config, field.name)) for field in dataclasses.fields(config)]
    assert [section for section in SECTIONS if section not in parts] == []
