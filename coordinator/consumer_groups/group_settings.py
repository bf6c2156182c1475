"""What may be set for one consumer group; the node's settings where nothing is.

Source: docs/spec/consumer-groups.md §2.6.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from barnabas.coordinator.config import CoordinatorConfig


class GroupSettings(NamedTuple):
    """Of one group, in milliseconds."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


SettingsOf = Callable[[str], GroupSettings]
"""What holds for the group of this id now."""


def node_settings(config: CoordinatorConfig) -> SettingsOf:
    """The node's own, for every group."""
    settings = GroupSettings(
        config.consumer_session_timeout_ms,
        config.consumer_heartbeat_interval_ms,
        config.consumer_assignment_interval_ms,
    )
    return lambda _group_id: settings
