"""Run tests against a compiled wheel: ``python -m tests.compiled [--workers N] [TEST ...]``.

Builds the wheel unless BARNABAS_COMPILED_WHEEL names one, installs it in an environment of its own,
and runs the unit, model and property tests of tests/quick.txt there and the client tests of
CLIENT_TESTS, or the tests that are named. Ends with pytest's exit code. docs/contributing.md says
when this is run.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.compiled_environment import ROOT, build_compiled_wheel, install, lay_out

CLIENT_TESTS: Final = (
    "tests/interop/test_clients.py",
    "tests/interop/test_own_client.py",
    "tests/interop/test_kcat.py",
    "tests/interop/test_go_clients.py",
    "tests/interop/test_request_order.py",
    "tests/interop/test_kill_and_restart.py",
    "tests/broker/test_start.py",
    "tests/sim/test_daemon.py",
    "tests/sim/test_replicated_commits.py",
)
"""Real clients and nodes, and the simulation of a cluster: a few files of each."""


def selected() -> list[str]:
    """The arguments with which pytest runs what is not named on the command line."""
    lines = (ROOT / "tests" / "quick.txt").read_text().splitlines()
    quick = [line for line in lines if line.startswith("tests")]
    ignored = [f"--ignore={line[1:]}" for line in lines if line.startswith("!")]
    return [*quick, *CLIENT_TESTS, *ignored]


def run(python: Path, place: Path, words: Sequence[str]) -> int:
    """Run pytest in ``place``, with the wheel that ``python`` has; its exit code."""
    said = subprocess.run(
        [str(python), "-m", "barnabas.console", "--version"],
        cwd=place, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    print(said, end="", flush=True)  # noqa: T201 - the command's output
    if "(compiled," not in said:
        return 1
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]
    return subprocess.run(command, cwd=place, env=environment, check=False).returncode


def main() -> int:
    """Build, install, run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--workers", default="1", help="as pytest's -n")
    options, words = parser.parse_known_args()
    with TemporaryDirectory(prefix="barnabas-compiled-") as directory:
        home = Path(directory)
        (home / "wheels").mkdir()
        python = install(build_compiled_wheel(home / "wheels"), home / "venv")
        lay_out(home / "place", python)
        spread = ["-n", options.workers, "--dist", "loadfile"] if options.workers != "1" else []
        return run(python, home / "place", [*spread, *(words or selected())])


if __name__ == "__main__":
    sys.exit(main())
