"""AlterClientQuotas (key 49): changes quotas.

Source: docs/spec/protocol.md §2; KIP-546.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import BOOL, FLOAT64, INT16, INT32, STRING, array, message, wire


@message()
class Entity:
    """One part of what a quota is for."""

    entity_type: str = wire(STRING)
    entity_name: str | None = wire(STRING, null_since=0)


@message()
class Op:
    """One quota to set or remove."""

    key: str = wire(STRING)
    value: float = wire(FLOAT64)
    remove: bool = wire(BOOL)


@message()
class Entry:
    """The quotas of one entity to change."""

    entity: Sequence[Entity] = wire(array(Entity))
    ops: Sequence[Op] = wire(array(Op))


@message(key=49, versions=(0, 1), advertised=1, flexible=1)
class AlterClientQuotasRequest:
    """The changes."""

    entries: Sequence[Entry] = wire(array(Entry))
    validate_only: bool = wire(BOOL)


@message()
class EntityResult:
    """One part of what a quota is for."""

    entity_type: str = wire(STRING)
    entity_name: str | None = wire(STRING, null_since=0)


@message()
class EntryResult:
    """The outcome for one entity."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, null_since=0)
    entity: Sequence[EntityResult] = wire(array(EntityResult))


@message(key=49, versions=(0, 1), advertised=1, flexible=1)
class AlterClientQuotasResponse:
    """The outcome for each change."""

    throttle_time_ms: int = wire(INT32)
    entries: Sequence[EntryResult] = wire(array(EntryResult))
