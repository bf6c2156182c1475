"""What is left in ZooKeeper for others to act on: settings, requests, notifications, consumers.

Source: docs/spec/cluster.md §1.4 to §1.7; docs/spec/coordinator.md §6.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

from . import json_fields as js


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityConfig:
    """The overrides of one topic, broker, client or user; values are text, as they were given."""

    config: Mapping[str, str]

    def to_json(self) -> bytes:
        """The payload."""
        return js.dump({"version": 1, "config": dict(self.config)})

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Read a payload; a node without data has no overrides."""
        return cls(config=js.texts(js.load(data), "config") if data else {})


TopicConfig = EntityConfig
"""The overrides of a topic look like those of everything else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """Says whose settings to read again: ``topics/T``, ``brokers/3``, ``users/U/clients/C``."""

    entity_path: str

    def to_json(self) -> bytes:
        """The payload (version 2)."""
        return js.dump({"version": 2, "entity_path": self.entity_path})

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Read a payload of version 1 or 2."""
        values = js.load(data)
        if js.number(values, "version") == 1:
            kind, name = js.text(values, "entity_type"), js.text(values, "entity_name")
            return cls(entity_path=f"{kind}/{name}")
        return cls(entity_path=js.text(values, "entity_path"))


class TopicPartition(NamedTuple):
    """One partition."""

    topic: str
    partition: int


class Reassignment(NamedTuple):
    """The replicas one partition is to have."""

    topic: str
    partition: int
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignPartitions:
    """A tool's wish: other replicas for some partitions."""

    partitions: tuple[Reassignment, ...]

    def to_json(self) -> bytes:
        """The payload."""
        return js.dump({"version": 1, "partitions": [item._asdict() for item in self.partitions]})

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Read a payload."""
        items = js.objects(js.load(data), "partitions")
        return cls(
            partitions=tuple(
                Reassignment(
                    js.text(item, "topic"),
                    js.number(item, "partition"),
                    js.numbers(item, "replicas"),
                )
                for item in items
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Partitions:
    partitions: tuple[TopicPartition, ...]

    def to_json(self) -> bytes:
        """The payload."""
        return js.dump(
            {
                "version": 1,
                "partitions": [
                    {"topic": topic, "partition": partition} for topic, partition in self.partitions
                ],
            }
        )

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Read a payload."""
        items = js.objects(js.load(data), "partitions")
        return cls(
            partitions=tuple(
                TopicPartition(js.text(item, "topic"), js.number(item, "partition"))
                for item in items
            )
        )


class PreferredElection(_Partitions):
    """A tool's wish: the preferred replica as leader of these partitions."""

    __slots__ = ()


class IsrChange(_Partitions):
    """A leader's note: the in-sync replicas of these partitions changed."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirEvent:
    """A broker's note: one of its log directories failed."""

    broker: int
    event: int = 1

    def to_json(self) -> bytes:
        """The payload."""
        return js.dump({"version": 1, "broker": self.broker, "event": self.event})

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Read a payload."""
        values = js.load(data)
        return cls(broker=js.number(values, "broker"), event=js.number(values, "event", 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerRegistration:
    """A classic consumer: how many streams it wants of each topic.

    ``pattern`` is static, white_list or black_list; in the last two the one key is a regex.
    """

    subscription: Mapping[str, int]
    timestamp: int
    pattern: str = "static"

    def to_json(self) -> bytes:
        """The payload."""
        return js.dump(
            {
                "version": 1,
                "subscription": dict(self.subscription),
                "pattern": self.pattern,
                "timestamp": str(self.timestamp),
            }
        )

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Read a payload; pattern and time may be missing, as before 0.8."""
        values = js.load(data)
        streams = js.mapping(values, "subscription")
        return cls(
            subscription={topic: js.number(streams, topic) for topic in streams},
            timestamp=js.number_text(values, "timestamp", -1),
            pattern=js.text(values, "pattern", "static"),
        )
