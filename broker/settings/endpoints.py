"""Listeners and the addresses they are known by: ``NAME://host:port`` read and checked.

Source: docs/spec/cluster.md §1.2, §2.14 and §5.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from barnabas.protocol.settings import ConfigError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
LOCAL_HOST = "127.0.0.1"
_ENDPOINT = re.compile(r"([A-Za-z0-9_.-]+)://(?:\[([0-9A-Fa-f:.%]+)\]|([^:/\[\]]*)):(-?\d+)")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One listener's address: where it is bound, or what others are told to dial."""

    listener: str
    """Upper-case name."""
    protocol: str
    host: str
    port: int
    """0 in a bound address: any free port."""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"


def parse_protocol_map(text: str) -> dict[str, str]:
    """``CLIENT:PLAINTEXT,INTERNAL:SASL_PLAINTEXT`` as a mapping of listener to protocol."""
    protocols: dict[str, str] = {}
    problems = []
    for pair in filter(None, (word.strip() for word in text.split(","))):
        name, colon, protocol = pair.partition(":")
        if not colon or protocol.upper() not in PROTOCOLS:
            problems.append(
                f"listener.security.protocol.map={text}: {pair} must read NAME:PROTOCOL with "
                f"one of {', '.join(PROTOCOLS)}"
            )
        protocols[name.upper()] = protocol.upper()
    if problems:
        raise ConfigError(*problems)
    return protocols


def parse_endpoints(setting: str, text: str, protocols: Mapping[str, str]) -> tuple[Endpoint, ...]:
    """Every endpoint of a comma list; raises ConfigError naming ``setting`` and the bad ones.

    A listener without an entry in ``protocols`` must itself be called like a protocol.
    """
    endpoints, problems = [], []
    for word in filter(None, (word.strip() for word in text.split(","))):
        try:
            endpoints.append(_parse_endpoint(word, protocols))
        except ConfigError as error:
            problems.append(f"{setting}={text}: {error}")
    if problems:
        raise ConfigError(*problems)
    _refuse_twins(setting, text, endpoints)
    return tuple(endpoints)


def _parse_endpoint(word: str, protocols: Mapping[str, str]) -> Endpoint:
    found = _ENDPOINT.fullmatch(word)
    if found is None:
        raise ConfigError(f"{word} must read NAME://host:port")
    name = found[1].upper()
    protocol = protocols.get(name, name)
    if protocol not in PROTOCOLS:
        raise ConfigError(f"no protocol for {name} in listener.security.protocol.map")
    port = int(found[4])
    if not 0 <= port <= 65535:
        raise ConfigError(f"{port} is no port")
    return Endpoint(name, protocol, found[2] or found[3], port)


def advertised(configured: Endpoint, port: int) -> Endpoint:
    """What to tell others: ``configured``, or the bound endpoint; ``port`` is the one it got.

    Raises ConfigError for a wildcard address, which nobody can dial.
    """
    host = configured.host or LOCAL_HOST
    if host in ("0.0.0.0", "::"):  # noqa: S104 - refused here, never bound by default
        raise ConfigError(
            f"listeners={configured}: nobody can dial {host}; name the host in advertised.listeners"
        )
    return replace(configured, host=host, port=configured.port or port)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what is bound to a host; no name is looked up."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _refuse_twins(setting: str, text: str, endpoints: list[Endpoint]) -> None:
    names = [endpoint.listener for endpoint in endpoints]
    if len(set(names)) != len(names):
        raise ConfigError(f"{setting}={text}: each listener may be named once")
    places = [(endpoint.host, endpoint.port) for endpoint in endpoints if endpoint.port]
    if setting == "listeners" and len(set(places)) != len(places):
        raise ConfigError(f"{setting}={text}: two listeners on one port")
