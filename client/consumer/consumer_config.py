"""Settings of the group consumer, under Kafka's names.

Source: Kafka's ConsumerConfig (3.9; 4.1 for group.protocol); docs/spec/coordinator.md §5.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from barnabas.client.client_config import ClientConfig, verify
from barnabas.protocol.settings import ConfigError, declared, parse, setting, suggestion

from .assignors import ASSIGNORS
from .fetch_config import RESETS, FetchConfig

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
"""The two protocols of groups."""
GROUP_PROTOCOL: Final = "group.protocol"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """How a consumer takes part in its group; how it fetches is :class:`FetchConfig`."""

    group_protocol: str = setting(
        GROUP_PROTOCOL,
        CLASSIC,
        "classic: a member assigns; consumer: the coordinator does (KIP-848)",
        choices=(CLASSIC, CONSUMER),
    )
    group_remote_assignor: str | None = setting(
        "group.remote.assignor",
        None,
        "with group.protocol=consumer: the coordinator's assignor; unset: its first",
    )
    group_instance_id: str | None = setting(
        "group.instance.id", None, "a static member: its partitions wait for it when it restarts"
    )
    session_timeout_ms: int = setting(
        "session.timeout.ms", 45_000, "the group goes on without a member silent so long", least=1
    )
    heartbeat_interval_ms: int = setting(
        "heartbeat.interval.ms", 3_000, "between signs of life", least=1
    )
    max_poll_interval_ms: int = setting(
        "max.poll.interval.ms",
        300_000,
        "the application must ask again within this time, or leave its group",
        least=1,
    )
    assignors: tuple[str, ...] = setting(
        "partition.assignment.strategy",
        ("range", "cooperative-sticky"),
        "strategies in the order we prefer; rebalances stop nobody only when all are cooperative",
        choices=sorted(ASSIGNORS),
    )
    auto_commit: bool = setting(
        "enable.auto.commit", True, "commit what was handed out before the last question"
    )
    auto_commit_interval_ms: int = setting(
        "auto.commit.interval.ms", 5_000, "between such commits", least=1
    )
    auto_offset_reset: str = setting(
        "auto.offset.reset",
        "latest",
        "where to begin without a committed offset",
        choices=RESETS,
    )
    metadata_max_age_ms: int = setting(
        "metadata.max.age.ms", 300_000, "new partitions and topics are noticed by then", least=1
    )

    def __post_init__(self) -> None:
        """Raise ConfigError for values that make no sense, alone or together."""
        verify(self)
        self._verify_protocol()
        if not self.assignors:
            raise ConfigError("partition.assignment.strategy: name at least one")
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigError("heartbeat.interval.ms: must be less than session.timeout.ms")

    def _verify_protocol(self) -> None:
        if self.group_protocol == CLASSIC:
            if self.group_remote_assignor is not None:
                raise ConfigError("group.remote.assignor: needs group.protocol=consumer")
            return
        if self.group_remote_assignor == "":
            raise ConfigError("group.remote.assignor: must be unset, or name an assignor")
        if self.group_instance_id is not None and not self.group_instance_id.strip():
            raise ConfigError("group.instance.id: must be unset, or not be blank")
        settings = declared(ConsumerConfig)
        refuse_classic(
            name
            for name in _CLASSIC_ONLY
            if getattr(self, settings[name].field) != settings[name].default
        )

    @property
    def is_cooperative(self) -> bool:
        """Whether partitions are kept while the group rebalances."""
        return all(ASSIGNORS[name].is_cooperative for name in self.assignors)


_CLASSIC_ONLY: Final = {
    "session.timeout.ms": "see the brokers' group.consumer.session.timeout.ms",
    "heartbeat.interval.ms": "see the brokers' group.consumer.heartbeat.interval.ms",
    "partition.assignment.strategy": "see group.remote.assignor",
}
"""What the coordinator decides in the consumer protocol, and by which setting."""


def refuse_classic(names: Iterable[str]) -> None:
    """Raise ConfigError, as Kafka's client does, where one of ``names`` is for classic groups only.

    They are settings that somebody has set, to whatever value.
    """
    problems = [
        f"{name}: cannot be set with group.protocol=consumer; {_CLASSIC_ONLY[name]}"
        for name in names
        if name in _CLASSIC_ONLY
    ]
    if problems:
        raise ConfigError(*problems)


ALIASES: Final = {
    "auto.commit.enable": "enable.auto.commit",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
}
"""What 0.8 called the same thing."""
_OLD_RESETS: Final = {"smallest": "earliest", "largest": "latest"}
_ELSEWHERE: Final = frozenset({"group.id", "bootstrap.servers"})


def parse_consumer(
    values: Mapping[str, Any],
) -> tuple[ConsumerConfig, FetchConfig, ClientConfig]:
    """The three sets of settings from text values; raises ConfigError for unknown names."""
    known = {**declared(ConsumerConfig), **declared(FetchConfig), **declared(ClientConfig)}
    found: dict[str, str] = {}
    for name, value in values.items():
        name = ALIASES.get(name, name)
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if name in _ELSEWHERE:
            raise ConfigError(f"{name}: is an argument of the consumer, no setting")
        if name not in known:
            raise ConfigError(f"{name}: unknown{suggestion(name, [*known, *ALIASES])}")
        if name == GROUP_PROTOCOL:
            text = text.lower()  # in any case, as in Kafka
        found[name] = _OLD_RESETS.get(text, text) if name == "auto.offset.reset" else text
    if found.get(GROUP_PROTOCOL) == CONSUMER:
        refuse_classic(found)
    return parse(ConsumerConfig, found), parse(FetchConfig, found), parse(ClientConfig, found)
