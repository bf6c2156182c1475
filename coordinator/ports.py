"""What the coordinator asks of the node that hosts it: three small ports and a clock.

Tests give a list in memory; a node gives its partitions, its metadata and its ZooKeeper session.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from barnabas.protocol.errors import ErrorCode

OFFSETS_TOPIC = "__consumer_offsets"

AppendDone = Callable[[ErrorCode, int], None]
"""Told once how an append ended: the code, and the base offset of the batch (-1 on error)."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request: what the coordinator notes about a member."""

    client_id: str
    host: str
    """The peer's address as text, without Kafka's leading slash."""


class OffsetsLog(Protocol):
    """The partitions of ``__consumer_offsets`` that this node hosts."""

    def append(
        self,
        partition: int,
        batch: bytearray,
        *,
        leader_epoch: int,
        acks: int,
        timeout_ms: int,
        done: AppendDone,
    ) -> None:
        """Append one record batch as leader; takes the batch over and patches its offset.

        ``done`` is called exactly once, perhaps before this returns: when the high watermark
        passed the batch (acks -1), after the local append (acks 1 or 0), or with the code of
        coordinator.md section 3.2 (3, 6, 7, 10, 18, 19, 20, 56). An append in another epoch than
        ``leader_epoch`` ends with NOT_LEADER_OR_FOLLOWER.
        """

    def batch_bytes_max(self, partition: int) -> int:
        """The largest record batch the topic takes, in bytes (``max.message.bytes``).

        0 when the partition is not hosted here any more: the append will say so.
        """

    def bounds(self, partition: int) -> tuple[int, int, int] | None:
        """Log start offset, high watermark and log end offset; None when not led here."""

    def read(self, partition: int, offset: int, bytes_max: int) -> bytes:
        """Whole record batches from the one holding ``offset`` up to the log end.

        At least one batch even when it is larger than ``bytes_max``; empty at the log end.
        Raises Refused when the partition is not led here any more, or cannot be read.
        """

    def when_committed(self, partition: int, offset: int, done: Callable[[bool], None]) -> None:
        """Call ``done(True)`` once the high watermark is at ``offset`` or past it.

        ``done(False)`` when leadership is lost first.
        """


class Topics(Protocol):
    """What the node knows of the cluster's topics."""

    def partition_count(self, topic: str) -> int | None:
        """How many partitions a topic has; None when no such topic is known."""

    def coordinator_endpoint(self, partition: int, listener: str) -> tuple[int, str, int] | None:
        """Id, host and port of the leader of an offsets partition on ``listener``.

        None when the topic, its leader or the leader's endpoint is missing.
        """

    def may_lead(self, partition: int) -> bool:
        """Whether this node may be about to lead an offsets partition it does not lead yet.

        It does not know the cluster yet, or it has a replica and nobody else is known to lead it.
        """

    def create_offsets_topic(self) -> None:
        """Start creating ``__consumer_offsets`` unless that is under way; returns at once."""


class ZooKeeperOffsets(Protocol):
    """Offsets of the classic consumers: ``/consumers/<group>/offsets/<topic>/<partition>``."""

    async def commit(
        self, group: str, offsets: Mapping[tuple[str, int], int]
    ) -> Mapping[tuple[str, int], ErrorCode]:
        """Write each offset as decimal text, creating parents; one code for each partition."""

    async def fetch(
        self, group: str, partitions: Sequence[tuple[str, int]]
    ) -> Mapping[tuple[str, int], int | ErrorCode]:
        """The stored number of each partition; UNKNOWN_TOPIC_OR_PARTITION where none is stored."""
