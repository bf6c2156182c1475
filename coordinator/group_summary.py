"""The state, members and offsets of every group of a coordinator, group by group, for metrics.

Source: docs/spec/users.md §3 and §4. The lag is added by the host, which can ask where logs end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from .group import Group
from .group_registry import GroupRegistry
from .group_state import GroupState
from .offsets import TopicPartition
from .terms import LoadState


class OffsetSummary(NamedTuple):
    """One committed offset; ``record_offset`` tells it from an earlier one."""

    offset: int
    committed_ms: int
    record_offset: int


class GroupSummary(NamedTuple):
    """One group as it stood when it was looked at."""

    group_id: str
    state: GroupState
    members: int
    commits: int
    """Commits served since this node coordinates the group."""
    offsets: dict[TopicPartition, OffsetSummary]


def summarize(group: Group) -> GroupSummary:
    """How ``group`` stands now."""
    offsets = {
        partition: OffsetSummary(commit.offset, commit.committed_ms, commit.record_offset)
        for partition, commit in group.offsets.committed.items()
    }
    return GroupSummary(group.group_id, group.state, group.member_count, group.commits, offsets)


def group_summaries(registry: GroupRegistry) -> Iterator[GroupSummary]:
    """Every group that is served here, one a step; those that end meanwhile are left out."""
    for group in registry:
        if group.state is not GroupState.DEAD:
            yield summarize(group)


@dataclass(slots=True)
class StagedCounts:
    """What open transactions hold at a moment."""

    offsets: int = 0
    """Offsets that wait for a marker; twice where two producers have the same one."""
    producers: int = 0
    """Whose transactions these are; once in each offsets partition that has some."""


def count_staged(registry: GroupRegistry, counts: StagedCounts) -> Iterator[None]:
    """Fill in ``counts``; yields often, so that others have the loop in between.

    Only groups with such offsets are looked at: commits keep no count, and a node may know many.
    """
    for term in registry.terms():
        for producer_id, group_ids in list(term.open_groups.items()):
            before = counts.offsets
            for group_id in list(group_ids):
                group = term.groups.get(group_id)
                if group is not None:
                    counts.offsets += len(group.offsets.transactional.get(producer_id, ()))
                yield
            counts.producers += counts.offsets > before


def partitions_by_load_state(registry: GroupRegistry) -> Counter[LoadState]:
    """How many offsets partitions are loading, owned and failed."""
    return Counter(term.load_state for term in registry.terms())
