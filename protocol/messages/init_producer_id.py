"""InitProducerId (key 22): hands out a producer id.

Source: docs/spec/protocol.md §2; docs/spec/log.md §7; KIP-360 (v3).
"""

from __future__ import annotations

from barnabas.protocol.codec.wire import INT16, INT32, INT64, STRING, message, wire


@message(key=22, versions=(0, 5), advertised=5, flexible=2)
class InitProducerIdRequest:
    """A producer that wants an identity, or a new epoch of the one it has."""

    transactional_id: str | None = wire(STRING, null_since=0)
    transaction_timeout_ms: int = wire(INT32)
    producer_id: int = wire(INT64, since=3, default=-1)
    producer_epoch: int = wire(INT16, since=3, default=-1)


@message(key=22, versions=(0, 5), flexible=2)
class InitProducerIdResponse:
    """The identity given."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    producer_id: int = wire(INT64, default=-1)
    producer_epoch: int = wire(INT16)
