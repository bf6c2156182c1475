"""What a node's settings leave open. Source: docs/spec/security.md §9."""

from __future__ import annotations

import pytest

from barnabas.broker.settings.node_config import NodeConfig, load
from barnabas.broker.settings.password_hash import PasswordHash
from barnabas.broker.settings.security_review import (
    KNOWN_SECRETS,
    Finding,
    Grade,
    settings_review,
    zookeeper_hosts,
)

FAR = "0.0.0.0"
SECRET = "9f86d081884c7d659a2feaa0c55ad015"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
ZOOKEEPER_LOGIN = (
    "org.apache.zookeeper.server.auth.DigestLoginModule required username=kafka password=hidden;"
)
MAP = "listener.security.protocol.map"
CLOSED = {
    "zookeeper.connect": "zoo:2281",
    "zookeeper.ssl.client.enable": "true",
    "zookeeper.ssl.truststore.location": "/t.pem",
    "zookeeper.set.acl": "true",
    "zookeeper.auth.scheme": "digest",  # what SASL needs need not be installed
    "zookeeper.jaas.config": ZOOKEEPER_LOGIN,
    "log.dirs": "/d",
    "listeners": f"USERS://{FAR}:2,CERTIFIED://{FAR}:3,INTERNAL://{FAR}:4",
    "advertised.listeners": "USERS://b:2,CERTIFIED://b:3,INTERNAL://b:4",
    MAP: "USERS:SASL_SSL,CERTIFIED:SSL,INTERNAL:SASL_SSL",
    "ssl.keystore.type": "PEM",
    "ssl.keystore.location": "/k.pem",
    "ssl.truststore.type": "PEM",
    "ssl.truststore.location": "/t.pem",
    "listener.name.certified.ssl.client.auth": "required",
    "listener.name.users.sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "connections.max.reauth.ms": "3600000",
    "cluster.secret": SECRET,
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:admin",
    "max.connections": "2000",
    "max.connections.per.ip": "200",
}
"""Nothing of it is open, whoever reaches the node."""
IN_CLEAR = "USERS:SASL_PLAINTEXT,CERTIFIED:SSL,INTERNAL:SASL_SSL"
NODES_IN_CLEAR = "USERS:SASL_SSL,CERTIFIED:SSL,INTERNAL:SASL_PLAINTEXT"
UNCERTIFIED = "listener.name.certified.ssl.client.auth"
MECHANISMS = "listener.name.users.sasl.enabled.mechanisms"
LOGIN = "listener.name.users.plain.sasl.jaas.config"


def config(**changes: str | None) -> NodeConfig:
    """The closed node with these settings changed, and without those that are None."""
    values = {**CLOSED, **changes}
    return load({name: text for name, text in values.items() if text is not None})


def found(**changes: str | None) -> list[Finding]:
    return list(settings_review(config(**changes)))


def test_a_closed_node_has_no_finding() -> None:
    assert found() == []


@pytest.mark.parametrize(
    ("changes", "grade", "name", "remedy"),
    [
        (
            {MAP: "USERS:PLAINTEXT,CERTIFIED:SSL,INTERNAL:SASL_SSL", MECHANISMS: None},
            "open",
            "listeners",
            f"{MAP}=USERS:SASL_SSL,CERTIFIED:SSL,INTERNAL:SASL_SSL",
        ),
        (
            {MAP: IN_CLEAR},
            "open",
            "listeners",
            f"{MAP}=USERS:SASL_SSL,CERTIFIED:SSL,INTERNAL:SASL_SSL",
        ),
        ({UNCERTIFIED: "requested"}, "open", UNCERTIFIED, f"{UNCERTIFIED}=required"),
        ({UNCERTIFIED: None}, "open", UNCERTIFIED, f"{UNCERTIFIED}=required"),
        (
            {"connections.max.reauth.ms": None},
            "weak",
            "listener.name.users.connections.max.reauth.ms",
            "listener.name.users.connections.max.reauth.ms=3600000",
        ),
        (
            {"connections.max.reauth.ms": "7200000"},
            "weak",
            "connections.max.reauth.ms",
            "connections.max.reauth.ms=3600000",
        ),
        (
            {MECHANISMS: "PLAIN", LOGIN: f'{PLAIN} user_alice="Hush.Value";'},
            "weak",
            LOGIN,
            f'{LOGIN}=... user_alice="{{scrypt}}..." (barnabas users hash)',
        ),
        ({"cluster.secret.previous": SECRET[::-1]}, "weak", "cluster.secret.previous", "remove"),
        ({"cluster.secret": SECRET[:15]}, "open", "cluster.secret", "cluster.secret="),
        ({"cluster.secret": "ab" * 32}, "open", "cluster.secret", "cluster.secret="),
        (
            {"listener.name.internal.ssl.endpoint.identification.algorithm": ""},
            "open",
            "listener.name.internal.ssl.endpoint.identification.algorithm",
            "listener.name.internal.ssl.endpoint.identification.algorithm=https",
        ),
        (
            {"authorizer.class.name": None, "super.users": None},
            "open",
            "authorizer.class.name",
            "authorizer.class.name=kafka.security.authorizer.AclAuthorizer",
        ),
        (
            {"allow.everyone.if.no.acl.found": "true"},
            "open",
            "allow.everyone.if.no.acl.found",
            "allow.everyone.if.no.acl.found=false",
        ),
        (
            {"super.users": "User:admin;User:ANONYMOUS"},
            "open",
            "super.users",
            "super.users=User:admin",
        ),
        ({"ssl.protocol": "TLSv1.2"}, "weak", "ssl.protocol", "ssl.protocol=TLSv1.3"),
        (
            {"ssl.enabled.protocols": "TLSv1.2"},
            "weak",
            "ssl.enabled.protocols",
            "ssl.enabled.protocols=TLSv1.2,TLSv1.3",
        ),
        (
            {"zookeeper.ssl.endpoint.identification.algorithm": ""},
            "open",
            "zookeeper.ssl.endpoint.identification.algorithm",
            "zookeeper.ssl.endpoint.identification.algorithm=HTTPS",
        ),
        ({"zookeeper.set.acl": None}, "open", "zookeeper.set.acl", "zookeeper.set.acl=true"),
        (
            {"zookeeper.jaas.config.previous": ZOOKEEPER_LOGIN},
            "weak",
            "zookeeper.jaas.config.previous",
            "remove the line",
        ),
        (
            {"metrics.listener": f"{FAR}:9404"},
            "open",
            "metrics.listener",
            "metrics.listener=127.0.0.1:9404",
        ),
        ({"max.connections": None}, "weak", "max.connections", "max.connections=2000"),
        ({"max.connections.per.ip": None}, "weak", "max.connections.per.ip", "max.connections.per"),
        ({"queued.max.requests": "5"}, "weak", "queued.max.requests", "remove the line"),
    ],
)
def test_each_opening_is_found_with_the_line_that_closes_it(
    changes: dict[str, str | None], grade: str, name: str, remedy: str
) -> None:
    every = found(**changes)
    mine = [one for one in every if one.name == name]
    assert mine, every
    assert mine[0].grade is Grade(grade)
    assert mine[0].remedy.startswith(remedy)
    assert {one.name for one in every} == {name}, "nothing else is open"


