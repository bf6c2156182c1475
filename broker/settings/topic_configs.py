"""The overrides of topics in ZooKeeper: all known here, read again when a change is announced.

Source: docs/spec/cluster.md §1.6.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

from barnabas.client.zookeeper.interface import ZooKeeper, ZooKeeperError, read_if_any
from barnabas.protocol.names import topic_problem
from barnabas.protocol.zookeeper import znodes

from .config_announcements import ConfigAnnouncements

log = logging.getLogger(__name__)

_CHUNK: Final = 200
_NONE: Final[Mapping[str, str]] = {}


class TopicConfigs:
    """Overrides by topic. An announcement says only whose to read; its content is not trusted."""

    def __init__(self, zookeeper: ZooKeeper, now_ms: Callable[[], int]) -> None:
        self.on_change: list[Callable[[str], None]] = []
        """Called with the topic whose overrides are others now."""
        self.on_nodes: list[Callable[[], Awaitable[None]]] = []
        """Called when the settings of one node, or of all, are announced as changed."""
        self.on_entities: dict[str, list[Callable[[Collection[str]], Awaitable[None]]]] = {}
        """By kind (``users``, ``clients``, ``ips``): called with the announced paths of that kind,
        such as ``users/U`` and ``users/U/clients/C``."""
        self._zookeeper = zookeeper
        self._announcements = ConfigAnnouncements(zookeeper, znodes.CONFIG_CHANGE_PREFIX, now_ms)
        self._overrides: dict[str, Mapping[str, str]] = {}
        self._deleted: set[str] = set()

    def overrides(self, topic: str) -> Mapping[str, str]:
        """What the topic sets itself, by Kafka's topic-level names; values as they were given."""
        return self._overrides.get(topic, _NONE)

    def all_overrides(self) -> Mapping[str, Mapping[str, str]]:
        """By topic, of those that set anything."""
        return self._overrides

    async def load(self) -> None:
        """Read the overrides of all topics, watching for announcements from here on."""
        await self._announcements.begin()
        topics = await self._zookeeper.children(znodes.CONFIG_TOPICS)
        await self.read(name for name in topics if topic_problem(name) is None)

    async def run(self) -> None:
        """Follow the announcements until cancelled; :meth:`load` comes first."""
        while True:
            await self._announcements.wait()
            try:
                await self._follow()
                await self._look_again()
            except ZooKeeperError as error:
                log.warning("could not read changed settings: %r", error)

    def topics_deleted(self, topics: Iterable[str]) -> None:
        """These are gone, or were created again by now: nobody announces that their settings are.

        Read again soon; what topics set that do not exist is not kept.
        """
        self._deleted.update(topic for topic in topics if topic in self._overrides)
        if self._deleted:
            self._announcements.wake()

    async def _look_again(self) -> None:
        deleted = sorted(self._deleted)
        await self.read(deleted)
        self._deleted.difference_update(deleted)

    async def refresh(self, topic: str) -> Mapping[str, str]:
        """Read one topic's overrides now: for a topic just created, which nobody announces."""
        await self.read([topic])
        return self.overrides(topic)

    async def read(self, topics: Iterable[str]) -> None:
        """Read the overrides of some topics now, many at a time."""
        for chunk in _chunks(list(topics)):
            found = await asyncio.gather(*map(self._read_one, chunk))
            for topic, overrides in zip(chunk, found, strict=True):
                self._take(topic, overrides)

    async def _follow(self) -> None:
        entities, names = await self._announcements.read()
        kinds = [entity.partition("/") for entity in sorted(entities)]
        topics = [name for kind, _, name in kinds if kind == "topics"]
        await self.read(name for name in topics if topic_problem(name) is None)
        if any(kind == "brokers" for kind, _, _ in kinds):
            for callback in self.on_nodes:
                await callback()
        for kind, callbacks in self.on_entities.items():
            paths = [path for path in sorted(entities) if path.startswith(kind + "/")]
            for tell in callbacks if paths else ():
                await tell(paths)
        await self._announcements.followed(names)

    async def _read_one(self, topic: str) -> Mapping[str, str] | None:
        """The overrides in ZooKeeper, none for an unknown topic; None when they make no sense."""
        found = await read_if_any(self._zookeeper, znodes.topic_config_path(topic))
        try:
            return znodes.TopicConfig.from_json(found[0]).config if found else {}
        except ValueError as error:
            log.error("kept the former settings of a topic topic=%s: %s", topic, error)
            return None

    def _take(self, topic: str, overrides: Mapping[str, str] | None) -> None:
        if overrides is None or overrides == self.overrides(topic):
            return
        if overrides:
            self._overrides[topic] = overrides
        else:
            self._overrides.pop(topic, None)
        log.info("changed the settings of a topic topic=%s overrides=%s", topic, dict(overrides))
        for callback in self.on_change:
            callback(topic)


def _chunks(items: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(items), _CHUNK):
        yield items[start : start + _CHUNK]
