"""What every assignor of the coordinator is given, and what it returns.

Pure, as the assignors are: subscriptions and the target assignment so far in, the new target out,
the same for the same input. An assignor is a generator: a group may have 10,000 members and
100,000 partitions, and the loop is not to stand still for as long as that takes.
Source: docs/spec/consumer-groups.md §3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

from barnabas.coordinator.cooperative import Steps

LOOKUPS_A_STEP: Final = 8
"""So many entries of dictionaries cost what one step of a turn is meant to cost."""

Assignment: TypeAlias = Mapping[bytes, tuple[int, ...]]
"""Partitions by topic id, ascending; no topic without partitions."""

Target: TypeAlias = dict[str, Assignment]
"""What each member is to have in the end, by member id."""


class SubscribedTopic(NamedTuple):
    """A topic that exists and that somebody of the group subscribes to."""

    topic_id: bytes
    name: str
    partitions: int


class MemberSubscription(NamedTuple):
    """A member as assignors see it."""

    member_id: str
    instance_id: str | None
    topic_ids: frozenset[bytes]
    """Of topics that exist: named, or matched by the member's expression."""
    target: Assignment
    """What it was to have so far, also of topics that it has left or that are gone."""


class GroupSubscription(NamedTuple):
    """All that an assignment depends on."""

    members: Sequence[MemberSubscription]
    topics: Sequence[SubscribedTopic]
    is_homogeneous: bool
    """Whether all members subscribe to the same, by the same names or the same expression."""


class PartitionAssignor(Protocol):
    """A strategy; its name is what members and settings ask for."""

    name: str

    def assign(self, group: GroupSubscription) -> Steps[Target]:
        """Give every partition of every subscribed topic to one member that subscribes to it."""
        ...


def by_name(topics: Iterable[SubscribedTopic]) -> list[SubscribedTopic]:
    """Topics in the order that all assignors work in."""
    return sorted(topics, key=lambda topic: topic.name)
