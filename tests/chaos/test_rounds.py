"""Nodes are killed, paused and stopped under load, and nothing that was acknowledged is lost."""

from __future__ import annotations

import logging

import pytest

from tests.chaos.campaign import run
from tests.chaos.schedule import NODE_FAULTS, ZOOKEEPER_FAULTS, Fault

SEED = 1


@pytest.fixture(autouse=True)
def _quiet_client() -> None:
    """What aiokafka says of lost connections is no news here."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)


def tell(line: str) -> None:
    print(line)  # noqa: T201 - pytest shows it when the test fails


def test_nothing_acknowledged_is_lost_when_whoever_rules_is_hurt_again_and_again() -> None:
    report = run(4, SEED, tell, longest_pause_s=2.0)
    assert report.findings == []
    assert sum(one.is_both for one in report.outcomes) >= 2


@pytest.mark.nightly
@pytest.mark.parametrize("beacons", ["true", "false"])
def test_nothing_acknowledged_is_lost_in_sixty_rounds(beacons: str) -> None:
    report = run(60, SEED, tell, settings={"beacon.enable": beacons})
    tell(report.summary())
    assert report.findings == []
    assert sum(one.is_both for one in report.outcomes) >= 20
    assert {one.planned.fault for one in report.outcomes} == set(NODE_FAULTS)


def test_nothing_acknowledged_is_lost_when_a_zookeeper_server_is_killed_under_load() -> None:
    report = run(1, SEED, tell, faults=[Fault.SERVER])
    assert report.findings == []
    assert [one.planned.fault for one in report.outcomes] == [Fault.SERVER]


@pytest.mark.nightly
@pytest.mark.parametrize("beacons", ["true", "false"])
def test_nothing_acknowledged_is_lost_when_nodes_and_zookeeper_are_hurt_in_turn(
    beacons: str,
) -> None:
    faults = [*NODE_FAULTS, *ZOOKEEPER_FAULTS]
    report = run(30, SEED, tell, settings={"beacon.enable": beacons}, faults=faults)
    tell(report.summary())
    assert report.findings == []
    assert {one.planned.fault for one in report.outcomes} == set(faults)
