"""AllocateProducerIds (key 67): asks the controller for a block of producer ids.

Source: docs/spec/protocol.md §2; docs/spec/cluster.md §1.4; our nodes take blocks from ZooKeeper.
"""

from __future__ import annotations

from barnabas.protocol.codec.wire import INT16, INT32, INT64, message, wire


@message(key=67, versions=(0, 0), flexible=0)
class AllocateProducerIdsRequest:
    """Who asks."""

    broker_id: int = wire(INT32)
    broker_epoch: int = wire(INT64, default=-1)


@message(key=67, versions=(0, 0), flexible=0)
class AllocateProducerIdsResponse:
    """The block."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    producer_id_start: int = wire(INT64)
    producer_id_len: int = wire(INT32)
