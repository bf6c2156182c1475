"""Try the promises, and write down what came of it.

    python -m tests.proof run --profile pr|night|week [--only NAME ...] [--into DIRECTORY]
    python -m tests.proof table
    python -m tests.proof list

``run`` writes a file for each experiment as soon as it ends, then the page; it ends with 1 when a
promise was broken or an experiment came to no result. Source: docs/spec/reliability.md §9.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.proof.experiment import PROFILES, Experiment, NoResultError, Profile
from tests.proof.experiments import EXPERIMENTS
from tests.proof.reliability_page import PAGE, drawings, page
from tests.proof.results import DIRECTORY, read_all, result_of


def tell(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - the command's output


def run(profile: Profile, wanted: Sequence[Experiment], directory: Path) -> int:
    """Every wanted experiment that the profile has; returns how many went wrong."""
    wrong = 0
    for experiment in wanted:
        if profile not in experiment.sizes:
            continue
        began = time.monotonic()
        try:
            counts = experiment.run(experiment.sizes[profile])
        except NoResultError as none:
            tell(f"{experiment.name}: no result\n{none}")
            wrong += 1
            continue
        result = result_of(experiment, profile, counts, time.monotonic() - began)
        result.write(directory)
        tell(
            f"{experiment.name}: {result.cases:,} {result.unit}, {result.violations} violations, "
            f"{result.skipped} skipped, {result.seconds:,.0f} s"
        )
        wrong += bool(result.violations)
    return wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit code is 1 when something went wrong."""
    parser = argparse.ArgumentParser(
        prog="tests.proof", description=(__doc__ or "").splitlines()[0]
    )
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help="try the promises")
    running.add_argument("--profile", choices=PROFILES, required=True)
    names = [experiment.name for experiment in EXPERIMENTS]
    running.add_argument("--only", choices=names, action="append", metavar="NAME")
    running.add_argument("--into", type=Path, default=DIRECTORY, help="where results are written")
    commands.add_parser("table", help="make docs/reliability.md from the results")
    commands.add_parser("list", help="the experiments and their sizes")
    given = parser.parse_args(arguments)
    if given.command == "list":
        for experiment in EXPERIMENTS:
            sizes = ", ".join(f"{profile} {size:,}" for profile, size in experiment.sizes.items())
            tell(f"{experiment.name}: {sizes} {experiment.unit}; {' '.join(experiment.promises)}")
        return 0
    wrong = 0
    if given.command == "run":
        wanted = [
            experiment
            for experiment in EXPERIMENTS
            if not given.only or experiment.name in given.only
        ]
        wrong = run(given.profile, wanted, given.into)
    if given.command == "table" or given.into == DIRECTORY:
        results = read_all()
        PAGE.write_text(page(results))
        for name, picture in drawings(results).items():
            (DIRECTORY / name).write_text(picture)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
