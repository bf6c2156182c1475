"""What a client may be told about itself, under Kafka's names.

Source: Kafka's CommonClientConfigs; the defaults are Kafka's unless the meaning says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.protocol.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
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
    sasl_username: str | None = setting("sasl.username", None, "name for SASL/PLAIN, if any")
    sasl_password: str | None = setting("sasl.password", None, "password for SASL/PLAIN, if any")

    @property
    def sasl(self) -> tuple[str, str] | None:
        """Name and password; None when nobody asked for authentication."""
        if self.sasl_username is None:
            return None
        return self.sasl_username, self.sasl_password or ""
