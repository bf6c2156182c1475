"""Settings shared by all clients, under Kafka's names.

Source: Kafka's CommonClientConfigs; the defaults are Kafka's unless the meaning says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from barnabas.protocol.jaas import JaasLogin, parse_jaas
from barnabas.protocol.oauthbearer import MECHANISM as OAUTHBEARER
from barnabas.protocol.scram import MECHANISMS
from barnabas.protocol.settings import ConfigError, declared, setting

from .bearer_tokens import URL, TokenProvider, file_provider, unsecured_provider
from .tls.tls_settings import TlsSettings

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_NONE: Final[Mapping[str, str]] = {}
_SCRAM_MODULE: Final = ".ScramLoginModule"
_TOKEN: Final = "tokenauth"  # noqa: S105 - the name of an option


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
    security_protocol: str | None = setting(
        "security.protocol",
        None,
        "SSL and SASL_SSL speak TLS; unset: SASL_PLAINTEXT where a login is given, else PLAINTEXT",
        choices=SECURITY_PROTOCOLS,
    )
    sasl_mechanism: str = setting(
        "sasl.mechanism",
        "PLAIN",
        "how the password is proved; PLAIN sends it as it is; OAUTHBEARER sends a token instead",
        choices=("PLAIN", *MECHANISMS, OAUTHBEARER),
    )
    sasl_username: str | None = setting("sasl.username", None, "name to log in by, if any")
    sasl_password: str | None = setting(
        "sasl.password", None, "password to log in by, if any", is_secret=True
    )
    sasl_jaas_config: str | None = setting(
        "sasl.jaas.config", None, "name and password as a Java client is given them", is_secret=True
    )
    sasl_oauthbearer_token_url: str | None = setting(
        URL, None, "for OAUTHBEARER: file URL of a token, which is read for each login"
    )
    sasl_oauth_token_provider: TokenProvider | None = field(default=None, repr=False)
    """For OAUTHBEARER: gives the token for each login; a coroutine function, or one that runs in a
    thread. It has no name in files."""

    @property
    def speaks_tls(self) -> bool:
        """Whether brokers are spoken to in TLS."""
        return (self.security_protocol or "").endswith("SSL")

    @property
    def token_provider(self) -> TokenProvider | None:
        """What gives tokens to log in by; None unless OAUTHBEARER is the mechanism.

        Raises ConfigError where there are none, or where they would not be sent.
        """
        if self.sasl_mechanism != OAUTHBEARER:
            return None
        if self.security_protocol is not None and not self.security_protocol.startswith("SASL_"):
            raise ConfigError(
                f"security.protocol={self.security_protocol}: sends no token, and "
                f"sasl.mechanism={OAUTHBEARER} is asked for"
            )
        found = self.sasl_oauth_token_provider
        if found is None and self.sasl_oauthbearer_token_url is not None:
            found = file_provider(self.sasl_oauthbearer_token_url)
        login = self._jaas_login
        if found is None and login is not None:
            found = unsecured_provider(login.options)
        if found is None:
            raise ConfigError(f"{URL}: must be set for {OAUTHBEARER}, or a token provider")
        return found

    @property
    def _jaas_login(self) -> JaasLogin | None:
        if self.sasl_jaas_config is None:
            return None
        try:
            return parse_jaas(self.sasl_jaas_config)
        except ValueError as error:
            raise ConfigError(f"sasl.jaas.config: {error}") from None

    @property
    def credentials(self) -> Credentials | None:
        """What to log in by; None when nobody asked for it. Raises ConfigError for half of it."""
        if self.sasl_mechanism == OAUTHBEARER:
            return None
        username, password, extensions = self.sasl_username, self.sasl_password, _NONE
        login = self._jaas_login
        if login is not None:
            if self.sasl_mechanism == "PLAIN" and login.module.endswith(_SCRAM_MODULE):
                # Kafka's own default is GSSAPI: the file would have failed there, not sent it.
                raise ConfigError("sasl.mechanism: must be set; PLAIN would send the password")
            username, password = login.options.get("username"), login.options.get("password")
            if login.options.get(_TOKEN) == "true":
                extensions = {_TOKEN: "true"}
        is_asked = username is not None
        if self.security_protocol is not None:
            is_wanted = self.security_protocol.startswith("SASL_")
            if is_asked and not is_wanted:
                raise ConfigError(
                    f"security.protocol={self.security_protocol}: sends no password, and one is "
                    "given"
                )
            if is_wanted and not is_asked:
                raise ConfigError("sasl.username: must be set, and sasl.password")
        if username is None:
            return None
        _check_text("sasl.username", username)
        _check_text("sasl.password", password or "")
        return Credentials(self.sasl_mechanism, username, password or "", extensions)


class Credentials(NamedTuple):
    """What a client proves."""

    mechanism: str
    username: str
    password: str
    extensions: Mapping[str, str]
    """Of SCRAM: ``tokenauth`` says that a delegation token stands for name and password."""

    def __repr__(self) -> str:
        """Without the password."""
        return f"Credentials({self.mechanism}, {self.username!r}, [hidden])"


def _check_text(name: str, value: str) -> None:
    """Raise ConfigError for what no login can carry; the value is not named."""
    if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
        raise ConfigError(f"{name}: holds a character that no login can carry")


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
