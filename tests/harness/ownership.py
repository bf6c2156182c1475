"""Who had which partition when, as the members themselves say: found is each that had two owners.

A member that is fenced learns of it late, when another may have its partitions already: what it had
counts until then only if it was not lost. Times are of one clock, in seconds.
Source: docs/spec/consumer-groups.md §2.1 (C12).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.client.topology import TopicPartition


@dataclass
class Tenure:
    """One member with one partition, from when it was told to when it gave it up."""

    owner: str
    partition: TopicPartition
    since: float
    until: float = float("inf")
    is_lost: bool = False


class Double(NamedTuple):
    """A partition that two members had at once."""

    partition: TopicPartition
    first: str
    second: str
    at: float


class Ownership:
    """All tenures of a group."""

    def __init__(self) -> None:
        self._tenures: list[Tenure] = []

    def took(self, owner: str, partitions: Iterable[TopicPartition], at: float) -> None:
        """``owner`` may read these from now on; what it has already is no second tenure."""
        held = self.held_by(owner)
        for place in sorted(set(partitions) - held):
            self._tenures.append(Tenure(owner, place, at))

    def gave(self, owner: str, partitions: Iterable[TopicPartition], at: float) -> None:
        """``owner`` reads these no more, and said so before anybody else may."""
        self._end(owner, partitions, at, is_lost=False)

    def lost(self, owner: str, partitions: Iterable[TopicPartition], at: float) -> None:
        """``owner`` was told that these are others' already, since when nobody can say."""
        self._end(owner, partitions, at, is_lost=True)

    def died(self, owner: str, at: float) -> None:
        """``owner`` was killed: all that it had is lost."""
        self.lost(owner, self.held_by(owner), at)

    def held_by(self, owner: str) -> set[TopicPartition]:
        """What ``owner`` has now."""
        return {each.partition for each in self._open() if each.owner == owner}

    def owners(self) -> dict[TopicPartition, str]:
        """Who has what now."""
        return {each.partition: each.owner for each in self._open()}

    def doubles(self) -> list[Double]:
        """Each partition that two members had at once, neither of whom had lost it."""
        found = []
        kept = [each for each in self._tenures if not each.is_lost]
        for index, first in enumerate(kept):
            for second in kept[index + 1 :]:
                is_same = first.partition == second.partition and first.owner != second.owner
                begin = max(first.since, second.since)
                if is_same and begin < min(first.until, second.until):
                    found.append(Double(first.partition, first.owner, second.owner, begin))
        return found

    def _open(self) -> list[Tenure]:
        return [each for each in self._tenures if each.until == float("inf")]

    def _end(
        self, owner: str, partitions: Iterable[TopicPartition], at: float, *, is_lost: bool
    ) -> None:
        chosen = set(partitions)
        for each in self._open():
            if each.owner == owner and each.partition in chosen:
                each.until, each.is_lost = at, is_lost
