"""Plant each bug, and run the simulation that must find it, seed by seed, until it does.

    python -m tests.proof.mutation_testing [--seeds 50] [--only NAME] [--json FILE]

Prints a row for each plant; ends with 1 when one is not found, or when the seed that found it
shows the same without the plant. Source: docs/spec/reliability.md §5.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.proof.finders import FINDERS, found_by
from tests.proof.planted_bugs import PLANTED_BUGS, planted_bug_named
from tests.proof.planting import PlantedBug, planted


@dataclass(frozen=True)
class Found:
    """How one plant fared."""

    plant: str
    finder: str
    seeds: int | None
    """How many were needed; None when none of them found it."""
    seed: int | None
    told: str
    """What the finder said."""
    is_quiet: bool
    """The same seed finds nothing without the plant."""
    seconds: float

    @property
    def is_good(self) -> bool:
        """Found, and by nothing else than the plant."""
        return self.seeds is not None and self.is_quiet


def search(plant: PlantedBug, seeds: Sequence[int]) -> Found:
    """Try them in order."""
    finder, began = FINDERS[plant.finder], time.perf_counter()
    for count, seed in enumerate(seeds, start=1):
        with planted(plant):
            told = found_by(finder, seed)
        if told is not None:
            is_quiet = found_by(finder, seed) is None
            spent = time.perf_counter() - began
            return Found(plant.name, plant.finder, count, seed, told, is_quiet, round(spent, 1))
    spent = time.perf_counter() - began
    return Found(plant.name, plant.finder, None, None, "", True, round(spent, 1))


def summary(results: Sequence[Found]) -> dict[str, object]:
    """The figures of a run."""
    needed = [result.seeds for result in results if result.seeds is not None]
    return {
        "plants": len(results),
        "found": sum(result.is_good for result in results),
        "seeds_median": statistics.median(needed) if needed else None,
        "seeds_most": max(needed, default=None),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every plant was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof.mutation_testing")
    parser.add_argument("--seeds", type=int, default=50, help="try so many for each plant")
    parser.add_argument("--only", help="one plant")
    parser.add_argument("--json", type=Path, help="write the results there")
    asked = parser.parse_args(arguments)
    plants = (planted_bug_named(asked.only),) if asked.only else PLANTED_BUGS
    results = []
    for plant in plants:
        result = search(plant, range(1, asked.seeds + 1))
        results.append(result)
        seeds = "NOT FOUND" if result.seeds is None else f"{result.seeds}"
        noise = "" if result.is_quiet else " (ALSO WITHOUT THE PLANT)"
        told = result.told[:90]
        sys.stdout.write(
            f"{plant.name:28} {plant.finder:18} {seeds:>9} {result.seconds:6.1f} s  {told}{noise}\n"
        )
        sys.stdout.flush()
    figures = summary(results)
    sys.stdout.write(" ".join(f"{name}={value}" for name, value in figures.items()) + "\n")
    if asked.json is not None:
        rows = [asdict(result) for result in results]
        asked.json.write_text(json.dumps({**figures, "results": rows}, indent=1) + "\n")
    return 0 if all(result.is_good for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
