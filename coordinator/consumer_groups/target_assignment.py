"""Computing what each member of a group is to have, and finding out for whom that is new.

Source: docs/spec/consumer-groups.md §3, C26 to C30, C84 to C86. Long work: generators.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from barnabas.coordinator.cooperative import Steps, Turn

from .assignor import (
    GroupSubscription,
    MemberSubscription,
    PartitionAssignor,
    SubscribedTopic,
    Target,
)
from .consumer_group import ConsumerGroup
from .range_assignor import RangeAssignor
from .topic_catalog import TopicCatalog
from .uniform_assignor import UniformAssignor

ASSIGNORS: Final[Mapping[str, PartitionAssignor]] = {
    assignor.name: assignor for assignor in (UniformAssignor(), RangeAssignor())
}
"""By the name that members and settings ask for."""

INLINE_MAX: Final = 2_000
"""Members and partitions that are assigned at once: more take several turns (C84)."""


class ComputedTarget(NamedTuple):
    """A target, and the epoch of the group that it was begun for."""

    epoch: int
    target: Target


def chosen_assignor(group: ConsumerGroup, configured: Sequence[str]) -> PartitionAssignor:
    """The one that most members prefer, else the first configured (C28)."""
    votes = Counter(
        member.profile.assignor
        for member in group.consumers.values()
        if member.profile.assignor in configured
    )
    return ASSIGNORS[max(configured, key=lambda name: votes[name])]  # the first of equals


def subscribed_topics(group: ConsumerGroup, catalog: TopicCatalog) -> list[SubscribedTopic]:
    """The topics that exist of those that members subscribe to."""
    found = map(catalog.topic, group.topic_names)
    return [topic for topic in found if topic is not None]


def size_of(group: ConsumerGroup, topics: Sequence[SubscribedTopic]) -> int:
    """Members and partitions, which is what an assignment takes."""
    return len(group.consumers) + sum(topic.partitions for topic in topics)


def compute(
    group: ConsumerGroup, catalog: TopicCatalog, configured: Sequence[str]
) -> Steps[ComputedTarget]:
    """The target for the group as it is now."""
    epoch = group.epoch
    topics = subscribed_topics(group, catalog)
    is_homogeneous = group.is_homogeneous
    profiles = [(member.member_id, member.profile) for member in group.consumers.values()]
    members, turn = [], Turn()
    for member_id, profile in profiles:
        ids = group.topic_ids(profile, catalog)
        target = group.targets.get(member_id, {})
        members.append(MemberSubscription(member_id, profile.instance_id, ids, target))
        if turn.is_over():
            yield
    subscription = GroupSubscription(members, topics, is_homogeneous)
    computed = yield from chosen_assignor(group, configured).assign(subscription)
    return ComputedTarget(epoch, computed)


def changed_members(group: ConsumerGroup, target: Target) -> Steps[list[str]]:
    """Those for whom the target is another than before, or the first one."""
    found, turn = [], Turn()
    for member_id in list(group.consumers):  # others join and leave between two turns
        if group.targets.get(member_id) != target.get(member_id, {}):
            found.append(member_id)
        if turn.is_over():
            yield
    return found
