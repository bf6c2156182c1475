"""The assignor ``range``: each topic for itself, neighbouring partitions together.

Members of the same index get the same partitions of topics with as many partitions, so that
topics that are written with the same keys can be joined.
Source: docs/spec/consumer-groups.md §3, C31 to C33; Kafka's RangeAssignor (4.x).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from barnabas.coordinator.cooperative import Steps, Turn

from .assignor import (
    LOOKUPS_A_STEP,
    GroupSubscription,
    MemberSubscription,
    SubscribedTopic,
    Target,
    by_name,
)


class RangeAssignor:
    """n partitions to s subscribers: n // s each in their order, one more to the first n % s."""

    name = "range"

    def assign(self, group: GroupSubscription) -> Steps[Target]:
        """Deal out by topic; what members had before makes no difference."""
        found: dict[str, dict[bytes, tuple[int, ...]]] = {
            member.member_id: {} for member in group.members
        }
        subscribers = yield from _subscribers(group.members)
        turn = Turn()
        for topic in by_name(group.topics):
            for member, partitions in _shares(topic, subscribers[topic.topic_id]):
                found[member.member_id][topic.topic_id] = partitions
                if turn.is_over():
                    yield
        return dict(found)


def _subscribers(
    members: Sequence[MemberSubscription],
) -> Steps[defaultdict[bytes, list[MemberSubscription]]]:
    """By topic id: static members by instance id, which outlives restarts, then the others."""
    found: defaultdict[bytes, list[MemberSubscription]] = defaultdict(list)
    turn = Turn()
    for member in sorted(members, key=_order):
        for topic_id in member.topic_ids:
            found[topic_id].append(member)
        if turn.is_over(1 + len(member.topic_ids) // LOOKUPS_A_STEP):
            yield
    return found


def _order(member: MemberSubscription) -> tuple[bool, str]:
    return member.instance_id is None, member.instance_id or member.member_id


def _shares(
    topic: SubscribedTopic, subscribers: Sequence[MemberSubscription]
) -> Iterator[tuple[MemberSubscription, tuple[int, ...]]]:
    if not subscribers:
        return
    least, extra = divmod(topic.partitions, len(subscribers))
    start = 0
    for index, member in enumerate(subscribers):
        stop = start + least + (index < extra)
        if stop == start:
            return  # there are more subscribers than partitions
        yield member, tuple(range(start, stop))
        start = stop