@pytest.mark.parametrize("secret", sorted(KNOWN_SECRETS))
def test_a_secret_of_an_example_is_none(secret: str) -> None:
    assert [one.name for one in found(**{"cluster.secret": secret})] == ["cluster.secret"]


def test_a_listener_of_nodes_in_clear_says_what_travels_there() -> None:
    """Without a secret anybody is a node; with one it is sent by PLAIN to who asks for that."""
    names = [one.name for one in found(**{MAP: NODES_IN_CLEAR})]
    mechanisms = "listener.name.internal.sasl.enabled.mechanisms"
    dialled = "sasl.mechanism.inter.broker.protocol"
    assert names == ["listeners", mechanisms, dialled]
    scram = {mechanisms: "SCRAM-SHA-512", dialled: "SCRAM-SHA-512"}
    assert [one.name for one in found(**{MAP: NODES_IN_CLEAR}, **scram)] == ["listeners"]
    bare = found(
        **{
            MAP: "USERS:SASL_SSL,CERTIFIED:SSL,INTERNAL:PLAINTEXT",
            "cluster.secret": None,
            "beacon.enable": "false",
            "authorizer.class.name": None,
            "super.users": None,
        }
    )
    assert [one.name for one in bare] == ["cluster.secret", "authorizer.class.name"]
    assert "taken for a node" in bare[0].reason


def test_plain_in_clear_is_found_on_the_listener_that_takes_it() -> None:
    hashed = PasswordHash.of("Hush.Value", b"0123456789abcdef")
    changes = {MAP: IN_CLEAR, MECHANISMS: "PLAIN", LOGIN: f'{PLAIN} user_alice="{hashed}";'}
    names = [one.name for one in found(**changes)]
    assert names == ["listeners", MECHANISMS]


def test_what_only_this_machine_reaches_may_be_in_clear() -> None:
    """A development cluster on the loopback: rights and the secret are asked for all the same."""
    loopback = load({"zookeeper.connect": "127.0.0.1:2181/c", "log.dirs": "/d"})
    assert [one.name for one in settings_review(loopback)] == ["authorizer.class.name"]


def test_no_finding_tells_a_secret() -> None:
    """S91: the value of a secret is in none of its words."""
    every = found(
        **{
            "cluster.secret": "Hush",
            "cluster.secret.previous": "Hush2",
            MECHANISMS: "PLAIN",
            LOGIN: f'{PLAIN} user_alice="Hush3";',
        }
    )
    assert len(every) == 3
    assert "Hush" not in repr(every)


def test_the_hosts_of_zookeeper_are_read_in_every_form() -> None:
    assert zookeeper_hosts("a:1, b,[::1]:2/kafka") == ["a", "b", "::1"]


def test_zookeepers_digest_in_clear_is_found_beside_the_clear_connection() -> None:
    changes: dict[str, str | None] = {
        "zookeeper.ssl.client.enable": None,
        "zookeeper.ssl.truststore.location": None,
    }
    names = [finding.name for finding in found(**changes)]
    assert names == ["zookeeper.connect", "zookeeper.auth.scheme"]
    assert found(**changes, **{"zookeeper.connect": "127.0.0.1:2181"}) == []
