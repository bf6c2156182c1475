"""Whether a node tells its metrics, where, and in how much detail.

Source: docs/spec/users.md §4. Off unless asked for: an open port is an operator's decision.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from barnabas.protocol.settings import ConfigError, setting

DIALECTS: Final = ("kafka_exporter", "lag_exporter")
"""Whose names may be exported beside ours, so that existing boards work."""
_PORTS: Final = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    """What the listener for metrics does."""

    listener: str | None = setting(
        "metrics.listener",
        None,
        "host:port that answers GET /metrics, /status, /healthz and /readyz; unset: none of them",
    )
    advertised_listener: str | None = setting(
        "metrics.advertised.listener",
        None,
        "host:port at which others reach it, for those who read the node's settings; unset: as it "
        "is bound",
    )
    token: str | None = setting(
        "metrics.token",
        None,
        "what is to be shown as bearer token from other machines; unset: they may scrape only",
        is_secret=True,
    )
    lag_interval_ms: int = setting(
        "metrics.lag.interval.ms", 10_000, "how often groups and their lag are looked at", least=100
    )
    partitions_regex: str | None = setting(
        "metrics.partitions.regex", None, "groups whose metrics go by partition"
    )
    groups_regex: str | None = setting(
        "metrics.groups.regex", None, "groups that have metrics of their own; unset: all"
    )
    groups_worst: int | None = setting(
        "metrics.groups.worst",
        None,
        "so many groups at most have them, the worst by verdict, seconds and lag; unset: all",
        least=0,
    )
    topics_max: int = setting(
        "metrics.topics.max",
        1000,
        "so many topics at most have counts of bytes and records by name, the first that had any; "
        "the others have them together",
        least=0,
    )
    slow_request_ms: int | None = setting(
        "slow.request.log.ms",
        None,
        "requests that take longer are logged, those that wait by design (Fetch, JoinGroup) not",
        least=1,
    )
    compat: tuple[str, ...] = setting(
        "metrics.compat", (), "names of other exporters, beside ours", choices=DIALECTS
    )

    def __post_init__(self) -> None:
        if self.listener is not None and _address(self.listener) is None:
            raise ConfigError(f"metrics.listener={self.listener}: must be host:port")
        told = self.advertised_listener
        if told is not None and _address(told) is None:
            raise ConfigError(f"metrics.advertised.listener={told}: must be host:port")
        for name, text in (
            ("metrics.partitions.regex", self.partitions_regex),
            ("metrics.groups.regex", self.groups_regex),
        ):
            try:
                re.compile(text or "")
            except re.error as error:
                raise ConfigError(f"{name}={text}: {error}") from None

    @property
    def address(self) -> tuple[str, int] | None:
        """Where to listen, port 0 for any; None when nothing is to be told."""
        return None if self.listener is None else _address(self.listener)

    def names(self, group: str) -> bool:
        """Whether ``group`` has metrics of its own."""
        return self.groups_regex is None or re.fullmatch(self.groups_regex, group) is not None

    def names_partitions_of(self, group: str) -> bool:
        """Whether each partition of ``group`` is told by itself."""
        pattern = self.partitions_regex
        return pattern is not None and re.fullmatch(pattern, group) is not None


def _address(text: str) -> tuple[str, int] | None:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) >= _PORTS:
        return None
    return host.strip("[]"), int(port)
