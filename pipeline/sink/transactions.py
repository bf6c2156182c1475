"""What the sink asks of a cluster about transactions: begin, take part, note the batch, end.

A transaction is prepared where a task runs and ended beside the driver, in another process: so
what belongs to it is a value that travels, and no producer. Whoever prepares fails at the first
error that waiting does not cure: Spark runs the task again, and its transaction is aborted then.
Source: docs/spec/transactions.md §2.4 to §2.6, §4.1 and §7.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from barnabas.client.cluster import Cluster, TopicPartition
from barnabas.client.errors import KafkaError, raise_for
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    init_producer_id,
    offset_fetch,
    txn_offset_commit,
)

from .idempotent_sender import ProducerIdentity

OVER: Final = frozenset(
    {
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
"""What EndTxn answers when the transaction was ended otherwise: by a successor or its time-out."""
_NOTED_AT: Final = 0
"""The partition under which a batch is noted: every topic has it."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """What a broker knows a transaction by."""

    transactional_id: str
    identity: ProducerIdentity


async def begin(cluster: Cluster, transactional_id: str, timeout_ms: int) -> Transaction:
    """The next transaction of an id; returns when the one before is over, for good.

    Whatever its producer had open is aborted, and it can do nothing more. Raises KafkaError.
    """
    request = init_producer_id.InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
    )
    answer = await cluster.to_transaction_coordinator(transactional_id, request, _code)
    if answer.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
        problem = f"kafka.transaction.timeout.ms: {timeout_ms} is more than the brokers allow"
        raise KafkaError(answer.error_code, problem)
    raise_for(answer.error_code, transactional_id)
    identity = ProducerIdentity(answer.producer_id, answer.producer_epoch)
    return Transaction(transactional_id, identity)


async def include(
    cluster: Cluster, transaction: Transaction, topic_partitions: Iterable[TopicPartition]
) -> None:
    """Make partitions part of a transaction, before anything is sent there; raises KafkaError."""
    topics: dict[str, list[int]] = defaultdict(list)
    for topic_partition in topic_partitions:
        topics[topic_partition.topic].append(topic_partition.partition)
    request = add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transaction.transactional_id,
        v3_and_below_producer_id=transaction.identity.producer_id,
        v3_and_below_producer_epoch=transaction.identity.epoch,
        v3_and_below_topics=[
            add_partitions_to_txn.Topic(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
    )
    answer = await cluster.to_transaction_coordinator(
        transaction.transactional_id, request, _added_codes
    )
    for topic in answer.results_by_topic_v3_and_below:
        for partition in topic.results_by_partition:
            where = f"{topic.name}-{partition.partition_index}"
            raise_for(partition.partition_error_code, where)


async def note_batch(
    cluster: Cluster, transaction: Transaction, topics: Iterable[str], batch: int
) -> None:
    """Make it part of a transaction that it holds a batch: it is known if, and only if, it commits.

    The note is an offset of a group of the same name as the transactional id, the number of the
    batch after this one, in each of the topics. Raises KafkaError.
    """
    name, (producer_id, epoch) = transaction.transactional_id, transaction.identity
    added = add_offsets_to_txn.AddOffsetsToTxnRequest(
        transactional_id=name, producer_id=producer_id, producer_epoch=epoch, group_id=name
    )
    answer = await cluster.to_transaction_coordinator(name, added, _code)
    raise_for(answer.error_code, name)
    noted = txn_offset_commit.Partition(
        partition_index=_NOTED_AT,
        committed_offset=batch + 1,
        committed_metadata=f"batch {batch} of a Spark stream",
    )
    request = txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id=name,
        group_id=name,
        producer_id=producer_id,
        producer_epoch=epoch,
        topics=[txn_offset_commit.Topic(name=topic, partitions=[noted]) for topic in topics],
    )
    answer = await cluster.to_coordinator(name, request, _partition_codes)
    for code in _partition_codes(answer):
        raise_for(code, name)


async def noted_batch(cluster: Cluster, transactional_id: str, topic: str) -> int | None:
    """The newest batch that a committed transaction of the id holds; None before the first.

    ``topic`` is one that it wrote into. Waits while a transaction with a note is being ended.
    Raises KafkaError.
    """
    request = offset_fetch.OffsetFetchRequest(
        group_id=transactional_id,
        topics=[offset_fetch.Topic(name=topic, partition_indexes=[_NOTED_AT])],
        require_stable=True,
    )
    answer = await cluster.to_coordinator(transactional_id, request, _fetched_codes)
    for code in _fetched_codes(answer):
        raise_for(code, transactional_id)
    found = int(answer.topics[0].partitions[0].committed_offset)
    return found - 1 if found > 0 else None


async def end(cluster: Cluster, transaction: Transaction, *, is_commit: bool) -> None:
    """Commit or abort; doing the same again is fine, as long as nobody has begun another one.

    Raises KafkaError, one of OVER when it was ended otherwise.
    """
    request = end_txn.EndTxnRequest(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.identity.producer_id,
        producer_epoch=transaction.identity.epoch,
        committed=is_commit,
    )
    answer = await cluster.to_transaction_coordinator(transaction.transactional_id, request, _code)
    raise_for(answer.error_code, transaction.transactional_id)


def _code(answer: Any) -> Iterable[int]:
    yield answer.error_code


def _added_codes(answer: Any) -> Iterable[int]:
    return (
        partition.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    )


def _partition_codes(answer: Any) -> Iterable[int]:
    return (partition.error_code for topic in answer.topics for partition in topic.partitions)


def _fetched_codes(answer: Any) -> Iterable[int]:
    yield answer.error_code
    yield from _partition_codes(answer)
