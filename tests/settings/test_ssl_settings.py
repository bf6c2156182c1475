"""Which listeners of a node may speak TLS, and with what (S1, S2, S7, S13, S72)."""

from __future__ import annotations

from typing import Final

import pytest

from barnabas.broker.settings.node_config import load, node_principals
from barnabas.broker.settings.ssl_settings import is_secret
from barnabas.protocol.settings import ConfigError

LEAST: Final = {"zookeeper.connect": "z:1", "log.dirs": "/d"}
STORES: Final = {
    "ssl.keystore.type": "PEM",
    "ssl.keystore.location": "/k",
    "ssl.truststore.type": "PEM",
    "ssl.truststore.location": "/t",
}
NODES: Final = {
    "listeners": "PLAINTEXT://h:1,INTERNAL://h:2",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:SSL",
    "ssl.client.auth": "required",
    "cluster.node.principals": "User:CN=node,C=US",
    **STORES,
}
SECRET: Final = "Hush.Value"


def test_a_listener_has_its_own_settings_where_it_says_something() -> None:
    config = load(
        LEAST
        | STORES
        | {
            "listeners": "SSL://h:1,MUTUAL://h:2,PLAINTEXT://h:3",
            "listener.security.protocol.map": "SSL:SSL,MUTUAL:SSL,PLAINTEXT:PLAINTEXT",
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.mutual.ssl.keystore.location": "/other",
        }
    )
    assert config.listener_tls.keys() == {"SSL", "MUTUAL"}
    assert config.listener_tls["SSL"].client_auth == "none"
    assert config.listener_tls["SSL"].ssl_keystore_location == "/k"
    assert config.listener_tls["MUTUAL"].client_auth == "required"
    assert config.listener_tls["MUTUAL"].ssl_keystore_location == "/other"


def test_below_sasl_only_the_listeners_own_word_asks_for_certificates() -> None:
    """S7: as in Kafka, where ``ssl.client.auth`` of the node is not of SASL_SSL."""
    sasl = {
        "cluster.secret": "s",
        "listeners": "PLAINTEXT://h:1,INTERNAL://h:2",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:SASL_SSL",
        "ssl.client.auth": "required",
    }
    assert load(LEAST | STORES | sasl).listener_tls["INTERNAL"].client_auth == "none"
    own = {"listener.name.internal.ssl.client.auth": "required"}
    assert load(LEAST | STORES | sasl | own).listener_tls["INTERNAL"].client_auth == "required"


