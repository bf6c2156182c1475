"""Which offsets partitions this node answers for, since when, and the groups it keeps for them.

Source: docs/spec/coordinator.md §1.1, §1.4, §3.4 and §3.5.

A group is in the registry exactly as long as its partition is owned here: a lookup finds it, or
:meth:`GroupRegistry.ownership_problem` says 14, 15 or 16. Ownership and groups change in one step,
without an await between: a request never finds a group of a partition that is led elsewhere, nor
hears "no offset" of one that still loads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from .damaged_records import DamagedRecords
from .group import Group
from .terms import LeadershipTerm, TermRegistry


class GroupTerm(LeadershipTerm):
    """A term of one offsets partition, with its groups.

    ``deleted_topics`` is what is to be cleaned out of the groups once they are loaded.
    """

    __slots__ = ("damaged", "deleted_topics", "groups", "open_groups")

    def __init__(self, partition: int, leader_epoch: int) -> None:
        super().__init__(partition, leader_epoch)
        self.deleted_topics: set[str] = set()
        self.groups: dict[str, Group] = {}
        self.open_groups: dict[int, set[str]] = {}
        """By producer id: the groups in which its open transaction staged offsets."""
        self.damaged: DamagedRecords | None = None
        """What was damaged and could not be loaded; None when all was."""


class GroupRegistry(TermRegistry[GroupTerm]):
    """The terms of this node and every group of the owned ones."""

    def __init__(self, may_lead: Callable[[int], bool] = lambda partition: False) -> None:
        """``may_lead`` says of a partition without a term whether one may be about to begin."""
        super().__init__(GroupTerm, may_lead)
        self.groups: dict[str, Group] = {}
        """All groups by id: a hit means that the partition is owned."""

    def start(self, partition_count: int) -> None:
        """Answer from now on; the count never changes while there are groups."""
        assert not self.groups or partition_count == self._partition_count
        super().start(partition_count)

    def damaged(self, group_id: str) -> DamagedRecords | None:
        """What could not be loaded of the partition of a group that is not in the registry."""
        if not self._partition_count:
            return None
        term = self._terms.get(self.partition_of(group_id))
        return None if term is None else term.damaged

    def resigned(self, partition: int, leader_epoch: int | None) -> GroupTerm | None:
        """The term that is over now, its groups out of the registry; None when there is none."""
        term = super().resigned(partition, leader_epoch)
        if term is not None:
            for group_id in term.groups:
                del self.groups[group_id]
        return term

    # -- groups ------------------------------------------------------------------------------

    def install(self, term: GroupTerm, groups: Iterable[Group]) -> None:
        """Own the partition of ``term`` with everything that was loaded for it, in one step.

        Group by group, a fetch would find a group without the offsets that are still to come.
        """
        assert not term.groups
        term.groups = {group.group_id: group for group in groups}
        self.groups.update(term.groups)
        self.own(term)

    def add(self, group: Group) -> None:
        """A group is made on an owned partition."""
        assert group.group_id not in self.groups
        group.term.groups[group.group_id] = group
        self.groups[group.group_id] = group
        damaged = group.term.damaged
        if damaged is not None:
            group.lacks_metadata = damaged.lacks_metadata(group.group_id)

    def replace(self, group: Group, successor: Group) -> None:
        """A group goes on as one of the other kind, with the same offsets.

        What is on its way for the former one still ends there: it settles in offsets that both
        have, so that nothing acknowledged is lost.
        """
        assert self.groups[group.group_id] is group
        successor.offsets, successor.commits = group.offsets, group.commits
        group.term.groups[group.group_id] = successor
        self.groups[group.group_id] = successor

    def evict(self, group: Group) -> None:
        """A group is dead: its id may be used anew."""
        if self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]
            del group.term.groups[group.group_id]

    def __iter__(self) -> Iterator[Group]:
        return iter(list(self.groups.values()))
