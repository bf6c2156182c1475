"""Terms: which partitions of a state topic this node answers for, since when, and how far loaded.

The state topics are ``__consumer_offsets`` and ``__transaction_state``: the leader of a partition
is the coordinator of the groups, or transactional ids, that fall on it.
Source: docs/spec/coordinator.md §1.4, §3.4 and §3.5; docs/spec/transactions.md §3.2 and §3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, Generic, TypeVar

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.hashing import group_partition


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
"""What the groups or ids of a partition are answered; NONE lets a request pass.

A partition that could not be loaded is not served: a cache with a hole sends consumers back in
time, and forgets transactions that were decided.
"""


class LeadershipTerm:
    """One time of leading one partition of a state topic, from election to resignation.

    ``problem`` is what the groups or ids of this partition are answered.
    """

    __slots__ = (
        "attempts",
        "began",
        "leader_epoch",
        "load_seconds",
        "load_state",
        "loaded_end",
        "partition",
        "problem",
        "was_warm",
    )

    def __init__(self, partition: int, leader_epoch: int) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.attempts = 0
        self.began = 0.0
        """When its load began, by the loop's clock; 0: not yet."""
        self.load_seconds: float | None = None
        """What its last load took; None before it was loaded."""
        self.was_warm = False
        """A standby had read the log before: little was left to be loaded."""
        self.loaded_end = 0
        """Where the log ended that was loaded: records below are of earlier terms."""
        self.load_state = LoadState.LOADING
        self.problem = PROBLEMS[self.load_state]

    def become(self, load_state: LoadState) -> None:
        """Change the load state; a term that is over stays so."""
        assert self.load_state is not LoadState.OVER
        self.load_state = load_state
        self.problem = PROBLEMS[load_state]


T = TypeVar("T", bound=LeadershipTerm)


class TermRegistry(Generic[T]):
    """The terms of this node: of each partition at most one.

    What a term owns changes with it in one step, without an await between: a request never finds
    state of a partition that is led elsewhere, nor hears "nothing" of one that still loads.
    """

    def __init__(
        self,
        make_term: Callable[[int, int], T],
        may_lead: Callable[[int], bool] = lambda partition: False,
    ) -> None:
        """``make_term`` takes partition and leader epoch.

        ``may_lead`` says of a partition without a term whether one may be about to begin.
        """
        self._make_term = make_term
        self._may_lead = may_lead
        self._terms: dict[int, T] = {}
        self._epochs: dict[int, int] = {}
        self._partition_count = 0

    # -- ownership ---------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        """Whether the coordinator is started."""
        return self._partition_count > 0

    def start(self, partition_count: int) -> None:
        """Answer from now on; the count decides which key lives where, as long as the topic is
        the same one.
        """
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

    def partition_of(self, key: str) -> int:
        """The partition of a group or transactional id (docs/spec/coordinator.md §1.1).

        Only while started.
        """
        return group_partition(key, self._partition_count)

    def ownership_problem(self, key: str) -> ErrorCode:
        """What a group or transactional id is answered that is not owned; NONE when it is."""
        if not self._partition_count:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        partition = self.partition_of(key)
        term = self._terms.get(partition)
        if term is not None:
            return term.problem
        # A node that was just started does not know what it leads: unknown is not "somebody else".
        is_early = self._may_lead(partition)
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_early else ErrorCode.NOT_COORDINATOR

    def term_of(self, key: str) -> T:
        """The term that owns a group or transactional id; its partition is owned here."""
        term = self._terms[self.partition_of(key)]
        assert term.load_state is LoadState.OWNED
        return term

    # -- elections ---------------------------------------------------------------------------

    def elected(self, partition: int, leader_epoch: int) -> T | None:
        """A new term that now loads; None for an outdated election or one that changes nothing.

        Elections and resignations may come late. The highest leader epoch of each partition is
        kept, and what is older changes nothing (KAFKA-2841, KAFKA-10614). A leader that stays
        leader under a higher epoch serves on, without another load (KAFKA-15468).
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
        term = self._terms[partition] = self._make_term(partition, leader_epoch)
        return term

    def resigned(self, partition: int, leader_epoch: int | None) -> T | None:
        """The term that is over now; None when there is none.

        Without an epoch (the replica was deleted) the guard is passed and stays as it is
        (KAFKA-9235).
        """
        if leader_epoch is not None:
            if leader_epoch < self._epochs.get(partition, -1):
                return None
            self._epochs[partition] = leader_epoch
        term = self._terms.pop(partition, None)
        if term is not None:
            term.become(LoadState.OVER)
        return term

    def is_current(self, term: T) -> bool:
        """Whether this term still runs."""
        return self._terms.get(term.partition) is term

    def own(self, term: T) -> None:
        """Serve the partition of ``term`` from now on: everything is loaded and in its place."""
        assert self.is_current(term)
        term.become(LoadState.OWNED)

    def term_at(self, partition: int) -> T | None:
        """The running term of a partition."""
        return self._terms.get(partition)

    def terms(self) -> list[T]:
        """Every running term."""
        return list(self._terms.values())

    @property
    def is_loading(self) -> bool:
        """Whether some partition is not ready yet."""
        return any(term.load_state is LoadState.LOADING for term in self._terms.values())
