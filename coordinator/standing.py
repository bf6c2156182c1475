"""How the groups of a coordinator stand: what one look at all of them finds, in small steps.

Source: docs/spec/users.md §3 and §4. The lag is added by the host, which can ask where logs end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from .group import Group
from .group_state import GroupState
from .offsets import TopicPartition
from .ownership import Directory, Standing


class SeenOffset(NamedTuple):
    """One committed offset; ``record_offset`` tells it from an earlier one."""

    offset: int
    committed_ms: int
    record_offset: int


class SeenGroup(NamedTuple):
    """One group as it stood when it was looked at."""

    group_id: str
    state: GroupState
    members: int
    commits: int
    """Commits served since this node coordinates the group."""
    offsets: dict[TopicPartition, SeenOffset]


def look(group: Group) -> SeenGroup:
    """How ``group`` stands now."""
    offsets = {
        partition: SeenOffset(commit.offset, commit.committed_ms, commit.record_offset)
        for partition, commit in group.offsets.committed.items()
    }
    return SeenGroup(group.group_id, group.state, len(group.members), group.commits, offsets)


def groups_of(directory: Directory) -> Iterator[SeenGroup]:
    """Every group that is served here, one a step; those that end meanwhile are left out."""
    for group in directory:
        if group.state is not GroupState.DEAD:
            yield look(group)


def partitions_by_standing(directory: Directory) -> Counter[Standing]:
    """How many offsets partitions are loading, owned and failed."""
    return Counter(term.standing for term in directory.terms())
