"""No schedule of faults makes a node answer for what another leads, with voters either.

docs/beacons.md, points 11 to 16; test_schedules.py plays the nine schedules one by one.
"""

from __future__ import annotations

import pytest

from barnabas.broker.liveness.voter_set import VoterSet
from tests.harness.seeds import seeds

from .broken_rules import BROKEN_RULES
from .simulated_nodes import Faults, StaleAnswer
from .voting_simulation import VotingSimulation

SECONDS = 30.0
ALL = Faults(stalls=True, restarts=True, coups=0.002)
RESTLESS = Faults(stalls=True, restarts=True, coups=0.02, whims_s=0.6)
SKEWED = Faults(drift=0.04, stalls=True, restarts=True, coups=0.01)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("seed", range(6))
def test_no_node_answers_once_another_leads(seed: int, count: int) -> None:
    simulation = VotingSimulation(seed, ALL, count=count)
    simulation.run(SECONDS)
    assert simulation.answers
    assert simulation.changes
    assert simulation.restarts
    assert simulation.takeovers


@pytest.mark.parametrize("faults", [ALL, RESTLESS, SKEWED], ids=["all", "restless", "skewed"])
@pytest.mark.parametrize("seed", seeds((), range(400)))
def test_no_node_answers_once_another_leads_whatever_happens(seed: int, faults: Faults) -> None:
    VotingSimulation(seed, faults, count=1 + seed % 6).run(SECONDS)


@pytest.mark.parametrize("seed", range(5))
def test_with_nodes_of_the_first_form_among_them_that_holds(seed: int) -> None:
    """None of them starts while another node of its id lives: see "Old and new nodes together"."""
    faults = Faults(stalls=True, coups=0.002)
    simulation = VotingSimulation(seed, faults, count=4, old=frozenset({2, 4}))
    simulation.run(SECONDS)
    assert simulation.answers
    assert not simulation.znode.voters.voters


def test_a_lone_voter_goes_on_through_a_stall_shorter_than_its_session() -> None:
    simulation = VotingSimulation(1, Faults(cuts=False, pauses=False), count=1)
    simulation.nodes[1].session = 3.0
    simulation.run(10.0)
    assert simulation.znode.voters.voters == {1}
    simulation.stalled_until = simulation.now + 2.0
    begun, before = simulation.now, simulation.answers
    while simulation.now < begun + 1.9:
        simulation.run(simulation.now + 0.1)
        assert simulation.answers > before
        before = simulation.answers


@pytest.mark.parametrize(
    ("rule", "faults", "seeds"),
    [
        ("no release", ALL, range(40)),
        ("no promise", RESTLESS, range(60)),
        ("no session bound", ALL, range(40)),
        ("no joint majority", RESTLESS, range(60)),
        ("no T with two voters", ALL, range(60)),
        ("unlisted controller counts", ALL, range(60)),
    ],
)
def test_with_a_rule_left_out_the_same_world_shows_stale_answers(
    rule: str, faults: Faults, seeds: range
) -> None:
    """Else it would be blind; rules that it seldom needs are left out in test_schedules.py."""
    assert any(is_stale(rule, faults, seed) for seed in seeds)


def is_stale(rule: str, faults: Faults, seed: int) -> bool:
    """A node answered what was out of date."""
    count = 2 if rule == "no T with two voters" else 3 + seed % 4
    first = VoterSet(frozenset({1, 2}), 3.0) if count == 2 else None
    simulation = VotingSimulation(seed, faults, count=count, parts=BROKEN_RULES[rule], first=first)
    try:
        simulation.run(SECONDS)
    except StaleAnswer:
        return True
    return False
