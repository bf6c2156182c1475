"""Topics of Metadata answers as bytes, kept until something about them changes.

A client that asks for all topics is told the same as the last one, most of the time; to make and
encode an object for each partition took 3 to 6 us of it. What is kept of a topic is true as long as
the snapshot holds the same map of its partitions, and the same nodes live and have the listener: an
UpdateMetadata that names one partition costs that topic alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from barnabas.broker.metadata.metadata_cache import NO_TOPIC_ID, PartitionInfo, Snapshot
from barnabas.protocol.codec.compiler import encoding_in
from barnabas.protocol.codec.encoded import EncodedElement, EncodedElements
from barnabas.protocol.messages import metadata

KEPT_MAX: Final = 4
"""Listeners and versions whose topics are kept: a client may ask in every version there is."""

MakeTopic = Callable[[str], metadata.TopicResult]


class _KeptTopic(NamedTuple):
    partitions: Mapping[int, PartitionInfo]
    topic_id: bytes
    encoded: EncodedElement


class EncodedTopics:
    """What one listener is told of topics in one version, while the same nodes live."""

    def __init__(
        self, listener: str, version: int, live: frozenset[int], reachable: frozenset[int]
    ) -> None:
        self.place = (listener, version)
        self.nodes = (live, reachable)
        self._encoding = encoding_in(metadata.MetadataResponse, metadata.TopicResult, version)
        self._encode = self._encoding.write
        self._kept: dict[str, _KeptTopic] = {}
        self._names: tuple[Snapshot | None, Sequence[str]] = (None, ())
        self._all: tuple[Snapshot | None, EncodedElements[metadata.TopicResult] | None]
        self._all = (None, None)

    def names(self, snapshot: Snapshot) -> Sequence[str]:
        """All topics in order."""
        known, names = self._names
        if known is not snapshot:
            names = sorted(snapshot.topics)
            self._names = (snapshot, names)
            for gone in self._kept.keys() - snapshot.topics.keys():
                del self._kept[gone]
        return names

    def all(self, snapshot: Snapshot) -> EncodedElements[metadata.TopicResult] | None:
        """Every topic of this snapshot, where that was asked for before."""
        known, found = self._all
        return found.again() if known is snapshot and found is not None else None

    def keep_all(
        self, snapshot: Snapshot, found: Sequence[EncodedElement]
    ) -> EncodedElements[metadata.TopicResult]:
        """The elements of an answer, to be given to the next who asks for all topics, too."""
        elements = self.elements(found)
        self._all = (snapshot, elements)
        elements.join()
        return elements.again()

    def elements(self, found: Sequence[EncodedElement]) -> EncodedElements[metadata.TopicResult]:
        """The topics of an answer."""
        return EncodedElements(self._encoding, found)

    def kept(self, snapshot: Snapshot, name: str) -> EncodedElement | None:
        """A topic whose bytes are still true; None for one that has to be encoded."""
        known = self._kept.get(name)
        if known is None or known.partitions is not snapshot.topics[name]:
            return None
        same_id = known.topic_id == snapshot.topic_ids.get(name, NO_TOPIC_ID)
        return known.encoded if same_id else None

    def keep(self, snapshot: Snapshot, name: str, make: MakeTopic) -> EncodedElement:
        """Encode a topic of this snapshot, for this answer and later ones."""
        encoded = self.encoded(make(name))
        topic_id = snapshot.topic_ids.get(name, NO_TOPIC_ID)
        self._kept[name] = _KeptTopic(snapshot.topics[name], topic_id, encoded)
        return encoded

    def encoded(self, topic: metadata.TopicResult) -> EncodedElement:
        """One topic as bytes."""
        has_error = bool(topic.error_code) or any(one.error_code for one in topic.partitions)
        return EncodedElement(self._encode(topic), has_error)
