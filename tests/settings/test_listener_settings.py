"""Settings of one listener or mechanism: what beats what, and which names are none (S1)."""

from __future__ import annotations

import pytest

from barnabas.broker.settings.listener_settings import (
    base_name,
    name_problems,
    of_listener,
    of_mechanism,
    split_name,
    values_of_listener,
)
from barnabas.broker.settings.node_config import load
from barnabas.broker.settings.node_settings import NetworkSettings
from barnabas.protocol.settings import ConfigError

LEAST = {"zookeeper.connect": "z:1", "log.dirs": "/d"}


def test_a_listeners_own_value_beats_the_nodes() -> None:
    values = {"ssl.client.auth": "none", "listener.name.outside.ssl.client.auth": "required"}
    assert of_listener(values, "OUTSIDE", "ssl.client.auth") == "required"
    assert of_listener(values, "INSIDE", "ssl.client.auth") == "none"
    assert of_listener(values, "INSIDE", "ssl.key.password") is None


def test_an_empty_value_of_a_listener_beats_the_nodes_too() -> None:
    """So one listener asks for no host's name where all others do."""
    name = "ssl.endpoint.identification.algorithm"
    values = {name: "https", f"listener.name.inside.{name}": ""}
    assert of_listener(values, "INSIDE", name) == ""


def test_what_is_said_of_a_mechanism_beats_its_listener_and_the_node() -> None:
    name = "connections.max.reauth.ms"
    values = {
        name: "1",
        f"listener.name.a.{name}": "2",
        f"listener.name.a.scram-sha-256.{name}": "3",
    }
    assert of_mechanism(values, "A", "SCRAM-SHA-256", name) == "3"
    assert of_mechanism(values, "A", "PLAIN", name) == "2"
    assert of_mechanism(values, "B", "PLAIN", name) == "1"


def test_a_class_of_settings_is_read_as_it_holds_on_a_listener() -> None:
    values = {
        "max.connections": "7",
        "max.connections.per.ip": "5",
        "listener.name.a.max.connections": "3",
    }
    assert values_of_listener(values, "A", NetworkSettings) == {
        "max.connections": "3",
        "max.connections.per.ip": "5",
    }


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("listener.name.a.ssl.client.auth", ("a", None, "ssl.client.auth")),
        ("listener.name.a.plain.sasl.jaas.config", ("a", "PLAIN", "sasl.jaas.config")),
        (
            "listener.name.a.scram-sha-512.connections.max.reauth.ms",
            ("a", "SCRAM-SHA-512", "connections.max.reauth.ms"),
        ),
        ("listener.name.a", None),
        ("listener.name..x", None),
        ("ssl.client.auth", None),
    ],
)
def test_a_name_is_cut_into_listener_mechanism_and_setting(
    name: str, parts: tuple[str, str | None, str] | None
) -> None:
    assert split_name(name) == parts


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("listener.name.a.ssl.client.auth", "ssl.client.auth"),
        ("listener.name.a.sasl.enabled.mechanisms", "sasl.enabled.mechanisms"),
        ("listener.name.a.max.connections", "max.connections"),
        ("listener.name.a.plain.sasl.jaas.config", "sasl.jaas.config"),
        ("listener.name.a.sasl.jaas.config", None),
        ("listener.name.a.plain.ssl.client.auth", None),
        ("listener.name.a.max.connections.per.ip", None),
        ("listener.name.a.log.dirs", None),
        ("listener.name.a.gssapi.sasl.jaas.config", None),
    ],
)
def test_only_some_settings_may_be_of_a_listener(name: str, base: str | None) -> None:
    assert base_name(name) == base


def test_the_name_of_an_unknown_listener_is_told_with_the_one_that_was_meant() -> None:
    names = ["listener.name.clint.ssl.client.auth", "listener.name.CLIENT.ssl.client.auth"]
    assert list(name_problems(names, {"CLIENT"})) == [
        "listener.name.clint.ssl.client.auth: there is no listener clint, did you mean client?",
        "listener.name.CLIENT.ssl.client.auth: there is no listener CLIENT, did you mean client?",
    ]


@pytest.mark.parametrize(
    "name",
    [
        "listener.name.plaintxt.max.connections",
        "listener.name.plaintext.scram.sasl.jaas.config",
        "listener.name.plaintext.PLAIN.sasl.jaas.config",
        "listener.name.plaintext.log.dirs",
    ],
)
def test_a_node_refuses_what_is_said_of_an_unknown_listener_or_mechanism(name: str) -> None:
    """Check of S1: the listener that was meant would be more open than its file says."""
    with pytest.raises(ConfigError, match=rf"^{name}: "):
        load(LEAST | {name: "5"})


def test_a_listener_may_have_settings_before_it_is_opened_at_run_time() -> None:
    values = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LATER:PLAINTEXT",
        "listener.name.later.max.connections": "3",
        "listener.name.internal.max.connections": "9",
    }
    assert load(LEAST | values).listener_quotas["LATER"].connections_max == 3
