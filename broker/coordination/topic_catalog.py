"""The topics of the cluster as consumer groups of the new protocol (KIP-848) see them.

Read from the metadata when somebody asks: where there are no such groups nothing is done for them.
Source: docs/spec/consumer-groups.md §6, C61 and C63; §1, C3 and C5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.broker.metadata.metadata_cache import MetadataCache, PartitionInfo
from barnabas.coordinator.consumer_groups.assignor import SubscribedTopic
from barnabas.protocol.names import is_internal

_NO_TOPICS: Final[Mapping[str, Mapping[int, PartitionInfo]]] = {}


class NodeTopicCatalog:
    """The port ``TopicCatalog`` over the metadata of a node."""

    def __init__(self, cache: MetadataCache, *, is_enabled: bool) -> None:
        """``is_enabled``: whether this node's settings have the protocol."""
        self._cache = cache
        self._is_enabled = is_enabled
        self._version = 0
        self._seen = -1
        self._topics = _NO_TOPICS
        self._ids: Mapping[str, bytes] = {}
        self._found: dict[str, SubscribedTopic] = {}

    @property
    def version(self) -> int:
        """Grows with topics and their partitions, not with leaders and replicas."""
        self._refresh()
        return self._version

    @property
    def is_whole(self) -> bool:
        """Whether a controller has told of all topics."""
        return self._cache.is_whole

    @property
    def is_offered(self) -> bool:
        """Whether all nodes know the protocol, as the controller says; not known is taken for yes.

        A client is told once, when it connects: one that connects to a node that has not heard of
        the cluster yet must not be told that there is no such protocol, which ends it.
        """
        return self._is_enabled and (
            not self._cache.is_whole or self._cache.are_consumer_groups_offered
        )

    def topic(self, name: str) -> SubscribedTopic | None:
        """A topic with its id; None when there is none, or it has no id."""
        self._refresh()
        found = self._found.get(name)
        if found is None:
            partitions, topic_id = self._topics.get(name), self._ids.get(name)
            if partitions and topic_id is not None:
                found = self._found[name] = SubscribedTopic(topic_id, name, len(partitions))
        return found

    def name_of(self, topic_id: bytes) -> str | None:
        """Its name; None when no topic has this id."""
        return self._cache.snapshot.names.get(topic_id)

    def names(self) -> list[str]:
        """All topics but the internal ones."""
        return [name for name in self._cache.snapshot.topics if not is_internal(name)]

    def _refresh(self) -> None:
        """Look what has changed, where there is other metadata than before."""
        if self._cache.version == self._seen:
            return
        self._seen = self._cache.version
        snapshot = self._cache.snapshot
        changed = [
            name
            for name, partitions in snapshot.topics.items()
            if (known := self._topics.get(name)) is not partitions
            and (known is None or len(known) != len(partitions))
        ]
        gone = self._topics.keys() - snapshot.topics.keys()
        if changed or gone or self._ids != snapshot.topic_ids:
            self._version += 1
            self._found = {}
        self._topics, self._ids = snapshot.topics, snapshot.topic_ids
