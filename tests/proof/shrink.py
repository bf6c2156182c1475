"""Find the fewest faults with which a failing seed of a simulation still fails.

    python -m tests.proof.shrink commits 4711 [--plant NAME]
    python -m tests.proof.shrink commits 4711 --keep 1,4

First the shortest failing beginning of the history is sought, then faults are left out of it,
halves first, as long as it fails in the same way (delta debugging). ``--keep`` replays one choice.
Ends with 1 when the seed fails, 0 when it does not. Source: docs/spec/reliability.md §5.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from tests.proof.planted_bugs import planted_bug_named
from tests.sim.numbered_faults import only_faults

from .finders import FINDERS, found_by
from .planting import planted

SHRINKABLE: Final = (
    "replication",
    "power-cut-of-all",
    "commits",
    "transactions",
    "copies",
    "controllers",
)
"""The simulations whose faults are numbered."""

Fails = Callable[[Collection[int]], bool]
"""Whether a history with these faults alone fails as the whole one does."""


@dataclass(frozen=True)
class Shrunk:
    """The smallest failing history that was found."""

    failure: str
    kept: tuple[int, ...]
    """Numbers of the faults that are needed."""
    names: tuple[str, ...]
    """Of the kept faults."""
    count: int
    """How many faults the whole history had."""
    runs: int


def shrunk(simulation: str, seed: int) -> Shrunk | None:
    """The smallest failing history of a seed; None when the seed does not fail."""
    runs = 0

    def run(kept: Collection[int] | None) -> tuple[str | None, list[str]]:
        nonlocal runs
        runs += 1
        with only_faults(kept) as selection:
            return found_by(FINDERS[simulation], seed), selection.due

    whole, faults = run(None)
    if whole is None:
        return None

    def fails(kept: Collection[int]) -> bool:
        with contextlib.suppress(Exception):  # a crash is another failure than the one sought
            failure, _ = run(kept)
            return failure is not None and _kind(failure) == _kind(whole)
        return False

    kept = tuple(least(shortest_beginning(len(faults), fails), fails))
    _, names = run(kept)
    return Shrunk(whole, kept, tuple(names[number] for number in kept), len(faults), runs)


def shortest_beginning(count: int, fails: Fails) -> Sequence[int]:
    """The shortest failing beginning of ``count`` faults that bisection finds.

    A longer beginning may pass where a shorter one fails; then it is not the shortest of all.
    """
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if fails(range(middle)):
            high = middle
        else:
            low = middle + 1
    return range(high)


def least(kept: Sequence[int], fails: Fails) -> Sequence[int]:
    """A failing part of ``kept`` that passes as soon as any single fault is left out."""
    size = max(1, len(kept) // 2)
    while kept:
        for start in range(0, len(kept), size):
            rest = [*kept[:start], *kept[start + size :]]
            if fails(rest):
                kept = rest
                break
        else:
            if size == 1:
                break
            size = max(1, size // 2)
        size = min(size, max(1, len(kept)))
    return kept


def _kind(failure: str) -> str:
    """The error and where it was raised, without the figures of one history."""
    return failure.partition(":")[0]


def main(arguments: Sequence[str] | None = None) -> int:
    """1 when the seed fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof.shrink")
    parser.add_argument("simulation", choices=SHRINKABLE)
    parser.add_argument("seed", type=int)
    parser.add_argument("--plant", help="with this bug planted (tests/proof/planted_bugs.py)")
    parser.add_argument("--keep", help="replay the history with these faults alone: 1,4")
    options = parser.parse_args(arguments)
    logging.getLogger().addHandler(logging.NullHandler())  # else warnings go to stderr
    with planted(planted_bug_named(options.plant)) if options.plant else contextlib.nullcontext():
        if options.keep is not None:
            return _replay(options.simulation, options.seed, options.keep)
        found = shrunk(options.simulation, options.seed)
    if found is None:
        sys.stdout.write(f"{options.simulation} {options.seed} does not fail\n")
        return 0
    plant = f" --plant {options.plant}" if options.plant else ""
    kept = ",".join(map(str, found.kept))
    names = "".join(
        f"  {number} {name}\n" for number, name in zip(found.kept, found.names, strict=True)
    )
    again = f"{options.simulation} {options.seed}{plant} --keep={kept}"
    sys.stdout.write(
        f"{found.failure}\n"
        f"{len(found.kept)} of {found.count} faults suffice, found in {found.runs} runs\n{names}"
        f"again: python -m tests.proof.shrink {again}\n"
    )
    return 1


def _replay(simulation: str, seed: int, keep: str) -> int:
    kept = [int(number) for number in keep.split(",") if number]
    with only_faults(kept):
        failure = found_by(FINDERS[simulation], seed)
    sys.stdout.write(f"{failure or 'does not fail'}\n")
    return 0 if failure is None else 1


if __name__ == "__main__":
    sys.exit(main())
