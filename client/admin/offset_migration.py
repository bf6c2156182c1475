"""The plan of an offset migration between ZooKeeper and Kafka for a group at rest.

Pure. Source: docs/spec/coordinator.md §6.8; dual commit's rule, that the larger offset wins, holds
here too: no group starts before what it has acknowledged, in whichever store.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from barnabas.client.topology import TopicPartition

ZOOKEEPER: Final = "zookeeper"
KAFKA: Final = "kafka"
OTHER: Final = {ZOOKEEPER: KAFKA, KAFKA: ZOOKEEPER}
FORMAT: Final = "barnabas-migration-1"


class StoredOffsetKey(NamedTuple):
    """Where a classic group keeps an offset."""

    group: str
    topic_partition: TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredOffsets:
    """What both stores hold of one partition of a group; None for nothing."""

    group: str
    topic_partition: TopicPartition
    zookeeper: int | None = None
    kafka: int | None = None

    def at(self, store: str) -> int | None:
        """What one store holds."""
        return self.zookeeper if store == ZOOKEEPER else self.kafka

    def step(self, to: str, *, source_wins: bool = False) -> tuple[str, int | None]:
        """What moving to store ``to`` means here in a word, and the offset to write if any.

        ``new``, ``forward`` and, when the source wins, ``rewind`` write; ``same``, ``ahead`` (the
        store to move to has the larger offset, which is kept) and ``nothing`` do not.
        """
        source, target = self.at(OTHER[to]), self.at(to)
        if source is None:
            return "nothing", None
        if target is None:
            return "new", source
        if target == source:
            return "same", None
        if target < source:
            return "forward", source
        return ("rewind", source) if source_wins else ("ahead", None)

    def leveled(self) -> tuple[str | None, int | None]:
        """The store that is behind, None when neither is; and the offset that both are to hold."""
        for to in OTHER:
            _, offset = self.step(to)
            if offset is not None:
                return to, offset
        return None, self.kafka

    def is_behind(self, to: str) -> bool:
        """Whoever reads store ``to`` alone would read again what the group has acknowledged."""
        source, target = self.at(OTHER[to]), self.at(to)
        return source is not None and (target is None or target < source)


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationPlan:
    """What was found in both stores, and where it is to go."""

    to: str
    time_ms: int
    source_wins: bool
    held: Mapping[str, Sequence[StoredOffsets]]
    """By group."""

    def to_document(self) -> dict[str, Any]:
        """For a file; :meth:`of_document` reads it."""
        return {
            "format": FORMAT,
            "to": self.to,
            "time_ms": self.time_ms,
            "source_wins": self.source_wins,
            "groups": {
                group: [row(pair, self.to, source_wins=self.source_wins) for pair in held]
                for group, held in self.held.items()
            },
        }

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> MigrationPlan:
        """Raises ValueError, KeyError or TypeError for what is no plan."""
        if document["format"] != FORMAT:
            raise ValueError(f"is of format {document['format']!r}, expected {FORMAT!r}")
        if document["to"] not in OTHER:
            raise ValueError(f"leads to {document['to']!r}")
        return cls(
            to=document["to"],
            time_ms=document["time_ms"],
            source_wins=document["source_wins"],
            held={
                group: [
                    StoredOffsets(
                        group=group,
                        topic_partition=TopicPartition(fields["topic"], fields["partition"]),
                        zookeeper=fields["zookeeper"],
                        kafka=fields["kafka"],
                    )
                    for fields in rows
                ]
                for group, rows in document["groups"].items()
            },
        )


def row(held: StoredOffsets, to: str, *, source_wins: bool = False) -> dict[str, Any]:
    """One partition for people and programs."""
    step, offset = held.step(to, source_wins=source_wins)
    return {
        "topic": held.topic_partition.topic,
        "partition": held.topic_partition.partition,
        "zookeeper": held.zookeeper,
        "kafka": held.kafka,
        "step": step,
        "write": offset,
    }


def number_in(data: bytes) -> int | None:
    """The offset that a znode holds; None for what is no number.

    A negative one stands for no position: a consumer that finds it resets, and nobody commits it.
    """
    try:
        offset = int(data)
    except ValueError:
        return None
    return offset if offset >= 0 else None


def classic_activity(ids: Collection[str], owned: Mapping[str, Collection[str]]) -> str | None:
    """Who consumes through ZooKeeper, in words; None when nobody does.

    ``ids`` are the registered consumers, ``owned`` by topic the partitions that have owners.
    """
    if ids:
        are = "consumer is" if len(ids) == 1 else "consumers are"
        return f"{len(ids)} classic {are} registered"
    for topic, partitions in sorted(owned.items()):
        if partitions:
            return f"{len(partitions)} partitions of {topic} have owners"
    return None


def joined(
    group: str,
    zookeeper: Mapping[TopicPartition, int],
    kafka: Mapping[TopicPartition, int],
    known: Collection[TopicPartition] | None = None,
) -> list[StoredOffsets]:
    """Both stores side by side, in the order of partitions; of ``known`` partitions only."""
    topic_partitions: Iterable[TopicPartition] = zookeeper.keys() | kafka.keys()
    return [
        StoredOffsets(
            group=group,
            topic_partition=topic_partition,
            zookeeper=zookeeper.get(topic_partition),
            kafka=kafka.get(topic_partition),
        )
        for topic_partition in sorted(topic_partitions)
        if known is None or topic_partition in known
    ]


def moved(
    plan: Sequence[StoredOffsets], now: Sequence[StoredOffsets], store: str
) -> list[TopicPartition]:
    """The partitions whose offset in ``store`` is another than the plan found."""
    then = {pair.topic_partition: pair.at(store) for pair in plan}
    found = {pair.topic_partition: pair.at(store) for pair in now}
    return sorted(
        topic_partition
        for topic_partition in then.keys() | found.keys()
        if then.get(topic_partition) != found.get(topic_partition)
    )
