"""ListTransactions (key 66): lists the transactions a broker coordinates.

Source: docs/spec/protocol.md §2; KIP-664.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import INT16, INT32, INT64, STRING, array, message, wire


@message(key=66, versions=(0, 1), advertised=1, flexible=0)
class ListTransactionsRequest:
    """Filters; an empty one lets all pass."""

    state_filters: Sequence[str] = wire(array(STRING))
    producer_id_filters: Sequence[int] = wire(array(INT64))
    duration_filter: int = wire(INT64, since=1, default=-1)


@message()
class Transaction:
    """One transaction."""

    transactional_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    transaction_state: str = wire(STRING)


@message(key=66, versions=(0, 1), flexible=0)
class ListTransactionsResponse:
    """The transactions found."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    unknown_state_filters: Sequence[str] = wire(array(STRING))
    transaction_states: Sequence[Transaction] = wire(array(Transaction))
