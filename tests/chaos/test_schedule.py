"""A schedule is the same for the same seed, and has enough of every kind."""

from __future__ import annotations

from collections import Counter

from tests.chaos.schedule import NODE_FAULTS, ZOOKEEPER_FAULTS, Aim, Fault, schedule


def test_the_same_seed_gives_the_same_rounds() -> None:
    assert schedule(7, 20) == schedule(7, 20) != schedule(8, 20)


def test_half_of_sixty_rounds_hit_controller_and_coordinator_with_every_fault() -> None:
    rounds = schedule(1, 60)
    assert Counter(one.aim for one in rounds)[Aim.BOTH] == 30
    assert set(Counter(one.fault for one in rounds).values()) == {20}
    together = Counter(one.fault for one in rounds if one.aim is Aim.BOTH)
    assert all(together[fault] >= 5 for fault in NODE_FAULTS)
    assert all(1 <= one.seconds <= 10 for one in rounds if one.fault is Fault.STOP)


def test_faults_of_zookeeper_come_as_often_as_those_of_nodes_where_they_are_wanted() -> None:
    rounds = schedule(1, 60, faults=[*NODE_FAULTS, *ZOOKEEPER_FAULTS])
    assert Counter(one.fault for one in rounds) == dict.fromkeys(Fault, 10)
    assert {one.fault for one in rounds if one.aim is Aim.ENSEMBLE} == set(ZOOKEEPER_FAULTS)
    assert Counter(one.aim for one in rounds)[Aim.BOTH] == 15
