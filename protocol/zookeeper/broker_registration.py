"""How a broker registers: ``/brokers/ids/N``.

Source: docs/spec/cluster.md §1.2 and §2.10.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from . import json_fields as js

ALL_ROLES: Final = ("broker", "coordinator")
"""The roles of a node that names none, such as a Kafka broker."""

CONSUMER_GROUPS_FEATURE: Final = "group.version"
"""What a node registers that knows consumer groups (docs/spec/consumer-groups.md §1, C3)."""
CONSUMER_GROUPS: Final = {CONSUMER_GROUPS_FEATURE: {"min_version": 1, "max_version": 1}}
"""The feature as it is registered. Never in ``/feature``: a Kafka node would exit (C4)."""

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_PORT_MAX: Final = 65535
_NAME_BYTES_MAX: Final = 255
"""Of a host (RFC 1035) and of a listener."""
_RACK_BYTES_MAX: Final = 32_767
"""What a string in UpdateMetadata can hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistration:
    """Where a broker listens and what it does.

    ``endpoints`` are host (an IPv6 one without brackets) and port by upper-case listener name,
    ``security`` is the security protocol of each listener, PLAINTEXT where none is given.
    """

    endpoints: Mapping[str, tuple[str, int]]
    timestamp: int
    security: Mapping[str, str] = field(default_factory=dict)
    rack: str | None = None
    roles: tuple[str, ...] = ALL_ROLES
    sends_beacons: bool = False
    """It says by datagrams that it lives (docs/spec/reliability.md §3.1)."""
    votes: bool = False
    """It acknowledges controllers, and knows authority from voters (docs/beacons.md)."""
    jmx_port: int = -1
    features: Mapping[str, Any] = field(default_factory=dict)
    version: int = 5

    def to_json(self) -> bytes:
        """The payload in the layout of ``version``, plus keys of ours, which Kafka ignores."""
        plain = [
            self.endpoints[name] for name in self.endpoints if self.protocol(name) == "PLAINTEXT"
        ]
        host, port = plain[0] if plain else (None, -1)
        values: dict[str, Any] = {
            "version": self.version,
            "host": host,
            "port": port,
            "jmx_port": self.jmx_port,
            "timestamp": str(self.timestamp),
        }
        if self.version >= 2:
            values["endpoints"] = [
                endpoint_text(name, host, port) for name, (host, port) in self.endpoints.items()
            ]
        if self.version >= 3 and self.rack is not None:
            values["rack"] = self.rack
        if self.version >= 4:
            values["listener_security_protocol_map"] = {
                name: self.protocol(name) for name in self.endpoints
            }
            values["roles"] = list(self.roles)
            if self.sends_beacons:
                values["beacons"] = True
            if self.votes:
                values["voters"] = True
        if self.version >= 5:
            values["features"] = dict(self.features)
        return js.dump(values)

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Read a payload of version 1 to 5."""
        values = js.load(data)
        version = js.number(values, "version")
        if version == 1:
            host, port = js.text(values, "host"), js.number(values, "port")
            endpoints = {"PLAINTEXT": (host, port)}
        else:
            endpoints = dict(map(endpoint, js.strings(values, "endpoints")))
        plain = {name: name for name in endpoints if name in _PROTOCOLS}
        security = js.texts(values, "listener_security_protocol_map", plain)
        _check_reachable(endpoints, security)
        rack = js.text(values, "rack") if values.get("rack") is not None else None
        if rack is not None and len(rack.encode()) > _RACK_BYTES_MAX:
            raise ValueError(f"a rack of {len(rack)} letters")
        return cls(
            endpoints=endpoints,
            timestamp=js.number_text(values, "timestamp", -1),
            security=security,
            rack=rack,
            roles=js.strings(values, "roles", list(ALL_ROLES)),
            sends_beacons=values.get("beacons") is True,
            votes=values.get("voters") is True,
            jmx_port=js.number(values, "jmx_port", -1),
            features=js.mapping(values, "features", {}),
            version=version,
        )

    def protocol(self, listener: str) -> str:
        """The security protocol of a listener."""
        return self.security.get(listener, "PLAINTEXT")


def _check_reachable(endpoints: Mapping[str, tuple[str, int]], security: Mapping[str, str]) -> None:
    """Raises ValueError for what could not be told to others, let alone dialled."""
    if not endpoints:
        raise ValueError("no endpoints")
    if any(not 0 <= port <= _PORT_MAX for _, port in endpoints.values()):
        raise ValueError(f"endpoints {endpoints} name a port that is none")
    names = [*endpoints, *(host for host, _ in endpoints.values())]
    if any(len(name.encode()) > _NAME_BYTES_MAX for name in names):
        raise ValueError("a host or listener with a name that is too long")
    if not set(security.values()) <= set(_PROTOCOLS):
        raise ValueError(f"security protocols {security}")


def endpoint_text(listener: str, host: str, port: int) -> str:
    """``LISTENER://host:port``, an IPv6 host in brackets."""
    return f"{listener}://{f'[{host}]' if ':' in host else host}:{port}"


def endpoint(text: str) -> tuple[str, tuple[str, int]]:
    """Listener name in upper case, and host and port; raises ValueError."""
    listener, separator, address = text.partition("://")
    host, colon, port = address.rpartition(":")
    if not separator or not colon or not listener:
        raise ValueError(f"endpoint {text!r} is not LISTENER://host:port")
    return listener.upper(), (host.removeprefix("[").removesuffix("]"), int(port))
