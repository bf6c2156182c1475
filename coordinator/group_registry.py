"""Which offsets partitions this node answers for, since when, and the groups it keeps for them.

Source: docs/spec/coordinator.md §1.1, §1.4, §3.4 and §3.5.

A group is in the registry exactly as long as its partition is owned here: a lookup finds it, or
:meth:`GroupRegistry.ownership_problem` says 14, 15 or 16. Ownership and groups change in one step,
without an await between: a request never finds a group of a partition that is led elsewhere, nor
hears "no offset" of one that still loads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Final

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.hashing import group_partition

from .damaged_records import DamagedRecords
from .group import Group


class LoadState(Enum):
    """How far a term has come."""

    LOADING = "loading"
    OWNED = "owned"
    FAILED = "failed"
    OVER = "over"


PROBLEMS: Final[Mapping[LoadState, ErrorCode]] = {
    LoadState.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    LoadState.OWNED: ErrorCode.NONE,
    LoadState.FAILED: ErrorCode.NOT_COORDINATOR,
    LoadState.OVER: ErrorCode.NOT_COORDINATOR,
}
"""What the groups of a partition are answered; NONE lets a request pass.

A partition that could not be loaded is not served: a cache with a hole sends consumers back in
time.
"""


class LeadershipTerm:
    """One time of leading one offsets partition, from election to resignation.

    ``problem`` is what the groups of this partition are answered, ``deleted_topics`` what
    is to be cleaned out of them once they are loaded.
    """

    __slots__ = (
        "attempts",
        "damaged",
        "deleted_topics",
        "groups",
        "leader_epoch",
        "load_state",
        "loaded_end",
        "partition",
        "problem",
    )

    def __init__(self, partition: int, leader_epoch: int) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.attempts = 0
        self.deleted_topics: set[str] = set()
        self.groups: dict[str, Group] = {}
        self.loaded_end = 0
        """Where the log ended that was loaded: records below are of earlier terms."""
        self.damaged: DamagedRecords | None = None
        """What was damaged and could not be loaded; None when all was."""
        self.load_state = LoadState.LOADING
        self.problem = PROBLEMS[self.load_state]

    def become(self, load_state: LoadState) -> None:
        """Change the load state; a term that is over stays so."""
        assert self.load_state is not LoadState.OVER
        self.load_state = load_state
        self.problem = PROBLEMS[load_state]


class GroupRegistry:
    """The terms of this node and every group of the owned ones."""

    def __init__(self, may_lead: Callable[[int], bool] = lambda partition: False) -> None:
        """``may_lead`` says of a partition without a term whether one may be about to begin."""
        self._may_lead = may_lead
        self.groups: dict[str, Group] = {}
        """All groups by id: a hit means that the partition is owned."""
        self._terms: dict[int, LeadershipTerm] = {}
        self._epochs: dict[int, int] = {}
        self._partition_count = 0

    # -- ownership ---------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        """Whether the coordinator is started."""
        return self._partition_count > 0

    def start(self, partition_count: int) -> None:
        """Answer from now on; the count decides which group lives where, as long as the topic
        is the same one.
        """
        assert not self.groups or partition_count == self._partition_count
        assert partition_count > 0
        self._partition_count = partition_count

    def stop(self) -> None:
        """Answer 15 from now on."""
        assert not self._terms, "resign first"
        self._partition_count = 0

    def forget_epochs(self) -> None:
        """The topic is deleted: the leader epochs of the next one begin at 0 again."""
        assert not self._terms, "resign first"
        self._epochs.clear()

    def partition_of(self, group_id: str) -> int:
        """The offsets partition of a group (docs/spec/coordinator.md §1.1); only while started."""
        return group_partition(group_id, self._partition_count)

    def ownership_problem(self, group_id: str) -> ErrorCode:
        """What a group that is not in the registry is answered; NONE when it is owned here."""
        if not self._partition_count:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        partition = self.partition_of(group_id)
        term = self._terms.get(partition)
        if term is not None:
            return term.problem
        # A node that was just started does not know what it leads: unknown is not "somebody else".
        is_early = self._may_lead(partition)
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_early else ErrorCode.NOT_COORDINATOR

    def damaged(self, group_id: str) -> DamagedRecords | None:
        """What could not be loaded of the partition of a group that is not in the registry."""
        if not self._partition_count:
            return None
        term = self._terms.get(self.partition_of(group_id))
        return None if term is None else term.damaged

    def term_of(self, group_id: str) -> LeadershipTerm:
        """The term in which a new group of this id is made; its partition is owned here."""
        term = self._terms[self.partition_of(group_id)]
        assert term.load_state is LoadState.OWNED
        return term

    # -- elections ---------------------------------------------------------------------------

    def elected(self, partition: int, leader_epoch: int) -> LeadershipTerm | None:
        """A new term that now loads; None for an outdated election or one that changes nothing.

        Elections and resignations may come late. The highest leader epoch of each partition is
        kept, and what is older changes nothing (KAFKA-2841, KAFKA-10614).
        """
        if leader_epoch < self._epochs.get(partition, -1):
            return None
        self._epochs[partition] = leader_epoch
        term = self._terms.get(partition)
        if term is not None and term.load_state is LoadState.OWNED:
            term.leader_epoch = leader_epoch
            return None
        if term is not None and term.leader_epoch == leader_epoch:
            return None
        if term is not None:
            term.become(LoadState.OVER)
        term = self._terms[partition] = LeadershipTerm(partition, leader_epoch)
        return term

    def resigned(self, partition: int, leader_epoch: int | None) -> LeadershipTerm | None:
        """The term that is over now, its groups out of the registry; None when there is none.

        Without an epoch (the replica was deleted) the guard is passed and stays as it is.
        """
        if leader_epoch is not None:
            if leader_epoch < self._epochs.get(partition, -1):
                return None
            self._epochs[partition] = leader_epoch
        term = self._terms.pop(partition, None)
        if term is not None:
            for group_id in term.groups:
                del self.groups[group_id]
            term.become(LoadState.OVER)
        return term

    def is_current(self, term: LeadershipTerm) -> bool:
        """Whether this term still runs."""
        return self._terms.get(term.partition) is term

    def terms(self) -> list[LeadershipTerm]:
        """Every running term."""
        return list(self._terms.values())

    @property
    def is_loading(self) -> bool:
        """Whether some partition is not ready yet."""
        return any(term.load_state is LoadState.LOADING for term in self._terms.values())

    # -- groups ------------------------------------------------------------------------------

    def install(self, term: LeadershipTerm, groups: Iterable[Group]) -> None:
        """Own the partition of ``term`` with everything that was loaded for it, in one step.

        Group by group, a fetch would find a group without the offsets that are still to come.
        """
        assert self.is_current(term)
        assert not term.groups
        term.groups = {group.group_id: group for group in groups}
        self.groups.update(term.groups)
        term.become(LoadState.OWNED)

    def add(self, group: Group) -> None:
        """A group is made on an owned partition."""
        assert group.group_id not in self.groups
        group.term.groups[group.group_id] = group
        self.groups[group.group_id] = group
        damaged = group.term.damaged
        if damaged is not None:
            group.lacks_metadata = damaged.lacks_metadata(group.group_id)

    def evict(self, group: Group) -> None:
        """A group is dead: its id may be used anew."""
        if self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]
            del group.term.groups[group.group_id]

    def __iter__(self) -> Iterator[Group]:
        return iter(list(self.groups.values()))
