"""What tests write and read, said alike for every client library."""

from __future__ import annotations

from collections.abc import Sequence
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
