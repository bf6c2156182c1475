"""DescribeTransactions (key 65): shows the state of transactions.

Source: docs/spec/protocol.md §2; KIP-664.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import INT16, INT32, INT64, STRING, array, message, wire


@message(key=65, versions=(0, 0), advertised=0, flexible=0)
class DescribeTransactionsRequest:
    """The transactional ids to show."""

    transactional_ids: Sequence[str] = wire(array(STRING))


@message()
class Topic:
    """The partitions of one topic in a transaction."""

    topic: str = wire(STRING)
    partitions: Sequence[int] = wire(array(INT32))


@message()
class Transaction:
    """The state of one transaction."""

    error_code: int = wire(INT16)
    transactional_id: str = wire(STRING)
    transaction_state: str = wire(STRING)
    transaction_timeout_ms: int = wire(INT32)
    transaction_start_time_ms: int = wire(INT64)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    topics: Sequence[Topic] = wire(array(Topic))


@message(key=65, versions=(0, 0), flexible=0)
class DescribeTransactionsResponse:
    """One state a transactional id."""

    throttle_time_ms: int = wire(INT32)
    transaction_states: Sequence[Transaction] = wire(array(Transaction))
