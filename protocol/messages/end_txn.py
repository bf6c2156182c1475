"""EndTxn (key 26): commits or aborts a transaction.

Source: docs/spec/protocol.md §2; KIP-98.
"""

from __future__ import annotations

from barnabas.protocol.codec.wire import BOOL, INT16, INT32, INT64, STRING, message, wire


@message(key=26, versions=(0, 4), advertised=4, flexible=3)
class EndTxnRequest:
    """Which transaction ends, and how."""

    transactional_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    committed: bool = wire(BOOL)


@message(key=26, versions=(0, 4), flexible=3)
class EndTxnResponse:
    """Whether the end is decided."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
