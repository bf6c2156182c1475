"""Settings of single groups of the new protocol (KIP-848): read, set, taken back.

They are settings of the cluster, kept for a group's name: before there is such a group, and after.
Source: docs/spec/consumer-groups.md §2.6.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.client.cluster import Cluster

from .descriptions import SettingDescription
from .topic_changes import alter_settings
from .topic_configs import GROUP, describe_settings


class GroupSettingsAdmin:
    """The part of the administrator that knows settings of groups."""

    cluster: Cluster

    async def describe_group_settings(
        self, groups: Iterable[str]
    ) -> dict[str, list[SettingDescription]]:
        """Every setting of these groups, by group; where the group has none, the brokers'.

        What a group was given has the source ``DYNAMIC_GROUP_CONFIG``. Raises KafkaError.
        """
        return await describe_settings(self.cluster, list(dict.fromkeys(groups)), kind=GROUP)

    async def alter_group_settings(
        self, group: str, settings: Mapping[str, str], removed: Iterable[str] = ()
    ) -> None:
        """Set and take back single settings of a group, all or none.

        They hold from each member's next heartbeat. Raises KafkaError: INVALID_CONFIG for what is
        out of the brokers' bounds.
        """
        await alter_settings(self.cluster, group, settings, removed, kind=GROUP)
