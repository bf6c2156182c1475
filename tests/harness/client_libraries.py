"""What a test asks of a client library, whichever it is; one module implements it for each.

Everything blocks. A member of a group is polled by one thread only, as these libraries demand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from .records import GroupDescription, Received, Sent


class GroupMember(Protocol):
    """One consumer that subscribed to one topic, without automatic commits."""

    def poll(self) -> list[Received]:
        """What came within a tenth of a second."""

    def assigned(self) -> set[int]:
        """The partitions it owns now."""

    def commit(self) -> None:
        """Commit its positions; return when they are committed."""

    def close(self) -> None:
        """Leave the group."""


class ClientLibrary(Protocol):
    """An unmodified client library."""

    name: str
    codecs: Sequence[str]

    def create_topic(self, bootstrap: str, topic: str, partitions: int, factor: int = 1) -> None:
        """Create a topic of so many replicas through the admin client."""

    def produce(
        self, bootstrap: str, topic: str, records: Sequence[Sent], codec: str = "none"
    ) -> None:
        """Write records; return when all are acknowledged by all replicas."""

    def join(self, bootstrap: str, group: str, topic: str) -> GroupMember:
        """A new member of a group; it begins at the start where nothing is committed."""

    def groups(self, bootstrap: str) -> set[str]:
        """All groups of the cluster."""

    def describe_group(self, bootstrap: str, group: str) -> GroupDescription:
        """What the coordinator says of one group."""

    def committed(self, bootstrap: str, group: str) -> dict[int, int]:
        """Every committed offset of a group that reads one topic, by partition."""

    def offsets_at(
        self, bootstrap: str, topic: str, partition: int, timestamp_ms: int
    ) -> tuple[int, int, int | None]:
        """The partition's first offset, its end, and the offset that offsetsForTimes finds."""

    def read(self, bootstrap: str, topic: str, starts: Mapping[int, int | str]) -> list[Received]:
        """All there is from an offset, or from ``beginning``; without a group."""
