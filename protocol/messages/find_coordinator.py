"""FindCoordinator (key 10): tells which broker coordinates a group or transaction.

Source: docs/spec/protocol.md §2; docs/spec/coordinator.md §1.2; KIP-699 (v4).
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import INT8, INT16, INT32, STRING, array, message, wire


@message(key=10, versions=(0, 6), advertised=6, flexible=3)
class FindCoordinatorRequest:
    """Whose coordinator is looked for."""

    key: str = wire(STRING, until=3)
    key_type: int = wire(INT8, since=1)
    """0 for groups, 1 for transactional ids."""
    coordinator_keys: Sequence[str] = wire(array(STRING), since=4)


@message()
class Coordinator:
    """The coordinator of one key, or why there is none; from v4."""

    key: str = wire(STRING)
    node_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, null_since=0)


@message(key=10, versions=(0, 6), flexible=3)
class FindCoordinatorResponse:
    """Id and address of each coordinator."""

    throttle_time_ms: int = wire(INT32, since=1)
    error_code: int = wire(INT16, until=3)
    error_message: str | None = wire(STRING, since=1, until=3, null_since=1)
    node_id: int = wire(INT32, until=3)
    host: str = wire(STRING, until=3)
    port: int = wire(INT32, until=3)
    coordinators: Sequence[Coordinator] = wire(array(Coordinator), since=4)
