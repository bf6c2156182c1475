"""What was sent, acknowledged, read meanwhile and read at the end, compared; pure.

Source: docs/spec/reliability.md §1.1 (Jepsen's queue checks), P6 and P7.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

Place = tuple[int, int]
"""Partition and offset."""


@dataclass(slots=True)
class Sent:
    """What one producer did; it sends each value once, and numbers what it sends."""

    values: dict[bytes, int] = field(default_factory=dict)
    """Its number for every value that it sent, whatever became of it."""
    acknowledged: dict[bytes, Place] = field(default_factory=dict)
    unplaced: dict[bytes, int] = field(default_factory=dict)
    """Partition of every value that was acknowledged without an offset, as librdkafka does when
    the acknowledgement of a later one tells it."""


def lost(acknowledged: Mapping[bytes, Place], log: Mapping[Place, bytes]) -> list[str]:
    """Acknowledged records that are not where the acknowledgement said."""
    return [
        f"{value!r} was acknowledged at {place}, there is {log.get(place)!r}"
        for value, place in acknowledged.items()
        if log.get(place) != value
    ]


def missing(unplaced: Mapping[bytes, int], log: Mapping[Place, bytes]) -> list[str]:
    """Acknowledged records that are nowhere in their partition."""
    known = {(place[0], value) for place, value in log.items()}
    return [
        f"{value!r} was acknowledged in partition {partition}, it is not there"
        for value, partition in unplaced.items()
        if (partition, value) not in known
    ]


def duplicates(log: Mapping[Place, bytes]) -> list[str]:
    """Values under two offsets."""
    places: dict[bytes, list[Place]] = defaultdict(list)
    for place, value in log.items():
        places[value].append(place)
    return [f"{value!r} is at {many}" for value, many in places.items() if len(many) > 1]


def inventions(sent: Iterable[Sent], log: Mapping[Place, bytes]) -> list[str]:
    """Values that nobody sent."""
    known = {value for one in sent for value in one.values}
    return [
        f"{value!r} at {place} was never sent" for place, value in log.items() if value not in known
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
    readings: Iterable[tuple[Place, bytes]], log: Mapping[Place, bytes]
) -> list[str]:
    """What a reader was given, meanwhile, that is not in the log at the end."""
    return [
        f"{value!r} was read at {place}, there is {log.get(place)!r}"
        for place, value in readings
        if log.get(place) != value
    ]


def unread(
    committed: Mapping[int, int], received: Iterable[Place], log: Mapping[Place, bytes]
) -> list[str]:
    """Records below a group's committed offsets that none of its members was given."""
    got = set(received)
    return [
        f"{place} was passed over"
        for place in log
        if place[1] < committed.get(place[0], 0) and place not in got
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
