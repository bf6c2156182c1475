"""Settings shared by all clients, under Kafka's names.

Source: Kafka's CommonClientConfigs; the defaults are Kafka's unless the meaning says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from barnabas.protocol.settings import ConfigError, declared, setting

from .tls.tls_settings import TlsSettings

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig(TlsSettings):
    """Settings shared by everything that talks to a cluster."""

    client_id: str = setting("client.id", "barnabas", "how brokers name us in logs and groups")
    connect_timeout_ms: int = setting(
        "socket.connection.setup.timeout.ms", 10_000, "bound on connecting to one broker", least=1
    )
    request_timeout_ms: int = setting(
        "request.timeout.ms", 30_000, "bound on the answer to one request", least=1
    )
    api_timeout_ms: int = setting(
        "default.api.timeout.ms", 60_000, "bound on one call with all its retries", least=1
    )
    retry_backoff_ms: int = setting(
        "retry.backoff.ms", 100, "wait before the first retry, doubled for each more", least=0
    )
    retry_backoff_ms_max: int = setting(
        "retry.backoff.max.ms", 1_000, "longest wait before a retry", least=0
    )
    security_protocol: str = setting(
        "security.protocol",
        "PLAINTEXT",
        "SSL and SASL_SSL speak TLS to brokers",
        choices=SECURITY_PROTOCOLS,
    )
    sasl_username: str | None = setting("sasl.username", None, "name for SASL/PLAIN, if any")
    sasl_password: str | None = setting(
        "sasl.password", None, "password for SASL/PLAIN, if any", is_secret=True
    )

    @property
    def speaks_tls(self) -> bool:
        """Whether brokers are spoken to in TLS."""
        return self.security_protocol.endswith("SSL")

    @property
    def sasl(self) -> tuple[str, str] | None:
        """Name and password; None when nobody asked for authentication."""
        if self.sasl_username is None:
            return None
        return self.sasl_username, self.sasl_password or ""


def verify(settings: Any) -> None:
    """Raise ConfigError when a value of these settings, however made, is out of its bounds."""
    for item in declared(type(settings)).values():
        value = getattr(settings, item.field)
        if value is None:
            continue
        number = value if isinstance(value, int | float) else None
        if item.least is not None and number is not None and number < item.least:
            raise ConfigError(f"{item.name}={value}: must be at least {item.least:g}")
        if item.most is not None and number is not None and number > item.most:
            raise ConfigError(f"{item.name}={value}: must be at most {item.most:g}")
        words = value if isinstance(value, tuple) else (value,)
        if item.choices and not set(words) <= set(item.choices):
            raise ConfigError(f"{item.name}={value}: must be one of {', '.join(item.choices)}")
