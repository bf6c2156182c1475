"""What the transaction coordinator asks of the node that hosts it, besides its log.

The log is a ``StateLog`` of coordinator/ports.py, as for groups. Tests give lists in memory.
Source: docs/spec/transactions.md §2.8, §3.4 and §3.8.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from barnabas.protocol.errors import ErrorCode

TopicPartition: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MarkerWrite:
    """One ended transaction, on its way to the partitions that it wrote to.

    Compared by identity: the next term sends markers for the same transaction anew, and what
    belongs to the former one must not touch them (KAFKA-16352).
    """

    transaction_partition: int
    """Of ``__transaction_state``."""
    coordinator_epoch: int
    producer_id: int
    producer_epoch: int
    is_commit: bool
    partitions: Collection[TopicPartition]
    """At least one; each once."""
    is_current: Callable[[], bool]
    """Asked before each request that is sent. False: the term is over, forget the write."""
    on_written: Callable[[TopicPartition, ErrorCode], None]
    """Called once for each partition, in any order, never before ``Markers.send`` has returned.

    NONE when the marker is committed there, or when the topic is gone for good;
    INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED when somebody newer took over.
    """


class Markers(Protocol):
    """Writes markers wherever the partitions are led.

    Retries, new leaders, back-off and alarms are its own: a write ends only through its answers,
    or by being dropped.
    """

    def send(self, write: MarkerWrite) -> None:
        """Queue one ended transaction; returns at once."""

    def drop(self, transaction_partition: int) -> None:
        """Forget every write of this partition of the transaction log, answers to come included."""


class ProducerIds(Protocol):
    """Producer ids that no other producer ever had."""

    def next_id(self, on_id: Callable[[int, ErrorCode], None]) -> None:
        """Call ``on_id`` once, perhaps before this returns: with an id and NONE, or with -1.

        Waits up to a second for a block of ids; then the code is COORDINATOR_LOAD_IN_PROGRESS.
        """


class TransactionTopics(Protocol):
    """What the node knows of the cluster's topics."""

    def partition_count(self, topic: str) -> int | None:
        """How many partitions a topic has; None when no such topic is known."""

    def missing_partition_error(self) -> ErrorCode:
        """What to answer for a partition that is not known here.

        UNKNOWN_TOPIC_OR_PARTITION; but COORDINATOR_LOAD_IN_PROGRESS while the node has not heard of
        the cluster's topics: clients ask again then, and give up when told that a topic is missing.
        """

    def may_lead(self, partition: int) -> bool:
        """Whether this node may be about to lead a transaction log partition it does not lead yet.

        It does not know the cluster yet, or it has a replica and nobody else is known to lead it.
        """

    def lacks_transaction_topic(self) -> bool:
        """Whether it is certain that ``__transaction_state`` was not made yet: there is no id.

        False while the node does not know the cluster: unknown is not "none".
        """

    def create_offsets_topic(self) -> None:
        """Start creating ``__consumer_offsets`` unless that is under way; returns at once."""
