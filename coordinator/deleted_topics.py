"""Removes the offsets of deleted topics from all groups, without retention, in turns of the loop.

Every offset of every group is looked at, and a node may have a million of them: at once they took
the loop a tenth of a second for each deleted topic. Topics that are deleted meanwhile wait for the
next pass, and share it. A pass is not to be told from a metadata update that came a little later:

- what is left is removed before a topic is back, when somebody may commit to it again;
- a partition that is led from now on is cleaned when it is loaded, as one that was loading is.

What a partition holds that nobody led while the topic went stays until retention, as in Kafka.

Source: docs/spec/coordinator.md §4.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable
from collections.abc import Set as AbstractSet
from typing import Final

from .cooperative import CooperativeScheduler, Steps
from .group import Group
from .group_registry import GroupRegistry, GroupTerm
from .offset_removal import remove_offsets
from .offsets_journal import Journal
from .rebalance import Rebalancer
from .terms import LoadState
from .tombstones import TombstoneWrite

LOOKS_PER_TURN: Final = 100_000
"""Offsets that are looked at in one turn: some 5 ms. Shorter turns would make the pass longer, and
what it has not reached yet is lost to it when the partition is led elsewhere."""
_LOOKS_A_GROUP: Final = 25
"""A group without offsets takes as long as so many looks."""
_LOOKS_A_REMOVAL: Final = 100
"""So does an offset that is removed."""


class DeletedTopics:
    """Removes the offsets of deleted topics, in passes over all groups that are owned here."""

    def __init__(
        self,
        registry: GroupRegistry,
        journal: Journal,
        rebalancer: Rebalancer,
        scheduler: CooperativeScheduler,
    ) -> None:
        self._registry = registry
        self._journal = journal
        self._rebalancer = rebalancer
        self._scheduler = scheduler
        self._waiting: set[str] = set()
        """Topics for the next pass."""
        self._under_way: frozenset[str] = frozenset()
        """Those of this one."""
        self._passes: Steps[None] | None = None

    def topics_deleted(self, names: Collection[str]) -> None:
        """Remove the offsets of these topics from every group; of a few groups they go at once.

        Partitions that are loading are cleaned when they are loaded.
        """
        for term in self._registry.terms():
            if term.load_state is not LoadState.OWNED:
                term.deleted_topics.update(names)
        self._waiting.update(names)
        if self._passes is None:
            self._passes = self._remove_in_turns()
            self._scheduler.drive(self._passes)

    def topics_known(self, topics: Container[str]) -> None:
        """These topics exist: of one that was deleted and is back nothing stays from before."""
        if any(name in topics for name in (*self._under_way, *self._waiting)):
            self.finish()

    def finish(self) -> None:
        """Remove now what is left."""
        if self._passes is not None:
            for _ in self._passes:
                pass

    def elected(self, term: GroupTerm, former: GroupTerm | None) -> None:
        """A term begins: it is to be cleaned of what is still being removed once it is loaded.

        And of what ``former`` was to be cleaned of, a term that was loading until now. Only of
        the epoch before: in one between, another node may have led, and taken commits to a topic
        that was made anew.
        """
        term.deleted_topics.update(self._under_way, self._waiting)
        if former is not None and former.leader_epoch == term.leader_epoch - 1:
            term.deleted_topics.update(former.deleted_topics)

    def clean(self, groups: Iterable[Group], topics: AbstractSet[str]) -> None:
        """Remove the offsets of these topics from groups that were just loaded."""
        for group in groups:
            self._remove(group, topics)

    def _remove_in_turns(self) -> Steps[None]:
        left = LOOKS_PER_TURN
        try:
            while self._waiting:
                self._under_way, self._waiting = frozenset(self._waiting), set()
                for group_id in list(self._registry.groups):
                    group = self._registry.groups.get(group_id)  # of either kind, as it is by now
                    if group is None:
                        continue
                    left -= group.offsets.kept + _LOOKS_A_GROUP
                    left -= self._remove(group, self._under_way) * _LOOKS_A_REMOVAL
                    if left <= 0:
                        yield
                        left = LOOKS_PER_TURN
        finally:
            self._passes, self._under_way = None, frozenset()

    def _remove(self, group: Group, topics: AbstractSet[str]) -> int:
        """Gives how many offsets went, and perhaps the group with the last of them."""
        partitions = group.offsets.of_topics(topics)
        if partitions:
            entries = remove_offsets(group, partitions, self._registry, self._rebalancer)
            tombstone_write = TombstoneWrite(lambda _code: None)
            tombstone_write.write(self._journal, group, entries)
            tombstone_write.close()
        return len(partitions)
