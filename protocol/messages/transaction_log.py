"""The records of ``__transaction_state``: which producer has which transaction open.

::

    key, value    version int16 | body as declared below

Source: golden-kafka39.json; docs/spec/protocol.md §3.4.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import INT8, INT16, INT32, INT64, STRING, array, message, wire


@message(versions=(0, 0))
class TransactionLogKey:
    """Whose transactions a record is about."""

    transactional_id: str = wire(STRING)


@message()
class TransactionPartitions:
    """The partitions of one topic in the transaction."""

    topic: str = wire(STRING)
    partition_ids: Sequence[int] = wire(array(INT32))


@message(versions=(0, 1), flexible=1)
class TransactionLogValue:
    """The state of one producer's transaction."""

    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    transaction_timeout_ms: int = wire(INT32)
    transaction_status: int = wire(INT8)
    """0 empty, 1 ongoing, 2 and 3 to commit or abort, 4 and 5 done so, 6 dead, 7 fenced."""
    transaction_partitions: Sequence[TransactionPartitions] | None = wire(
        array(TransactionPartitions), null_since=0
    )
    transaction_last_update_timestamp_ms: int = wire(INT64)
    transaction_start_timestamp_ms: int = wire(INT64)
