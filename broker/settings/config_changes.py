"""Settings written to ZooKeeper, and the announcement that has every node read them.

Source: docs/spec/cluster.md §1.6; of groups docs/spec/consumer-groups.md §2.6.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from barnabas.client.zookeeper.interface import (
    BadVersion,
    Create,
    Delete,
    MultiFailed,
    NodeExists,
    NoNode,
    Op,
    PayloadTooLarge,
    Set,
    Stat,
    ZooKeeper,
    ZooKeeperError,
    read_if_any,
)
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.zookeeper import znodes

ATTEMPTS_MAX: Final = 20
"""Writes lost in a row to others who change the same settings."""

Overrides = Mapping[str, str]
Edit = Callable[[Overrides], Overrides]
"""From the overrides as they are to those that are wanted; raises Refused."""


class ConfigChanges:
    """Changes the overrides of a topic, a group or nodes; two who do so at once both succeed."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper

    async def change_topic(self, topic: str, edit: Edit, *, is_dry: bool) -> None:
        """Change a topic's overrides, or only judge the change; raises what ``edit`` raises."""
        await self._change(znodes.topic_config_path(topic), f"topics/{topic}", edit, is_dry=is_dry)

    async def change_node(self, node_id: int | None, edit: Edit, *, is_dry: bool) -> None:
        """Change the overrides of one node, or of all (None)."""
        path = znodes.broker_config_path(node_id)
        await self._change(path, path.removeprefix(znodes.CONFIG + "/"), edit, is_dry=is_dry)

    async def change_group(self, group: str, edit: Edit, *, is_dry: bool) -> None:
        """Change the overrides of a group; one that has none any more leaves nothing behind.

        With its announcement, or not at all.
        """
        path = znodes.group_config_path(group)
        for _ in range(ATTEMPTS_MAX):
            found = await read_if_any(self._zookeeper, path)
            before = _overrides(path, found[0] if found else b"")
            wanted = edit(before)
            if is_dry or wanted == before:
                return
            entity = path.removeprefix(znodes.CONFIG + "/")
            note = znodes.ConfigChange(entity_path=entity).to_json()
            try:
                await self._zookeeper.multi(
                    _replaced(path, found and found[1], wanted),
                    Create(znodes.GROUP_CHANGE_PREFIX, note, sequence=True),
                )
            except MultiFailed as failed:
                if not isinstance(failed.error, BadVersion | NodeExists | NoNode):
                    raise
                continue
            return
        raise ZooKeeperError(f"others keep changing {path}")

    async def _change(self, path: str, entity: str, edit: Edit, *, is_dry: bool) -> None:
        for _ in range(ATTEMPTS_MAX):
            found = await read_if_any(self._zookeeper, path)
            wanted = edit(_overrides(path, found[0] if found else b""))
            if is_dry:
                return
            data = znodes.EntityConfig(config=wanted).to_json()
            try:
                if found is None:
                    await self._zookeeper.create(path, data)
                else:
                    await self._zookeeper.set(path, data, found[1].version)
            except (BadVersion, NodeExists):
                continue
            except PayloadTooLarge:
                reason = "the settings are more than a znode can hold"
                raise Refused(ErrorCode.INVALID_REQUEST, reason) from None
            note = znodes.ConfigChange(entity_path=entity).to_json()
            await self._zookeeper.create(znodes.CONFIG_CHANGE_PREFIX, note, sequence=True)
            return
        raise ZooKeeperError(f"others keep changing {path}")


def _replaced(path: str, stat: Stat | None, wanted: Overrides) -> Op:
    """From what was read, ``stat``, to what is wanted; nothing needs no znode."""
    data = znodes.EntityConfig(config=wanted).to_json()
    if stat is None:
        return Create(path, data)
    return Set(path, data, stat.version) if wanted else Delete(path, stat.version)


def _overrides(path: str, data: bytes) -> Overrides:
    try:
        return znodes.EntityConfig.from_json(data).config
    except ValueError as error:
        raise Refused(ErrorCode.INVALID_CONFIG, f"{path} cannot be read: {error}") from None
