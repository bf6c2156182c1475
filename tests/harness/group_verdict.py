"""What the members of one group read and committed, judged; pure.

At-least-once allows a record to be read again while nobody's commit beyond it was acknowledged,
and no record to be left out: a tenure begins where the group's committed offset is.
Source: docs/spec/consumer-groups.md §5 (C58), §12 (K5); docs/spec/reliability.md §3.2.
"""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from barnabas.client.topology import TopicPartition

from .ownership import Ownership


@dataclass(frozen=True, slots=True)
class Commit:
    """A member's commit of one partition; ``ended`` is infinite where nobody knows its outcome."""

    owner: str
    partition: TopicPartition
    offset: int
    began: float
    ended: float = math.inf


def read_again(ownership: Ownership, commits: Iterable[Commit]) -> list[str]:
    """Tenures that began below what was committed, and acknowledged, before them."""
    moments = {
        place: _highest([(one.ended, one.offset) for one in many if one.ended < math.inf])
        for place, many in _by_partition(commits).items()
    }
    return [
        f"{tenure.owner} has {place} since {tenure.since:.3f} and reads from {tenure.first}, "
        f"{floor} was committed before"
        for place, tenures in ownership.by_partition().items()
        for tenure in tenures
        if tenure.first is not None
        and tenure.first < (floor := _before(moments.get(place), tenure.since))
    ]


def passed_over(ownership: Ownership, commits: Iterable[Commit]) -> list[str]:
    """Tenures that began beyond anything that somebody had begun to commit."""
    moments = {
        place: _highest([(one.began, one.offset) for one in many])
        for place, many in _by_partition(commits).items()
    }
    return [
        f"{tenure.owner} reads {place} from {tenure.first} at {tenure.first_at:.3f}, "
        f"no more than {most} was committed by then"
        for place, tenures in ownership.by_partition().items()
        for tenure in tenures
        if tenure.first is not None
        and tenure.first > (most := _before(moments.get(place), tenure.first_at))
    ]


def _by_partition(commits: Iterable[Commit]) -> Mapping[TopicPartition, list[Commit]]:
    found: dict[TopicPartition, list[Commit]] = defaultdict(list)
    for one in commits:
        found[one.partition].append(one)
    return found


_Highest = tuple[Sequence[float], Sequence[int]]


def _highest(events: list[tuple[float, int]]) -> _Highest:
    """Moments, and the highest offset up to each of them."""
    events.sort()
    return [at for at, _ in events], list(accumulate((offset for _, offset in events), max))


def _before(known: _Highest | None, at: float) -> int:
    """The highest offset of the moments before this one; 0 without any."""
    if known is None:
        return 0
    place = bisect.bisect_left(known[0], at)
    return known[1][place - 1] if place else 0
