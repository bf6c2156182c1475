"""One seed gives one history, in any process (docs/spec/reliability.md §5)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .determinism import SIMULATIONS

ROOT = Path(__file__).parent.parent.parent
HASH_SEEDS = ("0", "7")
SMALL = ("controllers", "commits", "power-cut", "compacted-offsets", "leases")


def printed(*arguments: str) -> list[str]:
    """What processes with different hash seeds print, side by side."""
    command = [sys.executable, "-m", "tests.proof.determinism", *arguments]
    running = [
        subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for seed in HASH_SEEDS
    ]
    outputs = []
    for process in running:
        output, errors = process.communicate()
        assert process.returncode == 0, errors
        outputs.append(output)
    return outputs


def test_a_seed_gives_one_history_whatever_the_hash_seed() -> None:
    few = [f"--only={simulation}" for simulation in SMALL]
    first, second = printed(*few, "--seeds", "2:1")
    assert len(first.splitlines()) == len(SMALL)
    assert first == second


@pytest.mark.nightly
@pytest.mark.parametrize("simulation", SIMULATIONS)
def test_twenty_seeds_give_one_history_each_whatever_the_hash_seed(simulation: str) -> None:
    first, second = printed("--only", simulation, "--seeds", "1:20")
    assert len(first.splitlines()) == 20
    assert first == second
