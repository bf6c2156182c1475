"""What a history of commits and fetches of one offset must look like; pure.

Source: docs/spec/reliability.md §6 (zones after Gibbons and Korach 1997; session monotonicity).
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

NOTHING: Final = -1
"""What is fetched before anything was committed."""


@dataclass(frozen=True, slots=True)
class Write:
    """A commit: sent at ``began``, acknowledged at ``ended``, infinite when nobody knows."""

    value: int
    began: float
    ended: float = math.inf


@dataclass(frozen=True, slots=True)
class Read:
    """A fetch that was answered without an error."""

    value: int
    began: float
    ended: float
    who: str = ""


@dataclass(slots=True)
class History:
    """Everything that was seen of one group's offset of one partition."""

    writes: list[Write]
    reads: list[Read]


def falls(history: History) -> list[str]:
    """Where a reader was given less than what somebody had been told before it asked.

    For offsets that only grow. What was told: acknowledged commits and earlier fetches, over
    whichever connection.
    """
    told = [(write.ended, write.value) for write in history.writes if write.ended < math.inf]
    told += [(read.ended, read.value) for read in history.reads]
    told.sort()
    found: list[str] = []
    floor, position = NOTHING, 0
    for read in sorted(history.reads, key=lambda read: read.began):
        while position < len(told) and told[position][0] < read.began:
            floor = max(floor, told[position][1])
            position += 1
        if read.value < floor:
            found.append(f"{read} after {floor} was told")
    return found


def inventions(history: History) -> list[str]:
    """Fetches of what nobody had begun to commit."""
    began = {NOTHING: -math.inf} | {write.value: write.began for write in history.writes}
    return [
        f"{read} was committed by nobody before"
        for read in history.reads
        if began.get(read.value, math.inf) >= read.ended
    ]


@dataclass(frozen=True, slots=True)
class Zone:
    """From the first end to the last beginning of all operations on one value, if that is later.

    During a forward zone the value must have been the current one all the time; a backward zone
    is where all its operations overlap, so that one moment in it is enough.
    """

    value: int
    start: float
    end: float
    is_forward: bool


def contradictions(history: History) -> list[str]:
    """Why no order of the operations explains what was fetched; empty when one does.

    Every written value differs from all others. Commits of unknown outcome that nobody saw are
    taken as never done.
    """
    found = inventions(history)
    if found:
        return found
    zones = _zones(history)
    forward = sorted((zone for zone in zones if zone.is_forward), key=lambda zone: zone.start)
    found += [
        f"{earlier.value} and {later.value} were both current: {earlier} {later}"
        for earlier, later in itertools.pairwise(forward)
        if later.start < earlier.end
    ]
    starts = [zone.start for zone in forward]
    for zone in zones:
        place = bisect.bisect_left(starts, zone.start) - 1
        if not zone.is_forward and place >= 0 and zone.end < forward[place].end:
            found.append(f"{zone.value} while {forward[place].value} was: {zone} {forward[place]}")
    return found


def never_seen_again(history: History) -> list[str]:
    """The last acknowledged commit, when the last fetch is older than it; for growing offsets."""
    last = max((write.value for write in history.writes if write.ended < math.inf), default=-1)
    final = max(history.reads, key=lambda read: read.began, default=None)
    if final is None or final.value < last:
        return [f"{last} was acknowledged, the last fetch is {final}"]
    return []


def _zones(history: History) -> list[Zone]:
    initial = Write(NOTHING, -math.inf, -math.inf)
    begins: dict[int, float] = {}
    ends: dict[int, float] = {}
    seen = {read.value for read in history.reads}
    kept = [write for write in history.writes if write.ended < math.inf or write.value in seen]
    operations: Iterable[Sequence[Write] | Sequence[Read]] = ([initial], kept, history.reads)
    for many in operations:
        for one in many:
            begins[one.value] = max(begins.get(one.value, -math.inf), one.began)
            ends[one.value] = min(ends.get(one.value, math.inf), one.ended)
    return [
        Zone(value, min(begin, ends[value]), max(begin, ends[value]), ends[value] < begin)
        for value, begin in begins.items()
    ]
