"""Stray replicas: logs of partitions that moved away, or whose topic is gone, are set aside.

The controller that ended the move remembers who has not deleted a replica yet; its successor does
not. What is found is set aside as `-stray` and kept: controller and znode both speak from
ZooKeeper, which may have been set back, and nobody was asked whether others have the records.

    the topic is the log's, and other nodes have the partition      set aside as `-stray`, kept
    no topic of that name, or one with another id                   the same
    the topic is the log's, and this node has the partition         left: an order is to come
    anything else (no topic id, no such partition, unreadable)      left, and said so

It is looked when a controller has said everything there is (UpdateMetadata of type 2) and named
this node no replica; the topic's znode is read after that. A node that is a replica again takes
back what it has set aside (`replica_manager.py`, `storage/stray_logs.py`).

Source: ReplicaManager.updateStrayLogs (3.9), which sets them aside too; docs/decisions/0011.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections import defaultdict
from typing import Final

from barnabas.broker.metadata.metadata_cache import MetadataCache
from barnabas.broker.storage.files import StorageError
from barnabas.broker.storage.log.log import Log
from barnabas.broker.storage.log_manager import LogManager
from barnabas.client.zookeeper.interface import ZooKeeper, ZooKeeperError, read_if_any
from barnabas.protocol.zookeeper import znodes

from .replica_manager import ReplicaManager

log = logging.getLogger(__name__)

RETRY_S: Final = 1.0
"""How long to wait for a ZooKeeper that did not answer."""


class StrayVerdict(enum.Enum):
    """What is to become of a log that the controller did not name."""

    MOVED = "moved to other nodes"
    GONE = "of a topic that is gone"
    OURS = "this node's, its order is to come"
    UNKNOWN = "nobody knows"


class StrayReplicas:
    """Looks at the logs of a node when a controller has told everything; :meth:`run` it."""

    def __init__(
        self,
        node_id: int,
        logs: LogManager,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        zookeeper: ZooKeeper,
    ) -> None:
        self._node_id = node_id
        self._logs = logs
        self._replicas = replicas
        self._metadata = metadata
        self._zookeeper = zookeeper
        self._told = asyncio.Event()
        metadata.on_whole.append(self._told.set)

    async def run(self) -> None:
        """Look each time everything was told, until cancelled."""
        while True:
            await self._told.wait()
            self._told.clear()
            try:
                await self._look()
            except ZooKeeperError as problem:
                log.info("could not ask about stray replicas: %r", problem)
                await asyncio.sleep(RETRY_S)
                self._told.set()

    async def _look(self) -> None:
        """Ask about each topic once: a node may have moved away from thousands of partitions."""
        by_topic: dict[str, list[Log]] = defaultdict(list)
        for found in self._logs.logs():
            if self._is_suspect(found):
                by_topic[found.topic].append(found)
        for topic, suspects in by_topic.items():
            data = await read_if_any(self._zookeeper, znodes.topic_path(topic))
            for found in suspects:
                if self._is_suspect(found):  # it may have been given the replica meanwhile
                    self._judge(found, None if data is None else data[0])

    def _is_suspect(self, found: Log) -> bool:
        """Whether the controller named other nodes for it, or nobody, and no order came since."""
        key = (found.topic, found.partition)
        if self._logs.get(*key) is not found or found.is_offline:
            return False
        known = self._metadata.snapshot.partition(*key)
        if known is not None and self._node_id in known.replicas:
            return False
        hosted = self._replicas.get(*key)
        # A replica in use is judged by its epoch alone: its order may be newer than the news.
        return hosted is None or (known is not None and known.leader_epoch > hosted.leader_epoch)

    def _judge(self, found: Log, data: bytes | None) -> None:
        verdict = self._verdict(found, data)
        path, size = found.directory, found.size
        try:
            if verdict in (StrayVerdict.MOVED, StrayVerdict.GONE):
                aside = self._replicas.set_aside(found.topic, found.partition)
                log.warning(
                    "set a stray replica aside path=%s bytes=%d as=%s: %s, delete the directory "
                    "by hand when nobody lacks the records",
                    *(path, size, aside, verdict.value),
                )
            elif verdict is StrayVerdict.UNKNOWN:
                log.warning("left a replica alone path=%s bytes=%d: %s", path, size, verdict.value)
        except StorageError as error:
            log.error("could not set a stray replica aside path=%s: %s", path, error)

    def _verdict(self, found: Log, data: bytes | None) -> StrayVerdict:
        """``data`` is what the topic's znode holds now; None when there is none."""
        if found.topic_id is None:
            return StrayVerdict.UNKNOWN
        is_told = self._metadata.snapshot.partition(found.topic, found.partition) is not None
        if data is None:
            # One that the controller still knows is on its way out: its order is to come.
            return StrayVerdict.OURS if is_told else StrayVerdict.GONE
        try:
            assignment = znodes.TopicAssignment.from_json(data)
        except ValueError:
            return StrayVerdict.UNKNOWN
        if assignment.topic_id is None:
            return StrayVerdict.UNKNOWN
        if assignment.topic_id != found.topic_id:
            return StrayVerdict.GONE
        nodes = assignment.partitions.get(found.partition, ())
        if self._node_id in nodes:
            return StrayVerdict.OURS
        return StrayVerdict.MOVED if nodes and is_told else StrayVerdict.UNKNOWN
