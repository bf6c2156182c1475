"""No partition has two owners, whoever is hurt; and a coordinator that gives two is found out.

Source: docs/spec/consumer-groups.md §2.1 (C12), §5 (C53 to C58); docs/spec/reliability.md §3 to §5.
"""

from __future__ import annotations

import pytest

from tests.chaos.ownership_campaign import Fault, run, schedule

pytestmark = pytest.mark.nightly

SEED = 1


def tell(line: str) -> None:
    print(line)  # noqa: T201 - pytest shows it when the test fails


@pytest.mark.parametrize("beacons", ["true", "false"])
def test_no_partition_has_two_owners_in_thirty_six_rounds(beacons: str) -> None:
    report = run(schedule(36, SEED), SEED, tell, settings={"beacon.enable": beacons})
    tell(str(report))
    assert report.findings == []
    assert report.faults.keys() == {fault.value for fault in Fault}
    assert report.totals["tenures lost"] > 0
    assert report.totals["commits"] > 1_000
    assert len(report.members) == 4, "two kinds of clients, two protocols"


@pytest.mark.parametrize(
    ("plant", "rounds"),
    [
        ("given-on-too-early", [Fault.MID_RECONCILIATION, Fault.NODE_TERM]),
        ("fenced-members-commit", [Fault.MEMBER_STOP] * 4),
    ],
)
def test_a_planted_double_assignment_is_found(plant: str, rounds: list[Fault]) -> None:
    report = run(rounds, SEED, tell, plant=plant)
    tell("\n".join(report.findings))
    assert any(" was both " in finding for finding in report.findings)
