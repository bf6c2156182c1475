"""How the client logs in. Source: docs/spec/security.md §2 (S29, S38) and §6 (S71)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from barnabas.client.client_config import ClientConfig
from barnabas.client.cluster import Cluster
from barnabas.client.connection import connection as connection_module
from barnabas.client.connection.connection import Connection
from barnabas.client.connection.sasl_login import SaslLogin
from barnabas.client.errors import AuthenticationFailed
from barnabas.protocol import scram
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import metadata, sasl_authenticate, sasl_handshake
from barnabas.protocol.scram import MECHANISMS, NONCE_BYTES, ServerExchange
from barnabas.protocol.settings import ConfigError
from tests.client.scripted_broker import ScriptedBroker, scripted_broker

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PASSWORD = "canary"


class Guard:
    """A broker's side: what it offers, and what it knows of the password of ann."""

    def __init__(
        self,
        offered: Sequence[str],
        *,
        password: str = PASSWORD,
        lifetime_ms: int = 0,
        salt: bytes = b"salt",
    ) -> None:
        self.offered = offered
        self.chosen: list[str] = []
        self.tokens: list[bytes] = []
        self._password = password
        self._lifetime_ms = lifetime_ms
        self._salt = salt
        self._exchange: ServerExchange | None = None

    def answers(self) -> dict[ApiKey, Any]:
        return {
            ApiKey.SASL_HANDSHAKE: self._handshake,
            ApiKey.SASL_AUTHENTICATE: self._authenticate,
            ApiKey.METADATA: lambda request, version: metadata.MetadataResponse(topics=[]),
        }

    def _handshake(self, request: Any, version: int) -> sasl_handshake.SaslHandshakeResponse:
        self.chosen.append(request.mechanism)
        made = MECHANISMS.get(request.mechanism)
        self._exchange = ServerExchange(made) if made else None
        code = 0 if request.mechanism in self.offered else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        return sasl_handshake.SaslHandshakeResponse(error_code=code, mechanisms=self.offered)

    def _authenticate(
        self, request: Any, version: int
    ) -> sasl_authenticate.SaslAuthenticateResponse:
        token = bytes(request.auth_bytes)
        self.tokens.append(token)
        answer = b""
        if self._exchange is not None:
            answer = self._scram(self._exchange, token)
        return sasl_authenticate.SaslAuthenticateResponse(
            auth_bytes=answer, session_lifetime_ms=self._lifetime_ms
        )

    def _scram(self, exchange: ServerExchange, token: bytes) -> bytes:
        made = MECHANISMS[self.chosen[-1]]
        if not exchange.name:
            exchange.begin(token)
            salted = scram.salted_password(made, self._password, self._salt, 4096)
            known = scram.credential(made, salted, self._salt, 4096)
            return exchange.challenge([known], bytes(NONCE_BYTES))
        try:
            return exchange.finish(token)
        except scram.ScramError:
            return b"v=" + b"A" * 44  # it pretends


async def opened(broker: ScriptedBroker, login: SaslLogin) -> Connection:
    return await Connection.open("127.0.0.1", broker.port, sasl=login)


@pytest.mark.parametrize("mechanism", ["PLAIN", *MECHANISMS])
async def test_a_password_is_proved_by_the_mechanism_that_is_wanted(mechanism: str) -> None:
    guard = Guard([mechanism])
    login = SaslLogin("ann", PASSWORD, (mechanism,))
    async with scripted_broker(guard.answers()) as broker, await opened(broker, login):
        assert guard.chosen == [mechanism]
    is_in_clear = any(PASSWORD.encode() in token for token in guard.tokens)
    assert is_in_clear is (mechanism == "PLAIN")


async def test_a_broker_that_only_pretends_to_know_the_password_is_not_believed() -> None:
    """S29: it has to prove itself, too."""
    guard = Guard(["SCRAM-SHA-256"], password="another")
    async with scripted_broker(guard.answers()) as broker:
        with pytest.raises(AuthenticationFailed, match="cannot prove"):
            await opened(broker, SaslLogin("ann", PASSWORD, ("SCRAM-SHA-256",)))


