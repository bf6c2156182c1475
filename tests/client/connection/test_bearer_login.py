"""Our client logs in by OAUTHBEARER: docs/spec/security.md §2 (S35)."""

from __future__ import annotations

import base64
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from barnabas.client.bearer_tokens import token_from, unsecured_provider
from barnabas.client.client_config import ClientConfig
from barnabas.client.connection.sasl_login import SaslLogin
from barnabas.client.errors import AuthenticationFailed
from barnabas.protocol.oauthbearer import ACKNOWLEDGED, INVALID_TOKEN, parse_first_message
from barnabas.protocol.settings import ConfigError

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
CANARY = "aaa.Canary.ccc"


class Broker:
    """What it was sent, and what it answers."""

    def __init__(self, answer: bytes = b"") -> None:
        self.answer = answer
        self.received: list[bytes] = []

    async def send(self, token: bytes) -> bytes:
        self.received.append(token)
        if token == ACKNOWLEDGED:
            raise AuthenticationFailed(58, INVALID_TOKEN)
        return self.answer


async def logged_in(config: ClientConfig, broker: Broker) -> None:
    login = SaslLogin.of(config)
    assert login is not None
    assert CANARY not in repr(login) + repr(config)
    await login.prove("h:1", login.choice("h:1", 0.0), broker.send)


def given(provider: Any) -> ClientConfig:
    return ClientConfig(sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=provider)


async def test_a_provider_gives_a_token_for_each_login_be_it_a_coroutine_or_not() -> None:
    threads, count = [], 0

    def in_a_thread() -> str:
        nonlocal count
        count += 1
        threads.append(threading.current_thread())
        return f"t{count}\n"

    async def later() -> str:
        threads.append(threading.current_thread())
        return CANARY

    broker = Broker()
    for provider in (in_a_thread, in_a_thread, later):
        await logged_in(given(provider), broker)
    tokens = [parse_first_message(message).token for message in broker.received]
    assert tokens == ["t1", "t2", CANARY]
    main = threading.main_thread()
    assert [thread is main for thread in threads] == [False, False, True]


async def test_a_refused_token_is_acknowledged_and_told_as_what_it_is() -> None:
    broker = Broker(INVALID_TOKEN.encode())
    with pytest.raises(AuthenticationFailed, match="invalid_token") as refused:
        await logged_in(given(lambda: CANARY), broker)
    assert broker.received[1:] == [ACKNOWLEDGED]
    assert CANARY not in str(refused.value)


@pytest.mark.parametrize("token", ["", "a b", "x\x01y"])
async def test_what_is_no_token_is_not_sent(token: str) -> None:
    broker = Broker()
    with pytest.raises(AuthenticationFailed, match="gave no token"):
        await logged_in(given(lambda: token), broker)
    assert broker.received == []


async def test_a_provider_that_fails_is_a_failed_login() -> None:
    def fails() -> str:
        raise ZeroDivisionError(CANARY)

    with pytest.raises(AuthenticationFailed, match="ZeroDivisionError") as refused:
        await logged_in(given(fails), Broker())
    assert CANARY not in str(refused.value)


async def test_a_file_is_read_for_each_login(tmp_path: Path) -> None:
    path = tmp_path / "a token"
    config = ClientConfig(sasl_mechanism="OAUTHBEARER", sasl_oauthbearer_token_url=path.as_uri())
    broker = Broker()
    for token in ("first", "second"):
        path.write_text(token + "\n")
        await logged_in(config, broker)
    assert [parse_first_message(one).token for one in broker.received] == ["first", "second"]
    path.unlink()
    with pytest.raises(AuthenticationFailed, match="FileNotFoundError"):
        await logged_in(config, broker)


async def test_a_token_that_nobody_signs_is_made_of_kafkas_options() -> None:
    options = {"unsecuredLoginStringClaim_sub": "alice", "unsecuredLoginLifetimeSeconds": "60"}
    provider = unsecured_provider(options)
    assert provider is not None
    header, body, signature = (await token_from(provider)).split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    assert json.loads(base64.urlsafe_b64decode(header + "==")) == {"alg": "none"}
    assert (claims["sub"], claims["exp"] - claims["iat"], signature) == ("alice", 60, "")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({}, "must be set for OAUTHBEARER"),
        ({"sasl_jaas_config": f"{MODULE};"}, "must be set for OAUTHBEARER"),
        ({"sasl_jaas_config": MODULE}, "semicolon"),
        ({"sasl_oauthbearer_token_url": "https://h/token"}, "must be file:///PATH"),
        ({"sasl_oauthbearer_token_url": "file://h/token"}, "must be file:///PATH"),
        ({"security_protocol": "SSL", "sasl_oauth_token_provider": str}, "sends no token"),
        (
            {
                "sasl_jaas_config": f'{MODULE} unsecuredLoginStringClaim_sub="a" '
                'unsecuredLoginLifetimeSeconds="x";'
            },
            "whole number",
        ),
    ],
)
def test_settings_without_a_token_are_refused(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        SaslLogin.of(ClientConfig(sasl_mechanism="OAUTHBEARER", **settings))
