"""One seed gives one history: the same trace again, and under every PYTHONHASHSEED.

    python -m tests.proof.determinism --seeds 1:20 [--only NAME]

Prints simulation, seed and trace, a line each; ends with 1 where a second run differs from the
first. test_determinism.py compares what two processes print. Source: docs/spec/reliability.md §5.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Iterator, Sequence
from typing import Final

from tests.liveness.simulated_nodes import Faults
from tests.liveness.simulation import LivenessSimulation
from tests.sim.simulated_loop import SimulatedLoop

from .finders import FINDERS, LEASE_SECONDS

SIMULATIONS: Final = (
    "controllers",
    "commits",
    "transactions",
    "copies",
    "replication",
    "power-cut",
    "power-cut-of-all",
    "compacted-offsets",
    "twin",
    "failing-disk",
    "leases",
)
"""All that run on a seed of our own; models run on seeds of hypothesis."""


class Differs(AssertionError):  # noqa: N818 - what happened
    """Two runs of one seed were not the same."""


def trace_of(simulation: str, seed: int) -> str:
    """What happened in one run."""
    if simulation == "leases":
        leases = LivenessSimulation(seed, Faults())
        leases.run(LEASE_SECONDS)
        return f"{leases.answers}.{leases.moves}.{leases.takeovers}.{leases.newest_answered}"
    FINDERS[simulation](seed)
    return SimulatedLoop.last_trace


def traces(simulations: Sequence[str], seeds: Sequence[int]) -> Iterator[str]:
    """A line for each seed of each simulation, run twice. Raises Differs."""
    for simulation in simulations:
        for seed in seeds:
            first, second = (trace_of(simulation, seed) for _ in range(2))
            if first != second:
                raise Differs(f"{simulation} {seed}: {first} and then {second}")
            yield f"{simulation} {seed} {first}"


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every second run was as the first."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof.determinism")
    parser.add_argument("--seeds", default="1:2", help="FIRST:COUNT")
    parser.add_argument("--only", choices=SIMULATIONS, action="append", help="one simulation")
    asked = parser.parse_args(arguments)
    first, _, count = asked.seeds.partition(":")
    seeds = range(int(first), int(first) + int(count))
    logging.disable(logging.CRITICAL)
    try:
        for line in traces(asked.only or SIMULATIONS, seeds):
            sys.stdout.write(line + "\n")
    except Differs as difference:
        sys.stderr.write(f"{difference}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