async def test_a_mechanism_that_is_not_offered_names_those_that_are() -> None:
    guard = Guard(["SCRAM-SHA-512"])
    async with scripted_broker(guard.answers()) as broker:
        with pytest.raises(AuthenticationFailed, match="offers: SCRAM-SHA-512") as failure:
            await opened(broker, SaslLogin("ann", PASSWORD, ("PLAIN",)))
    assert failure.value.code is ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert guard.tokens == []


async def test_a_salted_password_is_derived_once_and_one_is_kept() -> None:
    """A broker that names another salt each time fills no memory."""
    login = SaslLogin("ann", PASSWORD, ("SCRAM-SHA-256",))
    for salt in (b"one", b"two", b"two"):
        guard = Guard(["SCRAM-SHA-256"], salt=salt)
        async with scripted_broker(guard.answers()) as broker, await opened(broker, login):
            ((_, kept),) = login._salted
            assert kept.salt == salt


async def test_a_client_opens_another_connection_before_its_login_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """S38, KIP-368: no request meets a connection that the broker is about to close."""
    monkeypatch.setattr(connection_module, "_SESSION_SHARE", 0)
    guard = Guard(["PLAIN"], lifetime_ms=600_000)
    config = ClientConfig(sasl_username="ann", sasl_password=PASSWORD)
    async with (
        scripted_broker(guard.answers()) as broker,
        Cluster(broker.address, config) as cluster,
    ):
        for _ in range(3):
            await cluster.to_any(metadata.MetadataRequest(topics=[]))
    assert len(guard.tokens) == 3


async def test_a_connection_whose_login_does_not_end_is_kept() -> None:
    guard = Guard(["PLAIN"])
    config = ClientConfig(sasl_username="ann", sasl_password=PASSWORD)
    async with (
        scripted_broker(guard.answers()) as broker,
        Cluster(broker.address, config) as cluster,
    ):
        for _ in range(3):
            await cluster.to_any(metadata.MetadataRequest(topics=[]))
    assert len(guard.tokens) == 1


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, None),
        ({"security_protocol": "PLAINTEXT"}, None),
        ({"sasl_username": "u", "sasl_password": "p"}, ("PLAIN", "u", "p")),
        (
            {
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "SCRAM-SHA-512",
                "sasl_username": "u",
                "sasl_password": "p",
            },
            ("SCRAM-SHA-512", "u", "p"),
        ),
        (
            {"sasl_jaas_config": f'{PLAIN} required username="u" password="p;q";'},
            ("PLAIN", "u", "p;q"),
        ),
    ],
)
def test_settings_say_what_to_log_in_by(
    settings: dict[str, Any], expected: tuple[str, str, str] | None
) -> None:
    found = ClientConfig(**settings).credentials
    assert (found and found[:3]) == expected


def test_a_token_logs_in_by_scram_with_kafkas_extension() -> None:
    jaas = f'{SCRAM} required username="id" password="hmac" tokenauth="true";'
    found = ClientConfig(sasl_mechanism="SCRAM-SHA-256", sasl_jaas_config=jaas).credentials
    assert found is not None
    assert found.extensions == {"tokenauth": "true"}


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"security_protocol": "PLAINTEXT", "sasl_username": "u"}, "sends no password"),
        ({"security_protocol": "SASL_PLAINTEXT"}, "sasl.username: must be set"),
        ({"sasl_jaas_config": f'{PLAIN} required username="canary"'}, "semicolon"),
    ],
)
def test_half_a_login_is_refused(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as refused:
        Cluster("h:1", ClientConfig(**settings))
    assert "canary" not in str(refused.value)


def test_no_password_is_shown() -> None:
    """S91."""
    config = ClientConfig(
        sasl_username="u",
        sasl_password="canary",
        sasl_jaas_config=f'{PLAIN} required username="u" password="canary";',
    )
    shown = repr((config, config.credentials, SaslLogin.of(config)))
    assert "canary" not in shown
