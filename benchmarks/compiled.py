"""What compiling the hot modules brings: the hot path interpreted and compiled, in turns.

    python -m benchmarks.compiled [--turns N] [--rounds N]

Builds a compiled wheel unless BARNABAS_COMPILED_WHEEL names one, and runs
``benchmarks/hot_path.py`` with it and with the sources of this checkout alternately, ``--turns``
times each: what else the machine does hits both alike. Of every cell the least cost of each counts.
docs/decisions/0012 has the figures.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.compiled_environment import ROOT, build_compiled_wheel, install, lay_out

_CELL: Final = re.compile(r"^(?P<cell>.+?) {2,}(?P<us>[0-9.]+) us", re.MULTILINE)
_STAGES: Final = re.compile(r"^(?P<cell>.+? at .+?): (?P<stages>(?:\w+ [0-9.]+ +)+)", re.MULTILINE)
_STAGE: Final = re.compile(r"(\w+) ([0-9.]+)")
_LEAST_US: Final = 0.05
"""Below that a cost is nothing but rounding."""
_RUN_S: Final = 900

Costs = dict[str, float]
"""Microseconds by cell and stage."""


def costs(text: str) -> Costs:
    """What hot_path.py has printed: a cost a request or a partition for each cell and stage."""
    found = {match["cell"]: float(match["us"]) for match in _CELL.finditer(text)}
    for line in _STAGES.finditer(text):
        for stage, cost in _STAGE.findall(line["stages"]):
            found[f"{line['cell']}: {stage}"] = float(cost)
    return found


def table(interpreted: Costs, compiled: Costs) -> list[str]:
    """A line a cell with both costs and how much less the compiled one is."""
    lines = [f"{'us':42}{'interpreted':>12}{'compiled':>10}{'ratio':>8}"]
    for cell, before in interpreted.items():
        after = compiled[cell]
        if min(before, after) >= _LEAST_US:
            lines.append(f"{cell:42}{before:12.2f}{after:10.2f}{before / after:8.2f}")
    return lines


def measured(python: Path, place: Path, rounds: int) -> Costs:
    """One run of hot_path.py in ``place``."""
    command = [str(python), "-m", "benchmarks.hot_path", "--rounds", str(rounds)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=place, env=environment, check=True, capture_output=True, text=True,
        timeout=_RUN_S,
    )  # fmt: skip
    return costs(done.stdout)


def least(runs: Sequence[Costs]) -> Costs:
    """The least cost of each cell."""
    return {cell: min(run[cell] for run in runs) for cell in runs[0]}


def compare(wheel: Path, home: Path, turns: int, rounds: int) -> list[str]:
    """The table, of as many runs of each kind as there are turns."""
    compiled = install(wheel, home / "venv")
    lay_out(home / "place", compiled)
    sides = ((Path(sys.executable), ROOT), (compiled, home / "place"))
    runs: tuple[list[Costs], list[Costs]] = ([], [])
    for _ in range(turns):
        for side, found in zip(sides, runs, strict=True):
            found.append(measured(*side, rounds))
    return table(least(runs[0]), least(runs[1]))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    with TemporaryDirectory(prefix="barnabas-compiled-") as directory:
        home = Path(directory)
        (home / "wheels").mkdir()
        wheel = build_compiled_wheel(home / "wheels")
        print("\n".join(compare(wheel, home, options.turns, options.rounds)))
        print(f"load {os.getloadavg()[0]:.1f}, Python {sys.version.partition(' ')[0]}")


if __name__ == "__main__":
    main()
