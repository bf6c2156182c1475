"""The settings of groups in ZooKeeper: all known here, read again when a change is announced.

They outlive their groups, and are there before one. Source: docs/spec/consumer-groups.md §2.6.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from barnabas.client.zookeeper.interface import ZooKeeper, ZooKeeperError, read_if_any
from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.consumer_groups.group_settings import (
    GroupSettings,
    effective,
    held_back,
    node_settings,
)
from barnabas.protocol.zookeeper import znodes

from .config_announcements import ConfigAnnouncements

log = logging.getLogger(__name__)

NAMES_BYTES_MAX: Final = 512 * 1024
"""Of all groups that set something, as they stand in paths: each start lists them at once."""
_CHUNK: Final = 200
_NONE: Final[Mapping[str, str]] = {}
_KIND: Final = znodes.CONFIG_GROUPS.removeprefix(znodes.CONFIG + "/") + "/"


class GroupConfigs:
    """What groups set themselves, and what holds for each within the bounds of this node."""

    def __init__(
        self, zookeeper: ZooKeeper, now_ms: Callable[[], int], config: CoordinatorConfig
    ) -> None:
        self.on_change: list[Callable[[str], None]] = []
        """Called with the group whose settings are others now."""
        self.config = config
        """What holds for groups that set nothing, and the bounds for those that do."""
        self._zookeeper = zookeeper
        self._announcements = ConfigAnnouncements(zookeeper, znodes.GROUP_CHANGE_PREFIX, now_ms)
        self._node = node_settings(config)
        self._overrides: dict[str, Mapping[str, str]] = {}
        self._effective: dict[str, GroupSettings] = {}
        self._names_bytes = 0

    def settings_of(self, group: str) -> GroupSettings:
        """What holds for a group now; asked with each heartbeat."""
        return self._effective.get(group) or self._node(group)

    def overrides(self, group: str) -> Mapping[str, str]:
        """What a group sets itself, by Kafka's names; values as they were given."""
        return self._overrides.get(group, _NONE)

    def names(self) -> list[str]:
        """The groups that set something, in order."""
        return sorted(self._overrides)

    def has_room(self, group: str) -> bool:
        """Whether this group may be given settings, or has some: how many may is bounded."""
        size = len(znodes.group_segment(group))
        return group in self._overrides or self._names_bytes + size <= NAMES_BYTES_MAX

    async def load(self) -> None:
        """Read the settings of all groups, watching for announcements from here on."""
        await self._announcements.begin()
        segments = await self._zookeeper.children(znodes.CONFIG_GROUPS)
        found = {group for segment in segments if (group := znodes.group_of_segment(segment))}
        await self.read(sorted(found | self._overrides.keys()))

    async def run(self) -> None:
        """Follow the announcements until cancelled; :meth:`load` comes first."""
        while True:
            await self._announcements.wait()
            try:
                entities, names = await self._announcements.read()
                await self.read(sorted(_groups(entities)))
                await self._announcements.followed(names)
            except ZooKeeperError as error:
                log.warning("could not read changed settings of groups: %r", error)

    async def refresh(self, group: str) -> Mapping[str, str]:
        """Read one group's settings now."""
        await self.read([group])
        return self.overrides(group)

    async def read(self, groups: Iterable[str]) -> None:
        """Read the settings of some groups now, many at a time."""
        for chunk in _chunks(list(groups)):
            found = await asyncio.gather(*map(self._read_one, chunk))
            for group, overrides in zip(chunk, found, strict=True):
                self._take(group, overrides)

    async def _read_one(self, group: str) -> Mapping[str, str] | None:
        """The settings in ZooKeeper; None when they make no sense."""
        found = await read_if_any(self._zookeeper, znodes.group_config_path(group))
        try:
            return znodes.EntityConfig.from_json(found[0]).config if found else {}
        except ValueError as error:
            log.error("kept the former settings of a group group=%s: %s", group, error)
            return None

    def _take(self, group: str, overrides: Mapping[str, str] | None) -> None:
        if overrides is None or overrides == self.overrides(group):
            return
        is_known, size = group in self._overrides, len(znodes.group_segment(group))
        if overrides:
            self._overrides[group] = overrides
            self._effective[group] = effective(overrides, self.config)
            self._names_bytes += 0 if is_known else size
        else:
            del self._overrides[group], self._effective[group]
            self._names_bytes -= size
        log.info("changed the settings of a group group=%s overrides=%s", group, dict(overrides))
        for problem in held_back(overrides, self.config):
            log.warning("a setting of a group does not hold as it is group=%s: %s", group, problem)
        for callback in self.on_change:
            callback(group)


def _groups(entities: Iterable[str]) -> set[str]:
    segments = (path.removeprefix(_KIND) for path in entities if path.startswith(_KIND))
    return {group for segment in segments if (group := znodes.group_of_segment(segment))}


def _chunks(items: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(items), _CHUNK):
        yield items[start : start + _CHUNK]
