"""What Admin tells of transactions: ids at their coordinators, producers in their partitions.

Source: docs/spec/transactions.md §2.8; the columns of kafka-transactions, §6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from barnabas.client.cluster import TopicPartition
from barnabas.protocol.errors import ErrorCode

_MOVED: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionListing:
    """One transactional id among all."""

    transactional_id: str
    coordinator: int
    """The id of the node that keeps it."""
    producer_id: int
    state: str
    """Kafka's word, such as ``Ongoing``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    """One transactional id and its present, or last, transaction."""

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int | None
    """When the present or last transaction began; None for an id that never had one."""
    partitions: Sequence[TopicPartition]
    """Where the transaction has written, or still lacks its marker while it ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerDescription:
    """One producer, as the log of a partition remembers it."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    """Of its last marker here; -1 before the first."""
    last_sequence: int
    """-1 when its last batch is not known."""
    last_timestamp: int
    """Of its last record here, in ms."""
    start_offset: int | None
    """Where its open transaction begins; None without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProducers:
    """The producers of one partition, or why they are not known."""

    error: ErrorCode = ErrorCode.NONE
    producers: Sequence[ProducerDescription] = field(default_factory=tuple)

    @property
    def is_moved(self) -> bool:
        """Another node may know."""
        return self.error in _MOVED


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """A transaction that is open in one partition."""

    partition: TopicPartition
    start_offset: int
    producer: ProducerDescription
