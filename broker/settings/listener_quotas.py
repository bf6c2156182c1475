"""How many connections a listener or an address may have: what the settings say of each.

Source: KIP-402 (``max.connections``), KIP-612 (``max.connection.creation.rate``), both also behind
``listener.name.NAME.``; Kafka 3.9 ConnectionQuotas.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from barnabas.protocol.settings import ConfigError, Setting, declared, parsed

from .listener_settings import split_name
from .node_settings import NetworkSettings

UNLIMITED: Final = 2_147_483_647
CONNECTIONS: Final = "max.connections"
CREATION_RATE: Final = "max.connection.creation.rate"
OVERRIDES: Final = "max.connections.per.ip.overrides"


@dataclass(frozen=True, slots=True)
class ListenerQuota:
    """Of one listener, beside the node's own bounds."""

    connections_max: int = UNLIMITED
    creations_per_s: int = UNLIMITED


def quota_setting(name: str) -> Setting | None:
    """The declaration behind a listener's own bound; None for any other name."""
    found = split_name(name)
    if found is None or found.mechanism or found.setting not in (CONNECTIONS, CREATION_RATE):
        return None
    return replace(declared(NetworkSettings)[found.setting], name=name)


def parse_listener_quotas(values: Mapping[str, str]) -> dict[str, ListenerQuota]:
    """By listener name; raises ConfigError naming every value that is none."""
    bounds: dict[str, ListenerQuota] = {}
    problems: list[str] = []
    for name, text in values.items():
        item, found = quota_setting(name), split_name(name)
        if item is None or found is None:
            continue
        listener = found.listener.upper()
        try:
            value = parsed(item, text)
        except ConfigError as error:
            problems += error.problems
            continue
        field = "connections_max" if found.setting == CONNECTIONS else "creations_per_s"
        bounds[listener] = replace(bounds.get(listener, ListenerQuota()), **{field: value})
    if problems:
        raise ConfigError(*problems)
    return bounds


def parse_address_quotas(settings: NetworkSettings) -> dict[str, int]:
    """Address or host name to its own bound, from ``host:count`` pairs; raises ConfigError."""
    bounds: dict[str, int] = {}
    for word in settings.max_connections_per_ip_overrides:
        host, _, count = word.rpartition(":")
        if not host or not count.isdecimal():
            raise ConfigError(f"{OVERRIDES}={word}: must read host:count")
        name = host.strip("[]")
        try:
            name.encode("idna")
        except ValueError as error:
            raise ConfigError(f"{OVERRIDES}={word}: {name} is no host name: {error}") from None
        bounds[name] = int(count)
    if not settings.max_connections_per_ip and not bounds:
        raise ConfigError(f"max.connections.per.ip=0: lets nobody in, since {OVERRIDES} is not set")
    return bounds
