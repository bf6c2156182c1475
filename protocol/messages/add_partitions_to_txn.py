"""AddPartitionsToTxn (key 24): makes partitions part of a transaction.

Source: docs/spec/protocol.md §2; KIP-98.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import BOOL, INT16, INT32, INT64, STRING, array, message, wire


@message()
class Topic:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: Sequence[int] = wire(array(INT32))


@message()
class Transaction:
    """One transaction and its partitions, from v4."""

    transactional_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    verify_only: bool = wire(BOOL)
    topics: Sequence[Topic] = wire(array(Topic))


@message(key=24, versions=(0, 5), advertised=5, flexible=3)
class AddPartitionsToTxnRequest:
    """The partitions; from v4, which only brokers send, of several transactions."""

    transactions: Sequence[Transaction] = wire(array(Transaction), since=4)
    v3_and_below_transactional_id: str = wire(STRING, until=3)
    v3_and_below_producer_id: int = wire(INT64, until=3)
    v3_and_below_producer_epoch: int = wire(INT16, until=3)
    v3_and_below_topics: Sequence[Topic] = wire(array(Topic), until=3)


@message()
class PartitionResult:
    """The outcome for one partition."""

    partition_index: int = wire(INT32)
    partition_error_code: int = wire(INT16)


@message()
class TopicResult:
    """The outcomes for one topic."""

    name: str = wire(STRING)
    results_by_partition: Sequence[PartitionResult] = wire(array(PartitionResult))


@message()
class TransactionResult:
    """The outcomes for one transaction, from v4."""

    transactional_id: str = wire(STRING)
    topic_results: Sequence[TopicResult] = wire(array(TopicResult))


@message(key=24, versions=(0, 5), flexible=3)
class AddPartitionsToTxnResponse:
    """A code for each partition."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16, since=4)
    results_by_transaction: Sequence[TransactionResult] = wire(array(TransactionResult), since=4)
    results_by_topic_v3_and_below: Sequence[TopicResult] = wire(array(TopicResult), until=3)
