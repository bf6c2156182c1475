"""``security.profile=hardened``: tighter numbers, and no start with anything open.

What is open is what ``barnabas security check`` calls so. Source: docs/spec/security.md §7 (the
profile), docs/spec/reliability.md §8.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from barnabas.protocol.settings import setting

from .security_review import Finding, Grade, settings_review

if TYPE_CHECKING:
    from .node_config import NodeConfig

PROFILE: Final = "security.profile"
HARDENED: Final = "hardened"
HARDENED_DEFAULTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "max.connections": "2000",
        "max.connections.per.ip": "200",
        "max.connection.creation.rate": "200",
        "connections.max.reauth.ms": "3600000",
        "sasl.server.max.receive.size": "65536",
        "socket.request.max.bytes": "16777216",
        "group.max.size": "1000",
    }
)
"""What holds where the file says nothing: bounds that Kafka does not have by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityProfileSettings:
    """How much a node insists on."""

    profile: str = setting(
        PROFILE,
        "",
        f"{HARDENED}: tighter bounds, and no start with anything that `barnabas security check` "
        "calls open",
        choices=("", HARDENED),
    )


def with_profile(values: Mapping[str, str]) -> Mapping[str, str]:
    """The settings, with the profile's defaults below them."""
    is_hardened = values.get(PROFILE, "").strip() == HARDENED
    return {**HARDENED_DEFAULTS, **values} if is_hardened else values


def open_settings(config: NodeConfig) -> list[str]:
    """As problems of settings, what a hardened node does not start with; none of other nodes."""
    return [] if config.profile.profile != HARDENED else list(problems(settings_review(config)))


def problems(found: Iterable[Finding]) -> Iterator[str]:
    """Each finding that is open, beginning with the name of its setting."""
    for finding in found:
        if finding.grade is Grade.OPEN:
            name = finding.name or PROFILE
            yield f"{name}: {finding.reason} ({PROFILE}={HARDENED}); {finding.remedy}"
