"""Which tokens listeners believe, as files say it. Source: docs/spec/security.md §2 (S35, S36)."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from barnabas.broker.settings.dynamic_settings import scope_of
from barnabas.broker.settings.node_config import NodeConfig, load
from barnabas.broker.settings.oauthbearer_settings import ALGORITHMS, OAuthBearerSettings
from barnabas.broker.settings.security_review import Grade, settings_review
from barnabas.protocol.settings import ConfigError, declared

OWN = "listener.name.users."
NAMES = "sasl.oauthbearer."
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
JAAS = f"{OWN}oauthbearer.sasl.jaas.config"
GOOD = {
    f"{NAMES}jwks.endpoint.url": "https://issuer.test/keys",
    f"{NAMES}expected.audience": "a, b",
    f"{NAMES}expected.issuer": "https://issuer.test",
}


def config(given: dict[str, str], host: str = "127.0.0.1") -> NodeConfig:
    """A node with a listener USERS that takes bearer tokens."""
    return load(
        {
            "zookeeper.connect": "z:1",
            "log.dirs": "/d",
            "listeners": f"PLAINTEXT://127.0.0.1:1,USERS://{host}:2",
            "advertised.listeners": "PLAINTEXT://h:1,USERS://h:2",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,USERS:SASL_PLAINTEXT,"
            "INTERNAL:PLAINTEXT",
            f"{OWN}sasl.enabled.mechanisms": "OAUTHBEARER",
            **given,
        }
    )


def test_a_listener_believes_what_is_said_of_it_or_of_the_node() -> None:
    """S1: the listener's own value is stronger."""
    taken = config(GOOD | {f"{OWN}{NAMES}expected.issuer": "https://other.test"})
    terms = taken.listener_sasl["USERS"].oauthbearer
    assert terms is not None
    assert terms.audience == ("a", "b")
    assert terms.issuer == "https://other.test"
    assert (terms.sub_claim, terms.scope_claim, terms.clock_skew_s) == ("sub", "scope", 30)
    assert terms.algorithms == ALGORITHMS
    assert taken.listener_sasl["USERS"].mechanisms == ("OAUTHBEARER",)


def test_the_login_of_kafka_is_taken_and_says_nothing() -> None:
    assert config(GOOD | {JAAS: f"{MODULE};"}).listener_sasl
    assert config(GOOD | {JAAS: f'{MODULE} unsecuredLoginStringClaim_sub="x";'}).listener_sasl


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({f"{NAMES}jwks.endpoint.url": ""}, "jwks.endpoint.url: must be set"),
        ({f"{NAMES}expected.audience": ""}, "expected.audience: must be set"),
        ({f"{NAMES}expected.issuer": ""}, "expected.issuer: must be set"),
        ({f"{NAMES}jwks.endpoint.url": "http://issuer.test/keys"}, "must be https"),
        ({f"{NAMES}jwks.endpoint.url": "https://"}, "must be https"),
        ({f"{NAMES}jwks.endpoint.url": "https://h:x/"}, "is no URL"),
        ({f"{NAMES}jwks.endpoint.url": "file://host/keys"}, "must be https"),
        ({f"{NAMES}jwks.endpoint.url": "file:keys"}, "must be https"),
        ({f"{NAMES}jwks.endpoint.url": "ftp://h/keys"}, "must be https"),
        ({f"{NAMES}jwks.endpoint.url": "https://u:Hush@h/keys"}, "must not hold a password"),
        ({f"{NAMES}algorithms": "none"}, "must be one of"),
        ({f"{NAMES}algorithms": "HS256"}, "must be one of"),
        ({f"{NAMES}algorithms": ""}, "must name some"),
        ({f"{NAMES}clock.skew.seconds": "-1"}, "at least 0"),
        ({f"{NAMES}unsecured.enable": "true"}, "contradicts"),
        ({JAAS: f'{MODULE} unsecuredValidatorRequiredScope="s";'}, "unsecuredValidatorRequired"),
        ({JAAS: "com.Other required;"}, "must name org"),
        ({f"{OWN}{NAMES}token.endpoint.url": "https://h/token"}, "token.endpoint.url"),
    ],
)
def test_what_would_believe_too_much_is_refused(changed: dict[str, str], problem: str) -> None:
    """S36, S90: audience and issuer above all."""
    with pytest.raises(ConfigError, match=problem) as error:
        config(GOOD | changed)
    assert "Hush" not in str(error.value)


def test_tokens_that_nobody_signed_are_taken_on_the_loopback_alone_and_warned_of() -> None:
    asked = {f"{OWN}{NAMES}unsecured.enable": "true"}
    taken = config(asked)
    terms = taken.listener_sasl["USERS"].oauthbearer
    assert terms is not None
    assert terms.is_unsecured
    assert [one for one in taken.warnings if "is whoever he says" in one]
    for host in ("", "0.0.0.0", "10.0.0.1", "kafka.test"):
        with pytest.raises(ConfigError, match="reached by other machines"):
            config(asked, host)


def test_the_missing_library_is_named_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec

    def without(name: str, *rest: Any) -> Any:
        return None if name == "jwt" else real(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    with pytest.raises(ConfigError, match=r"PyJWT: pip install 'barnabas\[oauth\]'"):
        config(GOOD)
    assert config({f"{NAMES}unsecured.enable": "true"}).listener_sasl


@pytest.mark.parametrize("own", ["", OWN, f"{OWN}oauthbearer."])
@pytest.mark.parametrize("item", declared(OAuthBearerSettings))
def test_no_request_changes_what_is_believed(own: str, item: str) -> None:
    """S90: nor what is read from where (CVE-2025-27817), or by whom a class would be named."""
    assert scope_of(own + item) is None


def test_nodes_do_not_prove_themselves_by_tokens() -> None:
    inner = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,USERS:SASL_PLAINTEXT,"
        "INTERNAL:SASL_PLAINTEXT",
        "cluster.secret": "s",
        "listener.name.internal.sasl.enabled.mechanisms": "OAUTHBEARER",
    }
    with pytest.raises(ConfigError, match=r"nodes prove cluster\.secret"):
        config(GOOD | inner)


def test_what_a_review_finds_of_tokens() -> None:
    """Tokens that nobody signs, and a key of delegation tokens that can be guessed."""
    unsecured = f"{OWN}{NAMES}unsecured.enable"
    given = {unsecured: "true", "delegation.token.secret.key": "changeme"}
    found = {one.name: one for one in settings_review(config(given))}
    assert found[unsecured].grade is Grade.OPEN
    assert found[unsecured].remedy == f"{unsecured}=false"
    assert found["delegation.token.secret.key"].grade is Grade.OPEN
    assert "changeme" not in repr(found)
    good = GOOD | {"delegation.token.secret.key": "9f86d081884c7d659a2feaa0c55ad015"}
    names = {one.name for one in settings_review(config(good))}
    assert not names & {unsecured, f"{NAMES}unsecured.enable", "delegation.token.secret.key"}
