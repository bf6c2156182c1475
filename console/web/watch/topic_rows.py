"""Offsets and bytes of the topics that are on somebody's screen, asked together.

Source: docs/spec/console.md §2.3 (topics: offsets and bytes for visible rows only).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from barnabas.client.admin.log_ends import EARLIEST, LATEST, look_up
from barnabas.client.cluster import Cluster, TopicPartition
from barnabas.client.turns import Turns
from barnabas.protocol.messages import metadata

from .catalogue import Catalogue
from .known_topics import KnownTopics
from .rates import Rates

PARTITIONS_MOST: Final = 5_000
"""Of so many partitions offsets and bytes are asked at once: beyond, a list tells neither."""


@dataclass(frozen=True, slots=True)
class TopicRow:
    """What leaders say of one topic; None for what they do not tell."""

    records: int | None = None
    """Offsets between start and end."""
    records_per_second: float | None = None
    bytes: int | None = None
    """Of the leaders' copies."""


class TopicMeter:
    """Asks for rows of the list of topics."""

    def __init__(self, cluster: Cluster, catalogue: Catalogue, rates: Rates) -> None:
        self._cluster = cluster
        self._catalogue = catalogue
        self._rates = rates

    async def rows(self, names: Sequence[str]) -> dict[str, TopicRow | Exception]:
        """One for each topic that there is. Raises KafkaError."""
        topics = self._catalogue.topics.known().value or KnownTopics()
        there = [name for name in names if name in topics]
        places = [place for name in there for place in places_of(topics[name])]
        if len(places) > PARTITIONS_MOST:
            return {name: TopicRow() for name in there}
        starts, ends, sizes = await asyncio.gather(
            look_up(self._cluster, places, EARLIEST),
            look_up(self._cluster, places, LATEST),
            self._leader_bytes([topics[name] for name in there], places),
        )
        turns = Turns()
        found: dict[str, TopicRow | Exception] = {}
        for name in there:
            of_topic = places_of(topics[name])
            records = rate = None
            if all(place in starts and place in ends for place in of_topic):
                end = sum(ends[place].offset for place in of_topic)
                records = end - sum(starts[place].offset for place in of_topic)
                rate = self._rates.observe(("topic", name), end)
            copies = [sizes[place] for place in of_topic if place in sizes]
            found[name] = TopicRow(records, rate, sum(copies) if copies else None)
            await turns.pause()
        return found

    async def _leader_bytes(
        self, topics: Sequence[metadata.TopicResult], places: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        leaders = {
            (topic.name, part.partition_index): part.leader_id
            for topic in topics
            for part in topic.partitions
            if part.leader_id >= 0
        }
        replicas = await self._catalogue.replicas(places, sorted(set(leaders.values())))
        return {
            place: replica.bytes
            for place, copies in replicas.items()
            for replica in copies
            if replica.node == leaders.get(place)
        }


def places_of(topic: metadata.TopicResult) -> list[TopicPartition]:
    """The partitions of a topic, in order."""
    assert topic.name is not None
    return [
        TopicPartition(topic.name, number)
        for number in sorted(part.partition_index for part in topic.partitions)
    ]
