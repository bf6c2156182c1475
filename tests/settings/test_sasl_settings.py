"""What listeners with SASL take, as files say it. Source: docs/spec/security.md §1, §2 and §6."""

from __future__ import annotations

import pytest

from barnabas.broker.settings.node_config import NodeConfig, load
from barnabas.broker.settings.password_hash import PasswordHash
from barnabas.protocol.settings import ConfigError

HOST = "127.0.0.1"
SECRET = "Hush.Value"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
JAAS = f'{PLAIN} user_alice="{SECRET}";'
MECHANISMS = "listener.name.users.sasl.enabled.mechanisms"
PLAIN_LOGIN = "listener.name.users.plain.sasl.jaas.config"


def config(host: str = HOST, **settings: str) -> NodeConfig:
    """A node with a listener USERS that asks for a login."""
    return load(
        {
            "zookeeper.connect": "z:1",
            "log.dirs": "/d",
            "listeners": f"PLAINTEXT://{HOST}:1,USERS://{host}:2",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,USERS:SASL_PLAINTEXT,"
            "INTERNAL:SASL_PLAINTEXT",
            "cluster.secret": "s",
            **settings,
        }
    )


def refused(**settings: str) -> str:
    with pytest.raises(ConfigError) as problem:
        config(**settings)
    assert SECRET not in str(problem.value)
    return str(problem.value)


def test_a_listener_takes_the_mechanisms_of_its_own_setting_or_of_the_nodes() -> None:
    """S1: what is said of a listener beats what is said of the node."""
    node = {"sasl.enabled.mechanisms": "SCRAM-SHA-256"}
    assert config(**node).listener_sasl["USERS"].mechanisms == ("SCRAM-SHA-256",)
    both = config(**node, **{MECHANISMS: "SCRAM-SHA-512, SCRAM-SHA-256"})
    assert both.listener_sasl["USERS"].mechanisms == ("SCRAM-SHA-512", "SCRAM-SHA-256")
    assert "PLAINTEXT" not in both.listener_sasl


def test_plain_knows_the_users_of_its_listeners_login() -> None:
    """S27: username and password of the same login are for dialling, and let nobody in."""
    login = f'{PLAIN} username="admin" password="x" user_alice="a" user_bob="b";'
    taken = config(**{MECHANISMS: "PLAIN", PLAIN_LOGIN: login}).listener_sasl["USERS"]
    assert taken.passwords == {"alice": "a", "bob": "b"}


def test_scram_needs_no_login_and_takes_kafkas() -> None:
    name = "listener.name.users.scram-sha-256.sasl.jaas.config"
    assert config(**{MECHANISMS: "SCRAM-SHA-256", name: f"{SCRAM};"}).listener_sasl


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({}, "must name some of"),
        ({MECHANISMS: ""}, "must name some of"),
        ({MECHANISMS: "GSSAPI"}, "GSSAPI is not served"),
        ({MECHANISMS: "scram-sha-256"}, "is not served"),
        ({MECHANISMS: "PLAIN"}, f"^{PLAIN_LOGIN}: must say who"),
        ({MECHANISMS: "PLAIN", PLAIN_LOGIN: f"{PLAIN};"}, "must say who"),
        ({MECHANISMS: "PLAIN", PLAIN_LOGIN: JAAS[:-1]}, "semicolon"),
        ({MECHANISMS: "PLAIN", PLAIN_LOGIN: f'{SCRAM} user_a="{SECRET}";'}, "must name org"),
        ({MECHANISMS: "PLAIN", PLAIN_LOGIN: 'com.Jndi required user_a="b";'}, "must name org"),
        ({MECHANISMS: "PLAIN", PLAIN_LOGIN: f'{PLAIN} user_a="";'}, "has no password"),
        ({MECHANISMS: "PLAIN", PLAIN_LOGIN: f'{PLAIN} user_="b";'}, "names nobody"),
        ({MECHANISMS: "PLAIN", PLAIN_LOGIN: f'{PLAIN} user_a="{{scrypt}}1$2";'}, "must read"),
        ({MECHANISMS: "PLAIN", PLAIN_LOGIN: JAAS, "connections.max.reauth.ms": "-1"}, "at least"),
        (
            {
                MECHANISMS: "PLAIN",
                PLAIN_LOGIN: JAAS,
                "listener.name.users.connections.max.reauth.ms": "x",
            },
            "whole number",
        ),
        (
            {MECHANISMS: "SCRAM-SHA-256", "listener.name.nobody.sasl.enabled.mechanisms": "PLAIN"},
            "there is no listener nobody",
        ),
        (
            {MECHANISMS: "SCRAM-SHA-256", "cluster.secret": "", "cluster.secret.previous": "s"},
            "needs a cluster.secret",
        ),
    ],
)
def test_what_would_leave_a_listener_more_open_or_shut_is_refused(
    settings: dict[str, str], problem: str
) -> None:
    """S2, S27, S89: no password is ever repeated, and no class is ever loaded."""
    with pytest.raises(ConfigError, match=problem) as error:
        config(**settings)
    assert SECRET not in str(error.value)


