"""What was sent, acknowledged, read meanwhile and read at the end, compared; pure.

Source: docs/spec/reliability.md §1.1 (Jepsen's queue checks), P6 and P7.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

RecordId = tuple[int, int]
"""Partition and offset of a record."""


@dataclass(slots=True)
class Sent:
    """What one producer did; it sends each value once, and numbers what it sends."""

    values: dict[bytes, int] = field(default_factory=dict)
    """Its number for every value that it sent, whatever became of it."""
    acknowledged: dict[bytes, RecordId] = field(default_factory=dict)
    unplaced: dict[bytes, int] = field(default_factory=dict)
    """Partition of every value that was acknowledged without an offset, as librdkafka does when
    the acknowledgement of a later one tells it."""


def lost(acknowledged: Mapping[bytes, RecordId], log: Mapping[RecordId, bytes]) -> list[str]:
    """Acknowledged records that are not where the acknowledgement said."""
    return [
        f"{value!r} was acknowledged at {record_id}, there is {log.get(record_id)!r}"
        for value, record_id in acknowledged.items()
        if log.get(record_id) != value
    ]


def missing(unplaced: Mapping[bytes, int], log: Mapping[RecordId, bytes]) -> list[str]:
    """Acknowledged records that are nowhere in their partition."""
    known = {(record_id[0], value) for record_id, value in log.items()}
    return [
        f"{value!r} was acknowledged in partition {partition}, it is not there"
        for value, partition in unplaced.items()
        if (partition, value) not in known
    ]


def duplicates(log: Mapping[RecordId, bytes]) -> list[str]:
    """Values under two offsets."""
    record_ids: dict[bytes, list[RecordId]] = defaultdict(list)
    for record_id, value in log.items():
        record_ids[value].append(record_id)
    return [f"{value!r} is at {many}" for value, many in record_ids.items() if len(many) > 1]


def inventions(sent: Iterable[Sent], log: Mapping[RecordId, bytes]) -> list[str]:
    """Values that nobody sent."""
    known = {value for one in sent for value in one.values}
    return [
        f"{value!r} at {record_id} was never sent"
        for record_id, value in log.items()
        if value not in known
    ]


def disorder(sent: Sent) -> list[str]:
    """Acknowledged records of one producer and partition that stand in another order."""
    found: list[str] = []
    by_partition: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for value, (partition, offset) in sent.acknowledged.items():
        by_partition[partition].append((sent.values[value], offset))
    for partition, many in by_partition.items():
        many.sort()
        for (number, offset), (later, next_offset) in itertools.pairwise(many):
            if next_offset <= offset:
                found.append(f"{partition}: {number} at {offset}, {later} at {next_offset}")
    return found


def inconsistencies(
    readings: Iterable[tuple[RecordId, bytes]], log: Mapping[RecordId, bytes]
) -> list[str]:
    """What a reader was given, meanwhile, that is not in the log at the end."""
    return [
        f"{value!r} was read at {record_id}, there is {log.get(record_id)!r}"
        for record_id, value in readings
        if log.get(record_id) != value
    ]


def unread(
    committed: Mapping[int, int], received: Iterable[RecordId], log: Mapping[RecordId, bytes]
) -> list[str]:
    """Records below a group's committed offsets that none of its members was given."""
    got = set(received)
    return [
        f"{record_id} was passed over"
        for record_id in log
        if record_id[1] < committed.get(record_id[0], 0) and record_id not in got
    ]


def differences(copies: Mapping[str, Mapping[int, bytes]]) -> list[str]:
    """Partitions of which two nodes hold different bytes, and where they part."""
    (first, reference), *others = copies.items()
    found: list[str] = []
    for name, logs in others:
        for partition in reference.keys() | logs.keys():
            one, other = reference.get(partition, b""), logs.get(partition, b"")
            if one != other:
                at = _first_difference(one, other)
                found.append(
                    f"partition {partition}: {first} has {len(one)} bytes, {name} {len(other)}, "
                    f"they differ from {at}"
                )
    return found


def _first_difference(one: Sequence[int], other: Sequence[int]) -> int:
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
