"""Settings of one group changed: any node judges them by its bounds, ZooKeeper keeps them.

Source: docs/spec/consumer-groups.md §2.6 (C24); Kafka 4.1 ControllerConfigurationValidator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from barnabas.broker.settings.config_changes import ConfigChanges, Overrides
from barnabas.broker.settings.group_configs import GroupConfigs
from barnabas.coordinator.consumer_groups.group_settings import GroupConfig, refused
from barnabas.protocol.settings import ConfigError, declared

from .config_edits import Operation, edit_of, invalid

GROUP: Final = 32
"""The kind of resource, in Kafka's numbers."""


async def change_group(
    groups: GroupConfigs,
    changes: ConfigChanges,
    group: str,
    operations: Sequence[Operation],
    *,
    is_dry: bool,
    is_all: bool,
) -> None:
    """Change the settings of a group, whether there is one or not.

    Raises ConfigError (40) for settings that cannot be, Refused for what is no group (42).
    """
    if not group:
        raise invalid("a group must be named: there are no settings of all groups")

    def judge(wanted: Overrides) -> None:
        problems = refused(wanted, [name for name, _, _ in operations], groups.config)
        if problems:
            raise ConfigError(*problems)
        if wanted and not groups.has_room(group):
            raise invalid("the names of all groups with settings are too long together")

    edit = edit_of(operations, declared(GroupConfig).get, lambda _: "", judge, is_all=is_all)
    await changes.change_group(group, edit, is_dry=is_dry)
    if not is_dry:
        await groups.refresh(group)
