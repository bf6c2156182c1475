"""TLS of a node's listeners: keys, trust, whose certificates are asked for and what they say.

Every setting may also be of one listener. Source: docs/spec/security.md §1 (S1 to S13).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from barnabas.client.tls.tls_settings import SECRET_NAMES, TlsSettings, store_problems
from barnabas.client.zookeeper.zookeeper_tls_settings import SECRET_NAMES as ZOOKEEPER_SECRET_NAMES
from barnabas.protocol.settings import ConfigError, declared, parse, setting

from .endpoints import Endpoint
from .listener_settings import PREFIX, split_name, values_of_listener
from .unsupported_settings import NEVER_MORE_OPEN

CLIENT_AUTH: Final = "ssl.client.auth"
TLS_PROTOCOLS: Final = ("SSL", "SASL_SSL")


@dataclass(frozen=True, slots=True, kw_only=True)
class SslSettings(TlsSettings):
    """TLS of one listener, or what holds for those that say nothing themselves."""

    client_auth: str = setting(
        CLIENT_AUTH,
        "none",
        "whether clients show certificates; on SASL_SSL only behind listener.name.NAME.",
        choices=("none", "requested", "required"),
    )
    principal_mapping_rules: str = setting(
        "ssl.principal.mapping.rules",
        "DEFAULT",
        "from the name in a client's certificate to the name of a user",
    )
    allow_dn_changes: bool = setting(
        "ssl.allow.dn.changes", False, "a new certificate may be of another name"
    )
    allow_san_changes: bool = setting(
        "ssl.allow.san.changes", False, "a new certificate may leave out alternative names"
    )


def parse_listener_tls(
    values: Mapping[str, str], listeners: Iterable[Endpoint]
) -> dict[str, SslSettings]:
    """TLS by name of the listeners that speak it; raises ConfigError with all that is wrong."""
    found: dict[str, SslSettings] = {}
    problems: list[str] = []
    for endpoint in listeners:
        if endpoint.protocol not in TLS_PROTOCOLS:
            continue
        given = values_of_listener(values, endpoint.listener, SslSettings)
        if endpoint.protocol == "SASL_SSL":
            own = f"{PREFIX}{endpoint.listener.lower()}.{CLIENT_AUTH}"
            given[CLIENT_AUTH] = values.get(own, "none")
        try:
            settings = parse(SslSettings, given)
        except ConfigError as error:
            problems += error.problems
            continue
        problems += [
            f"{_as_given(name, endpoint.listener, values)}: {reason}"
            for name, reason in _problems(settings, endpoint)
        ]
        found[endpoint.listener] = settings
    if problems:
        raise ConfigError(*dict.fromkeys(problems))
    return found


def unkept_promises(values: Mapping[str, str], listeners: Collection[Endpoint]) -> Iterator[str]:
    """What is said of TLS where none is spoken: the node would be more open than its file says."""
    protocols = {endpoint.listener.lower(): endpoint.protocol for endpoint in listeners}
    speaks = any(protocol in TLS_PROTOCOLS for protocol in protocols.values())
    for name, text in values.items():
        found = split_name(name)
        own = name if found is None else found.setting
        if own not in declared(SslSettings) or not text.strip():
            continue
        if found is not None and protocols.get(found.listener, "SSL") not in TLS_PROTOCOLS:
            yield f"{name}: {found.listener} is {protocols[found.listener]}; {NEVER_MORE_OPEN}"
        elif name == CLIENT_AUTH and not speaks and text.strip() != "none":
            yield f"{name}: no listener speaks TLS; {NEVER_MORE_OPEN}"


def is_secret(name: str) -> bool:
    """Whether a setting, of a listener or not, is never told."""
    found = split_name(name)
    own = name if found is None else found.setting
    return own in SECRET_NAMES or own in ZOOKEEPER_SECRET_NAMES


def _problems(settings: SslSettings, endpoint: Endpoint) -> Iterator[tuple[str, str]]:
    yield from store_problems(settings)
    if not settings.has_key:
        yield "ssl.keystore.location", f"{endpoint} is {endpoint.protocol}, and needs a keystore"
    if settings.client_auth != "none" and not settings.has_trust:
        yield CLIENT_AUTH, f"{settings.client_auth} needs a truststore"


def _as_given(name: str, listener: str, values: Mapping[str, str]) -> str:
    own = f"{PREFIX}{listener.lower()}.{name}"
    return own if own in values else name