def test_a_login_for_all_listeners_is_ignored_with_a_warning() -> None:
    """S1: as in Kafka, where it would make every listener know the same users."""
    given = config(**{MECHANISMS: "SCRAM-SHA-256", "sasl.jaas.config": JAAS})
    assert [warning for warning in given.warnings if warning.startswith("sasl.jaas.config: ")]
    assert SECRET not in repr(given)


@pytest.mark.parametrize(("host", "is_warned"), [(HOST, False), ("localhost", False), ("", True)])
def test_plain_in_clear_is_warned_of_where_others_can_listen(host: str, is_warned: bool) -> None:
    """S28."""
    plain = {
        MECHANISMS: "PLAIN",
        PLAIN_LOGIN: JAAS,
        "advertised.listeners": "PLAINTEXT://h:1,USERS://h:2,INTERNAL://h:3",
    }
    given = config(host, **plain)
    assert any("passwords in clear" in warning for warning in given.warnings) is is_warned


def test_nodes_prove_the_secret_by_scram_and_older_ones_by_plain() -> None:
    """S71: cluster.secret alone is enough, whatever users prove."""
    nodes = config(**{"sasl.enabled.mechanisms": "SCRAM-SHA-256"}).listener_sasl["INTERNAL"]
    assert nodes.mechanisms == ("SCRAM-SHA-512", "PLAIN")
    name = "listener.name.internal.sasl.enabled.mechanisms"
    only = config(**{MECHANISMS: "SCRAM-SHA-256", name: "SCRAM-SHA-512"})
    assert only.listener_sasl["INTERNAL"].mechanisms == ("SCRAM-SHA-512",)


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("listener.name.internal.sasl.enabled.mechanisms", "SCRAM-SHA-256", "nodes prove"),
        ("listener.name.internal.sasl.enabled.mechanisms", "", "nodes prove"),
        ("listener.name.internal.plain.sasl.jaas.config", JAAS, "nothing else"),
        ("listener.name.internal.connections.max.reauth.ms", "1", "nothing else"),
        ("sasl.mechanism.inter.broker.protocol", "GSSAPI", "must be one of"),
        ("sasl.mechanism.inter.broker.protocol", "SCRAM-SHA-256", "must be one of"),
    ],
)
def test_the_nodes_own_listener_knows_nobody_but_nodes(name: str, text: str, problem: str) -> None:
    """Whoever comes in there may send orders to the node."""
    assert problem in refused(**{MECHANISMS: "SCRAM-SHA-256", name: text})


def test_a_password_may_stand_in_the_file_as_a_hash() -> None:
    """S28."""
    text = str(PasswordHash.of(SECRET, b"salt"))
    login = f'{PLAIN} user_alice="{text}";'
    taken = config(**{MECHANISMS: "PLAIN", PLAIN_LOGIN: login}).listener_sasl["USERS"]
    assert PasswordHash.read(taken.passwords["alice"]).digest_of(SECRET.encode())
    assert text not in repr(taken)


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "{scrypt}",
        "{scrypt}16384$8$1$c2FsdA==",
        "{scrypt}16384$8$1$c2FsdA==$c2hvcnQ=",
        "{scrypt}16384$8$1$$" + "A" * 43 + "=",
        "{scrypt}16383$8$1$c2FsdA==$" + "A" * 43 + "=",
        "{scrypt}1$8$1$c2FsdA==$" + "A" * 43 + "=",
        "{scrypt}1048576$8$1$c2FsdA==$" + "A" * 43 + "=",
        "{scrypt}16384$8$99$c2FsdA==$" + "A" * 43 + "=",
        "{scrypt}x$8$1$c2FsdA==$" + "A" * 43 + "=",
        "{scrypt}16384$8$1$%$" + "A" * 43 + "=",
    ],
)
def test_a_hash_that_is_none_or_costs_too_much_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must"):
        PasswordHash.read(text)


def test_a_hash_survives_its_text_form_and_is_not_shown() -> None:
    made = PasswordHash.of("p", b"salt")
    assert PasswordHash.read(str(made)) == made
    assert made.digest_of(b"p") == made.hash != made.digest_of(b"q")
    assert repr(made) == "[hidden]"
