"""Every seed that failed once is replayed; regressions.txt has them, with the cause of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proof.finders import FINDERS

FILE = Path(__file__).with_name("regressions.txt")


def lines() -> list[tuple[str, int, str]]:
    """Simulation, seed and cause."""
    found = []
    for line in FILE.read_text().splitlines():
        if line and not line.startswith("#"):
            simulation, seed, cause = line.split(maxsplit=2)
            found.append((simulation, int(seed), cause))
    return found


@pytest.mark.parametrize(("simulation", "seed", "cause"), lines())
def test_a_seed_that_failed_once_passes(simulation: str, seed: int, cause: str) -> None:
    assert cause
    FINDERS[simulation](seed)
