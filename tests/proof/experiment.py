"""An experiment: promises, how they are tried, how much of it a profile does, what it counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Profile = Literal["pr", "night", "week"]
PROFILES: Final[tuple[Profile, ...]] = ("pr", "night", "week")


@dataclass(frozen=True, slots=True)
class Counts:
    """What an experiment came to."""

    cases: int
    faults: Mapping[str, int] = field(default_factory=dict)
    """How often each was injected, where the experiment counts them."""
    violations: int = 0
    skipped: int = 0
    """Cases that could not run here; they count for nothing."""
    figures: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Experiment:
    """``sizes`` are given to ``run``; a profile without one leaves the experiment out."""

    name: str
    promises: tuple[str, ...]
    how: str
    unit: str
    """What a case is."""
    sizes: Mapping[Profile, int]
    run: Callable[[int], Counts]


class NoResultError(Exception):
    """An experiment that came to no result; the message has the end of what it printed."""
