"""DescribeClientQuotas (key 48): shows quotas.

Source: docs/spec/protocol.md §2; KIP-546.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import (
    BOOL,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    STRING,
    array,
    message,
    wire,
)


@message()
class Component:
    """One condition on the clients."""

    entity_type: str = wire(STRING)
    match_type: int = wire(INT8)
    match: str | None = wire(STRING, null_since=0)


@message(key=48, versions=(0, 1), advertised=1, flexible=1)
class DescribeClientQuotasRequest:
    """Which clients' quotas to show."""

    components: Sequence[Component] = wire(array(Component))
    strict: bool = wire(BOOL)


@message()
class Entity:
    """One part of what a quota is for."""

    entity_type: str = wire(STRING)
    entity_name: str | None = wire(STRING, null_since=0)


@message()
class Value:
    """One quota."""

    key: str = wire(STRING)
    value: float = wire(FLOAT64)


@message()
class Entry:
    """The quotas of one entity."""

    entity: Sequence[Entity] = wire(array(Entity))
    values: Sequence[Value] = wire(array(Value))


@message(key=48, versions=(0, 1), advertised=1, flexible=1)
class DescribeClientQuotasResponse:
    """The quotas found."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, null_since=0)
    entries: Sequence[Entry] | None = wire(array(Entry), null_since=0)
