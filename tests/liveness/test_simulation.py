"""No schedule of faults makes a node answer for what another leads (docs/beacons.md)."""

from __future__ import annotations

import pytest

from tests.harness.seeds import seeds

from .simulated_nodes import Faults, StaleAnswer
from .simulation import LivenessSimulation

SECONDS = 30.0


@pytest.mark.parametrize("seed", seeds(range(40)))
def test_no_node_answers_once_another_leads(seed: int) -> None:
    simulation = LivenessSimulation(seed, Faults())
    simulation.run(SECONDS)
    assert simulation.answers
    assert simulation.moves


def test_without_leases_the_same_schedules_show_stale_answers() -> None:
    found = 0
    for seed in range(20):
        try:
            LivenessSimulation(seed, Faults(), with_leases=False).run(SECONDS)
        except StaleAnswer:
            found += 1
    assert found
