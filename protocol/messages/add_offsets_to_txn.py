"""AddOffsetsToTxn (key 25): makes the offsets of a group part of a transaction.

Source: docs/spec/protocol.md §2; KIP-98.
"""

from __future__ import annotations

from barnabas.protocol.codec.wire import INT16, INT32, INT64, STRING, message, wire


@message(key=25, versions=(0, 4), advertised=4, flexible=3)
class AddOffsetsToTxnRequest:
    """The group whose offsets the transaction will commit."""

    transactional_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    group_id: str = wire(STRING)


@message(key=25, versions=(0, 4), flexible=3)
class AddOffsetsToTxnResponse:
    """Whether that is noted."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
