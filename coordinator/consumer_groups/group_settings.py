"""What may be set for one consumer group; the node's settings where nothing is.

Source: docs/spec/consumer-groups.md §2.6; KIP-848, and KIP-1240 for what is out of bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.protocol.settings import ConfigError, Setting, declared, parsed, setting, suggestion

if TYPE_CHECKING:
    from barnabas.coordinator.config import CoordinatorConfig

INT32_MAX: Final = 2**31 - 1
NODE_PREFIX: Final = "group."
"""Before the name of a group's setting: the name of the node's."""
SESSION: Final = "consumer.session.timeout.ms"
HEARTBEAT: Final = "consumer.heartbeat.interval.ms"
ASSIGNMENT: Final = "consumer.assignment.interval.ms"


class GroupSettings(NamedTuple):
    """Of one group, in milliseconds."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


SettingsOf = Callable[[str], GroupSettings]
"""What holds for the group of this id now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """The settings of a group, as Kafka declares them; a node's are what holds without them."""

    session_timeout_ms: int = setting(
        SESSION, 45_000, "how long a member may be silent", least=1, most=INT32_MAX
    )
    heartbeat_interval_ms: int = setting(
        HEARTBEAT, 5000, "how often members are told to send heartbeats", least=1, most=INT32_MAX
    )
    assignment_interval_ms: int = setting(
        ASSIGNMENT,
        1000,
        "how long after one assignment the next one is computed, at least",
        least=0,
        most=INT32_MAX,
    )


class Bounded(NamedTuple):
    """One setting as a node bounds it: the node's own value, and what a group may be given."""

    item: Setting
    node: int
    least: int
    most: int


def node_settings(config: CoordinatorConfig) -> SettingsOf:
    """The node's own, for every group."""
    settings = _effective({}, config)
    return lambda _group_id: settings


def effective(overrides: Mapping[str, str], config: CoordinatorConfig) -> GroupSettings:
    """What holds for a group that sets these: within the bounds of this node (KIP-1240).

    They may have been set by another release, or when the bounds were others: what cannot be read
    counts as not set. Where the heartbeat interval would not be below the session timeout any
    more, the node's two hold, which are.
    """
    found = _effective(overrides, config)
    if found.heartbeat_interval_ms < found.session_timeout_ms:
        return found
    node = _effective({}, config)
    return node._replace(assignment_interval_ms=found.assignment_interval_ms)


def refused(
    overrides: Mapping[str, str], named: Collection[str], config: CoordinatorConfig
) -> list[str]:
    """Why a group cannot be given these, each reason with its setting; empty when it can.

    ``named`` are those that somebody wants now; what others left there is not looked at.
    """
    known = declared(GroupConfig)
    problems = [
        f"{name}: is no setting of a group{suggestion(name, known)}"
        for name in sorted(named)
        if name in overrides and name not in known
    ]
    for bounded in _bounds(config):
        name = bounded.item.name
        if name in named and name in overrides:
            problems += _refused_value(bounded, overrides[name])
    if not problems:
        found = _effective(overrides, config)
        if found.heartbeat_interval_ms >= found.session_timeout_ms:
            problems.append(
                f"{HEARTBEAT}={found.heartbeat_interval_ms}: must be less than "
                f"{SESSION}={found.session_timeout_ms}"
            )
    return problems


def held_back(overrides: Mapping[str, str], config: CoordinatorConfig) -> list[str]:
    """Those among the settings of a group that do not hold here as they are, each with why."""
    problems = [
        problem
        for bounded in _bounds(config)
        if bounded.item.name in overrides
        for problem in _refused_value(bounded, overrides[bounded.item.name])
    ]
    if not problems:
        problems = refused(overrides, (), config)
    return problems


def _refused_value(bounded: Bounded, text: str) -> list[str]:
    item, least, most = bounded.item, bounded.least, bounded.most
    try:
        value = parsed(item, text)
    except ConfigError as error:
        return list(error.problems)
    if least <= value <= most:
        return []
    return [f"{item.name}={value}: must be between {least} and {most}, the bounds of this node"]


def _effective(overrides: Mapping[str, str], config: CoordinatorConfig) -> GroupSettings:
    return GroupSettings(
        **{bounded.item.field: _value(bounded, overrides) for bounded in _bounds(config)}
    )


def _value(bounded: Bounded, overrides: Mapping[str, str]) -> int:
    text = overrides.get(bounded.item.name)
    if text is None:
        return bounded.node
    try:
        value: int = parsed(bounded.item, text)
    except ConfigError:
        return bounded.node
    return min(max(value, bounded.least), bounded.most)


def _bounds(config: CoordinatorConfig) -> Iterator[Bounded]:
    known = declared(GroupConfig)
    yield Bounded(
        known[SESSION],
        config.consumer_session_timeout_ms,
        config.consumer_session_timeout_min_ms,
        config.consumer_session_timeout_max_ms,
    )
    yield Bounded(
        known[HEARTBEAT],
        config.consumer_heartbeat_interval_ms,
        config.consumer_heartbeat_interval_min_ms,
        config.consumer_heartbeat_interval_max_ms,
    )
    interval = declared(type(config))[NODE_PREFIX + ASSIGNMENT]
    assert interval.least is not None, "declared so"
    assert interval.most is not None, "declared so"
    yield Bounded(
        known[ASSIGNMENT],
        config.consumer_assignment_interval_ms,
        int(interval.least),
        int(interval.most),
    )
