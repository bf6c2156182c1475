"""What tests write and read, said alike for every client library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Sent:
    """A record to produce; ``partition`` None leaves the choice to the client."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Received:
    """A record as a consumer saw it."""

    partition: int
    offset: int
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int = -1


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """What an admin client says of a group."""

    state: str
    protocol: str
    member_count: int


def numbered(first: int, count: int) -> list[Sent]:
    """Records whose values are running numbers; ten keys, so that every partition gets some."""
    return [
        Sent(value=b"record %d" % number, key=b"key %d" % (number % 10))
        for number in range(first, first + count)
    ]


def assert_as_acknowledged(
    found: Sequence[Received], acknowledged: Mapping[bytes, tuple[int, int | None]]
) -> None:
    """All that was acknowledged is there, once, where it was said to be, and nothing else is."""
    places = {one.value: (one.partition, one.offset) for one in found}
    assert len(places) == len(found), "a record is there twice"
    said = {
        value: (partition, places.get(value, (0, -1))[1] if offset is None else offset)
        for value, (partition, offset) in acknowledged.items()
    }
    assert places == said
