"""Whom a quota is for: a user, a client id, both, either by default, or an address.

Source: docs/spec/security.md §4 (S57, S58); Kafka 3.9 DefaultQuotaCallback, QuotaConfigs.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from barnabas.protocol.sanitizer import DEFAULT_ENTITY, desanitize, sanitize


class Default(enum.Enum):
    """Whoever has no quota of its own; no text, so that nobody can be called it."""

    DEFAULT = "<default>"


DEFAULT: Final = Default.DEFAULT
Name = str | Default
USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

CLIENT_KEYS: Final[Mapping[str, type[int] | type[float]]] = {
    PRODUCER_BYTE_RATE: int,
    CONSUMER_BYTE_RATE: int,
    REQUEST_PERCENTAGE: float,
    CONTROLLER_MUTATION_RATE: float,
}
"""Quotas of users and client ids, and whether Kafka keeps a whole number of each."""
IP_KEYS: Final[Mapping[str, type[int] | type[float]]] = {CONNECTION_CREATION_RATE: int}
"""Quotas of addresses."""


class ClientEntity(NamedTuple):
    """A user, a client id, or both; None is "not by this"."""

    user: Name | None = None
    client_id: Name | None = None

    @property
    def path(self) -> str:
        """Below ``/config``, as change notes have it."""
        parts = []
        if self.user is not None:
            parts += ["users", segment(self.user)]
        if self.client_id is not None:
            parts += ["clients", segment(self.client_id)]
        return "/".join(parts)


class IpEntity(NamedTuple):
    """An address, a host name, or all that have no quota of their own."""

    ip: Name

    @property
    def path(self) -> str:
        """Below ``/config``."""
        return f"ips/{segment(self.ip)}"


Entity = ClientEntity | IpEntity


def segment(name: Name) -> str:
    """A name as one level of a path."""
    return DEFAULT_ENTITY if isinstance(name, Default) else sanitize(name)


def entity_of(path: str) -> Entity:
    """Whom a path below ``/config`` is about; raises ValueError for one that is about nobody."""
    match path.split("/"):
        case ["users", user]:
            return ClientEntity(user=_named(user))
        case ["clients", client_id]:
            return ClientEntity(client_id=_named(client_id))
        case ["users", user, "clients", client_id]:
            return ClientEntity(_named(user), _named(client_id))
        case ["ips", ip]:
            return IpEntity(_named(ip))
        case _:
            raise ValueError(f"{path!r} is about no user, client or address")


def bounds_of(config: Mapping[str, str], keys: Mapping[str, type[Any]]) -> dict[str, float]:
    """The quotas among the settings of an entity; raises ValueError for one that is no bound.

    Others are left out: a user's credentials stand in the same place.
    """
    bounds = {}
    for key in keys:
        if key in config:
            bound = float(config[key])
            # Not a bound of zero, as one might think: in Kafka it throttles nothing, since its
            # throttle time is more than a number can hold.
            if not 0 < bound < math.inf:
                raise ValueError(f"{key}={config[key]} must be above 0")
            bounds[key] = bound
    return bounds


def _named(text: str) -> Name:
    if not text:
        raise ValueError("an empty name")
    return DEFAULT if text == DEFAULT_ENTITY else desanitize(text)
