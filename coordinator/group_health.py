"""Whether a group is healthy, from its latest commits: Burrow's rules, without thresholds.

Source: docs/spec/users.md §3. Pure: who calls brings the commits, the log's ends and the time. The
console, a node's metrics and the jobs on Spark share it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import Final, NamedTuple

from .lag import lag_of


class Verdict(IntEnum):
    """What is said of a partition, or of a group; the numbers are Burrow's."""

    NOTFOUND = 0
    """Nothing is committed."""
    OK = 1
    WARN = 2
    """It reads, but its lag only grows."""
    ERR = 3
    """Of a group: some partition is stopped, stalled or rewound."""
    STOP = 4
    """It commits no longer."""
    STALL = 5
    """It commits, but always the same offset."""
    REWIND = 6
    """It went back and has not caught up again."""


class CommitSample(NamedTuple):
    """One commit: the offset, when it was committed, and the lag it had then."""

    offset: int
    timestamp_ms: int
    lag: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthRules:
    """How much is looked at, and how much is forgiven; the defaults are Burrow's."""

    commits: int = 10
    """The window: so many of the latest commits."""
    completeness_min: float = 0.0
    """The share of the window that must be there before anything but OK is said."""
    allowed_lag: int = 0


BURROW: Final = HealthRules()
END_EVERY_MS: Final = 10_000
"""How far apart the ends of a log are looked at that :func:`evaluate` is given."""


def evaluate(
    window: Sequence[tuple[int, int, int]],
    *,
    end: int,
    now_ms: int,
    earlier_ends: Iterable[int] = (),
    log_start: int = 0,
    rules: HealthRules = BURROW,
) -> Verdict:
    """The verdict on one partition.

    ``window``: the latest commits, oldest first, each as :class:`CommitSample`; more than the
    rules ask for may be given. ``end``: where the log ends now; ``earlier_ends``: where it ended
    lately, in any order (Burrow keeps ``commits`` of them, END_EVERY_MS apart; the earliest alone
    does).
    """
    samples = [CommitSample(*sample) for sample in window[-rules.commits :]]
    if not samples:
        return Verdict.NOTFOUND
    last = samples[-1]
    if len(samples) < rules.completeness_min * rules.commits:
        return Verdict.OK
    if lag_of(last.offset, log_start, end).records <= rules.allowed_lag:
        return Verdict.OK
    if _has_stopped(samples, now_ms) and all(earlier > last.offset for earlier in earlier_ends):
        return Verdict.STOP
    if _is_rewound(samples):
        return Verdict.REWIND
    if any(sample.lag <= rules.allowed_lag for sample in samples):
        return Verdict.OK
    if all(sample.offset == last.offset for sample in samples):
        return Verdict.STALL
    if all(after.lag >= before.lag for before, after in pairwise(samples)):
        return Verdict.WARN
    return Verdict.OK


def evaluate_group(partitions: Iterable[Verdict]) -> Verdict:
    """The worst verdict of a group's partitions; whatever is worse than WARN is ERR."""
    return min(max(partitions, default=Verdict.NOTFOUND), Verdict.ERR)


def _has_stopped(samples: Sequence[CommitSample], now_ms: int) -> bool:
    """Silent for longer than the whole window took."""
    first, last = samples[0].timestamp_ms, samples[-1].timestamp_ms
    return now_ms - last > last - first


def _is_rewound(samples: Sequence[CommitSample]) -> bool:
    """Some commit went back, and none since has reached what was there before."""
    reached = -1
    for later, earlier in pairwise(reversed(samples)):
        reached = max(reached, later.offset)
        if reached < earlier.offset:
            return True
    return False
