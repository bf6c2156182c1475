"""What the rows of table.py are made of: how much is done, where, and what one line says."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of everything."""

    rounds: int
    seconds: float
    """Of one window."""
    warm_up: float
    """Seconds of load on each server, before the first round."""
    megabytes: int


WHOLE = Plan(5, 3.0, 30.0, 300)
QUICK = Plan(3, 2.0, 12.0, 60)


@dataclass(frozen=True, slots=True)
class Row:
    """One line: what both did in each round, in ``unit``."""

    name: str
    unit: str
    ours: Sequence[float]
    theirs: Sequence[float]
    is_cost: bool = False
    """Less of it is better."""

    @property
    def ratios(self) -> list[float]:
        """Round by round, above 1 where Barnabas is ahead."""
        pairs = zip(self.ours, self.theirs, strict=True)
        return [their / our if self.is_cost else our / their for our, their in pairs]

    def line(self) -> str:
        """In Markdown."""
        ratios = self.ratios
        middle = f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        ours, theirs = (f"{median(values):.4g}" for values in (self.ours, self.theirs))
        return f"| {self.name} | {ours} | {theirs} | {self.unit} | {middle} |"


@dataclass(frozen=True, slots=True)
class Place:
    """Where both are run."""

    directory: Path
    zookeeper: str
    libs: Path | None

    def options(self, replication: int) -> argparse.Namespace:
        """What commit.py takes from its command line."""
        return argparse.Namespace(
            against="kafka", only=None, libs=self.libs, replication=replication
        )


def has_cores() -> bool:
    """Whether servers and clients can have cores of their own."""
    return (os.cpu_count() or 1) >= 2
