"""What is written to and read from each topic here, for metrics: bytes in, records in, bytes out.

Counters must not fall, or a collector takes it for a restart: a topic keeps its counts while its
partitions come and go, and what a deleted one had stays in the sum of those that have no name.
Source: docs/spec/console.md §6; Kafka's BytesInPerSec, MessagesInPerSec, BytesOutPerSec.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

OTHERS: Final = "(others)"
"""Stands for all topics without a name of their own; no topic can be called so."""


class TopicTraffic:
    """Counts of one topic since this process started, as leader of its partitions."""

    __slots__ = ("bytes_in", "bytes_out", "records_in")

    def __init__(self) -> None:
        self.bytes_in = 0
        """Of batches as they lie in the log, those of coordinators and markers included."""
        self.records_in = 0
        """Offsets that they took: what is in a compressed batch is counted as well."""
        self.bytes_out = 0
        """Sent to consumers; to replicas it is the same again for each, and not counted."""

    def add(self, other: TopicTraffic) -> None:
        """Count what ``other`` has, too."""
        self.bytes_in += other.bytes_in
        self.records_in += other.records_in
        self.bytes_out += other.bytes_out

    @property
    def is_none(self) -> bool:
        """Whether nothing was written or read."""
        return not (self.bytes_in or self.bytes_out)


class TrafficByTopic:
    """The counts of every topic that is hosted here, or was."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicTraffic] = {}
        self._named: set[str] = set()
        self._unnamed: set[str] = set()
        """Those that came when all names were given; they never get one."""
        self._gone = TopicTraffic()
        """What deleted topics without a name had."""

    def of(self, topic: str) -> TopicTraffic:
        """The counts of a topic, to be counted on."""
        known = self._topics.get(topic)
        if known is None:
            known = self._topics[topic] = TopicTraffic()
        return known

    def forget(self, topics: Iterable[str]) -> None:
        """These are deleted; their names are given to topics to come."""
        for topic in topics:
            traffic = self._topics.pop(topic, None)
            if traffic is not None and topic in self._unnamed:
                self._gone.add(traffic)
            self._unnamed.discard(topic)
            self._named.discard(topic)

    def told(self, names_max: int) -> Iterator[tuple[str, TopicTraffic]]:
        """Topics with traffic, ``names_max`` by name at most, the rest together as OTHERS.

        Who came first has a name, and keeps it.
        """
        others = TopicTraffic()
        others.add(self._gone)
        for topic, traffic in self._topics.items():
            if traffic.is_none:
                continue
            if topic not in self._unnamed and topic not in self._named:
                (self._named if len(self._named) < names_max else self._unnamed).add(topic)
            if topic in self._unnamed:
                others.add(traffic)
            else:
                yield topic, traffic
        if not others.is_none:
            yield OTHERS, others
