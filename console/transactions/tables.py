"""The columns of kafka-transactions and what stands in them; the same facts as JSON.

Source: docs/spec/transactions.md §6; the output of TransactionsCommand, Kafka 3.9.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from barnabas.client.admin.transaction_descriptions import (
    OpenTransaction,
    ProducerDescription,
    TransactionDescription,
    TransactionListing,
)
from barnabas.client.cluster import TopicPartition

LIST_COLUMNS: Final = ("TransactionalId", "Coordinator", "ProducerId", "TransactionState")
DESCRIBE_COLUMNS: Final = (
    "CoordinatorId",
    "TransactionalId",
    "ProducerId",
    "ProducerEpoch",
    "TransactionState",
    "TransactionTimeoutMs",
    "CurrentTransactionStartTimeMs",
    "TransactionDurationMs",
    "TopicPartitions",
)
PRODUCER_COLUMNS: Final = (
    "ProducerId",
    "ProducerEpoch",
    "LatestCoordinatorEpoch",
    "LastSequence",
    "LastTimestamp",
    "CurrentTransactionStartOffset",
)
OPEN_COLUMNS: Final = (
    "Topic",
    "Partition",
    "ProducerId",
    "ProducerEpoch",
    "CoordinatorEpoch",
    "StartOffset",
    "LastTimestamp",
    "Duration(min)",
)
_MINUTE_MS: Final = 60_000


def listing_cells(listing: TransactionListing) -> list[object]:
    """One line of ``list``."""
    return [listing.transactional_id, listing.coordinator, listing.producer_id, listing.state]


def description_cells(described: TransactionDescription, now_ms: int) -> list[object]:
    """One line of ``describe``; ``None`` for the times of an id that never had a transaction."""
    return [
        described.coordinator,
        described.transactional_id,
        described.producer_id,
        described.producer_epoch,
        described.state,
        described.timeout_ms,
        described.start_ms,
        _duration_ms(described, now_ms),
        ",".join(map(partition_name, described.partitions)),
    ]


def description_as_json(described: TransactionDescription, now_ms: int) -> dict[str, Any]:
    """The same for programs."""
    return asdict(described) | {
        "duration_ms": _duration_ms(described, now_ms),
        "partitions": [_place(one) for one in described.partitions],
    }


def _duration_ms(described: TransactionDescription, now_ms: int) -> int | None:
    return None if described.start_ms is None else now_ms - described.start_ms


def producer_cells(producer: ProducerDescription) -> list[object]:
    """One line of ``describe-producers``; ``None`` where no transaction is open."""
    return [
        producer.producer_id,
        producer.producer_epoch,
        producer.coordinator_epoch,
        producer.last_sequence,
        producer.last_timestamp,
        producer.start_offset,
    ]


def open_cells(transaction: OpenTransaction, now_ms: int) -> list[object]:
    """One line of ``find-hanging`` and of ``abort``."""
    producer = transaction.producer
    return [
        transaction.partition.topic,
        transaction.partition.partition,
        producer.producer_id,
        producer.producer_epoch,
        producer.coordinator_epoch,
        transaction.start_offset,
        producer.last_timestamp,
        _minutes(transaction, now_ms),
    ]


def open_as_json(transaction: OpenTransaction, now_ms: int) -> dict[str, Any]:
    """The same for programs."""
    fields: Mapping[str, Any] = asdict(transaction.producer)
    return _place(transaction.partition) | {
        **fields,
        "duration_ms": max(0, now_ms - transaction.producer.last_timestamp),
    }


def _minutes(transaction: OpenTransaction, now_ms: int) -> int:
    """Whole minutes since the last record; 0 for one whose timestamp is in the future."""
    return max(0, now_ms - transaction.producer.last_timestamp) // _MINUTE_MS


def partition_name(topic_partition: TopicPartition) -> str:
    """``topic-partition``, as Kafka's tools write it."""
    return f"{topic_partition.topic}-{topic_partition.partition}"


def _place(topic_partition: TopicPartition) -> dict[str, Any]:
    return {"topic": topic_partition.topic, "partition": topic_partition.partition}