@pytest.mark.parametrize(
    ("settings", "name", "reason"),
    [
        ({"listeners": "SSL://h:1"}, "ssl.keystore.location", "needs a keystore"),
        (
            {
                "listeners": "SSL://h:1",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": "/k",
                "ssl.client.auth": "requested",
            },
            "ssl.client.auth",
            "needs a truststore",
        ),
        (
            {**STORES, "listeners": "SSL://h:1", "ssl.keystore.password": SECRET},
            "ssl.keystore.password",
            "a PEM keystore has no password",
        ),
        (
            {
                **STORES,
                "listeners": "SSL://h:1",
                "listener.name.ssl.ssl.enabled.protocols": "TLSv1.1",
            },
            "listener.name.ssl.ssl.enabled.protocols",
            "not secure",
        ),
        ({"ssl.client.auth": "required"}, "ssl.client.auth", "no listener speaks TLS"),
        (
            {"listener.name.plaintext.ssl.keystore.location": "/k"},
            "listener.name.plaintext.ssl.keystore.location",
            "plaintext is PLAINTEXT",
        ),
        ({"ssl.provider": "SunJSSE"}, "ssl.provider", "names a Java class"),
        ({"ssl.engine.factory.class": "x.Y"}, "ssl.engine.factory.class", "names a Java class"),
        ({"ssl.client.auth": "maybe"}, "ssl.client.auth", "must be one of"),
        (
            {**NODES, "cluster.node.principals": ""},
            "cluster.node.principals",
            "not everybody with a certificate is a node",
        ),
        (
            {**NODES, "ssl.client.auth": "requested"},
            "ssl.client.auth",
            "must be required on INTERNAL",
        ),
        (
            {
                "cluster.secret": "s",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:SASL_SSL",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": "/k",
            },
            "ssl.truststore.location",
            "nodes are dialled by TLS",
        ),
        (
            {**STORES, "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:SASL_SSL"},
            "listener.security.protocol.map",
            "needs a cluster.secret",
        ),
    ],
)
def test_tls_that_would_not_be_what_it_says_is_refused(
    settings: dict[str, str], name: str, reason: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        load(LEAST | settings)
    found = [problem for problem in refused.value.problems if problem.startswith(name)]
    assert any(reason in problem for problem in found), refused.value.problems
    assert SECRET not in str(refused.value)


def test_nodes_may_prove_themselves_by_certificates_alone() -> None:
    config = load(LEAST | NODES)
    assert config.inter_broker_protocol == "SSL"


def test_super_users_are_nodes_as_in_kafka() -> None:
    values = {"super.users": "User:CN=a,C=US;User:b", "cluster.node.principals": " User:c ;"}
    assert node_principals(values) == {"User:CN=a,C=US", "User:b", "User:c"}


def test_the_listener_of_nodes_opens_as_what_the_map_says() -> None:
    """It was plain text or SASL_PLAINTEXT whatever the map said of it."""
    config = load(
        LEAST
        | STORES
        | {
            "cluster.secret": "s",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:SASL_SSL",
        }
    )
    assert config.inter_broker_protocol == "SASL_SSL"
    assert config.listener_tls.keys() == {"INTERNAL"}


@pytest.mark.parametrize(
    ("name", "is_it"),
    [
        ("ssl.key.password", True),
        ("ssl.keystore.key", True),
        ("listener.name.a.ssl.keystore.password", True),
        ("zookeeper.ssl.keystore.password", True),
        ("ssl.keystore.location", False),
        ("listener.name.a.ssl.truststore.type", False),
    ],
)
def test_passwords_and_keys_are_secrets(name: str, is_it: bool) -> None:
    assert is_secret(name) is is_it


def test_a_secret_is_not_in_what_a_configuration_looks_like() -> None:
    given = {"ssl.key.password": SECRET, "ssl.keystore.password": SECRET}
    assert SECRET not in repr(load(LEAST | given).ssl)


@pytest.mark.parametrize(
    ("settings", "name", "reason"),
    [
        (
            {"zookeeper.ssl.client.enable": "true"},
            "zookeeper.ssl.truststore.location",
            "must be set",
        ),
        (
            {"zookeeper.ssl.truststore.location": "/t.pem"},
            "zookeeper.ssl.truststore.location",
            "zookeeper.ssl.client.enable is not true",
        ),
        (
            {
                "zookeeper.ssl.client.enable": "true",
                "zookeeper.ssl.truststore.location": "/t.pem",
                "zookeeper.ssl.protocol": "TLSv1.1",
            },
            "zookeeper.ssl.protocol",
            "must be one of",
        ),
        (
            {
                "zookeeper.ssl.client.enable": "true",
                "zookeeper.ssl.truststore.location": "/t.pem",
                "zookeeper.ssl.keystore.location": "/k.p12",
            },
            "zookeeper.ssl.keystore.location",
            "needs ssl.keystore.password",
        ),
        ({"zookeeper.ssl.crl.enable": "true"}, "zookeeper.ssl.crl.enable", "not built"),
    ],
)
def test_tls_to_zookeeper_that_would_not_be_what_it_says_is_refused(
    settings: dict[str, str], name: str, reason: str
) -> None:
    """S69."""
    with pytest.raises(ConfigError) as refused:
        load(LEAST | settings)
    assert refused.value.problems[0].startswith(name)
    assert reason in str(refused.value)


def test_tls_to_zookeeper_is_told_by_the_names_of_files_as_its_own_client_has_it() -> None:
    given = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": "/t.pem",
        "zookeeper.ssl.keystore.location": "/k.p12",
        "zookeeper.ssl.keystore.password": SECRET,
    }
    tls = load(LEAST | given).zookeeper_tls.tls
    assert tls is not None
    assert (tls.ssl_truststore_type, tls.ssl_keystore_type) == ("PEM", "PKCS12")
    assert tls.ssl_keystore_password == SECRET
    assert tls.ssl_protocol == "TLSv1.2"
    assert load(LEAST).zookeeper_tls.tls is None
