"""ControlledShutdown (key 7): asks the controller to move leaders away before a stop.

Source: docs/spec/protocol.md §2; docs/spec/cluster.md §2.8.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import INT16, INT32, INT64, STRING, array, message, wire


@message(key=7, versions=(0, 3), flexible=3)
class ControlledShutdownRequest:
    """Who is about to stop."""

    broker_id: int = wire(INT32)
    broker_epoch: int = wire(INT64, since=2, default=-1)


@message()
class RemainingPartition:
    """A partition still led there: ask again until there is none."""

    topic_name: str = wire(STRING)
    partition_index: int = wire(INT32)


@message(key=7, versions=(0, 3), flexible=3)
class ControlledShutdownResponse:
    """What is still led by the broker that stops."""

    error_code: int = wire(INT16)
    remaining_partitions: Sequence[RemainingPartition] = wire(array(RemainingPartition))
