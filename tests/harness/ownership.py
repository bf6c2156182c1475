"""Who had which partition when, as the members themselves say: found is each that had two owners.

**The rule.** A tenure begins when a member is told that a partition is its own, before it reads a
record of it. It ends when the member has given the partition up, before it tells the coordinator
so: until then nobody else may have it (KIP-848, reconciliation). Two tenures of one partition by
two members must not overlap.

A member that is fenced learns of it late, when another may have its partitions already; KIP-848
has it abandon them as soon as it is told, and until then only its commits are refused
(FENCED_MEMBER_EPOCH, STALE_MEMBER_EPOCH; in classic groups UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION).
So what was lost, and what a killed member had, counts up to the last moment at which the
coordinator is known to have taken it for the owner: when it sent the last commit for that partition
that was acknowledged. The same holds for what a member gave up in order that may have been fenced
without knowing: it was frozen since that commit, or took longer than it may.

Times are of one clock, in seconds. Source: docs/spec/consumer-groups.md §2.1 (C12), §5 (C58).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from barnabas.client.topology import TopicPartition

_NEVER: Final = float("-inf")
_ALWAYS: Final = float("inf")


@dataclass
class Tenure:
    """One member with one partition, from when it was told to when it gave it up."""

    owner: str
    partition: TopicPartition
    since: float
    until: float = _ALWAYS
    is_lost: bool = False
    """Fenced, killed, or perhaps fenced: it counts up to ``proved`` only."""
    proved: float = _NEVER
    """When the last of its commits was sent that the coordinator took."""
    first: int | None = None
    """The offset at which it began to read."""
    first_at: float = _ALWAYS
    following: int | None = None
    """The offset that it reads next."""

    @property
    def certain_until(self) -> float:
        """Up to here nobody else may have had the partition."""
        return self.proved if self.is_lost else self.until


class Double(NamedTuple):
    """A partition that two members had at once."""

    partition: TopicPartition
    first: str
    second: str
    at: float


class Ownership:
    """All tenures of a group."""

    def __init__(self) -> None:
        self.tenures: list[Tenure] = []
        self.leaps: list[str] = []
        """Records that were not the next one of their partition, within one tenure."""
        self.strays: list[str] = []
        """Records that a member was given of a partition that was not its own."""
        self._open: dict[str, dict[TopicPartition, Tenure]] = defaultdict(dict)
        self._doubted: dict[str, float] = {}

    def took(self, owner: str, partitions: Iterable[TopicPartition], at: float) -> None:
        """``owner`` may read these from now on; what it has already is no second tenure."""
        held = self._open[owner]
        for place in sorted(set(partitions) - held.keys()):
            held[place] = Tenure(owner, place, at)
            self.tenures.append(held[place])

    def gave(self, owner: str, partitions: Iterable[TopicPartition], at: float) -> None:
        """``owner`` reads these no more, and said so before anybody else may."""
        doubted = self._doubted.get(owner, _NEVER)
        for tenure in self._ended(owner, partitions, at):
            tenure.is_lost = owner in self._doubted and tenure.proved <= doubted

    def lost(self, owner: str, partitions: Iterable[TopicPartition], at: float) -> None:
        """``owner`` was told that these are others' already, since when nobody can say."""
        for tenure in self._ended(owner, partitions, at):
            tenure.is_lost = True

    def died(self, owner: str, at: float) -> None:
        """``owner`` was killed: all that it had is lost."""
        self.lost(owner, self.held_by(owner), at)

    def doubt(self, owner: str, since: float) -> None:
        """``owner`` may be fenced without knowing, unless a later commit of its succeeds."""
        self._doubted[owner] = max(since, self._doubted.get(owner, _NEVER))

    def proved(self, owner: str, partitions: Iterable[TopicPartition], sent: float) -> None:
        """The coordinator took commits of these that ``owner`` sent then."""
        held = self._open[owner]
        for place in set(partitions) & held.keys():
            held[place].proved = max(sent, held[place].proved)

    def read(self, owner: str, partition: TopicPartition, offset: int, at: float) -> None:
        """``owner`` was given a record."""
        tenure = self._open[owner].get(partition)
        if tenure is None:
            self.strays.append(f"{owner} read {partition} at {offset} without having it")
            return
        if tenure.first is None:
            tenure.first, tenure.first_at = offset, at
        elif offset != tenure.following:
            self.leaps.append(f"{owner} read {partition} at {offset}, not {tenure.following}")
        tenure.following = offset + 1

    def held_by(self, owner: str) -> set[TopicPartition]:
        """What ``owner`` has now."""
        return set(self._open[owner])

    def owners(self) -> dict[TopicPartition, str]:
        """Who has what now."""
        return {place: owner for owner, held in self._open.items() for place in held}

    def doubles(self) -> list[Double]:
        """Each partition that two members had at once, by the rule above."""
        return [
            Double(place, first.owner, second.owner, begin)
            for place, many in self.by_partition().items()
            for index, first in enumerate(many)
            for second in many[index + 1 :]
            if first.owner != second.owner
            and (begin := max(first.since, second.since))
            < min(first.certain_until, second.certain_until)
        ]

    def by_partition(self) -> Mapping[TopicPartition, list[Tenure]]:
        """The tenures of each partition, in the order in which they began."""
        found: dict[TopicPartition, list[Tenure]] = defaultdict(list)
        for tenure in sorted(self.tenures, key=lambda tenure: tenure.since):
            found[tenure.partition].append(tenure)
        return found

    def _ended(
        self, owner: str, partitions: Iterable[TopicPartition], at: float
    ) -> Iterable[Tenure]:
        held = self._open[owner]
        for place in set(partitions) & held.keys():
            held[place].until = at
            yield held.pop(place)
