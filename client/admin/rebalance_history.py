"""Rebalances of groups, from the records of both protocols in ``__consumer_offsets``.

Of a classic group each generation counts, of one of the new protocol (KIP-848) each target that was
computed. Source: docs/spec/coordinator.md §2; docs/spec/consumer-groups.md §4.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final, NamedTuple

from barnabas.protocol.consumer_group_records import (
    RecordType,
    TargetAssignmentMetadata,
    parse_consumer_group_key,
    parse_consumer_group_value,
)
from barnabas.protocol.offsets_topic import parse_group_value
from barnabas.protocol.records.record import Record

CLASSIC_KEYS: Final = (b"\0\2",)
EPOCH_KEYS: Final = (
    RecordType.MEMBER_METADATA.to_bytes(2, "big"),
    RecordType.TARGET_ASSIGNMENT_METADATA.to_bytes(2, "big"),
)
"""How the keys begin of what is looked at; the group's name follows, with its length."""


class SeenGeneration(NamedTuple):
    """A rebalance that the log still holds: what the group was from then on."""

    generation: int
    """Of a group of the new protocol the epoch of its assignment."""
    timestamp_ms: int
    members: int | None
    """None of them: the last one left. None: not all of the log was read, who knows."""
    is_epoch: bool = False
    """The group is of the new protocol."""


def generation_of(record: Record) -> SeenGeneration | None:
    """What the record of a classic group tells; None for the end of one."""
    if record.value is None:
        return None
    value = parse_group_value(record.value)
    at = value.current_state_timestamp
    return SeenGeneration(value.generation, at if at >= 0 else record.timestamp, len(value.members))


class EpochReplay:
    """Members and targets of groups of the new protocol, from records in the order of the log."""

    def __init__(self) -> None:
        self._members: dict[str, set[str]] = defaultdict(set)

    def take(self, record: Record, *, is_whole: bool) -> tuple[str, SeenGeneration] | None:
        """The group and its new target, where the record is one.

        ``is_whole``: the log has been read from its start, so all members were seen.
        """
        assert record.key is not None
        key = parse_consumer_group_key(record.key)
        if key is None:
            return None
        members = self._members[key.group]
        if key.type is RecordType.MEMBER_METADATA:
            (members.discard if record.value is None else members.add)(key.name)
            return None
        if key.type is not RecordType.TARGET_ASSIGNMENT_METADATA or record.value is None:
            return None
        value = parse_consumer_group_value(TargetAssignmentMetadata, record.value)
        known = len(members) if is_whole else None
        at = value.assignment_timestamp or record.timestamp
        return key.group, SeenGeneration(value.assignment_epoch, at, known, is_epoch=True)
