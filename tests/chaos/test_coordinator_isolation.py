"""A coordinator without peers and ZooKeeper, but with clients, soon answers 16, never what is old.

Source: docs/spec/reliability.md §3.1 and §9.1 (rule 3), P4 and P8.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import Any

import pytest

from benchmarks.barnabas_node import ROOT
from tests.harness.needs import REMEDY

NO_ERROR, NOT_COORDINATOR = "0", "16"
COMMAND = ["unshare", "-n", sys.executable, "-m", "tests.chaos.coordinator_isolation"]


def can_cut() -> bool:
    """Packets can be filtered in a network namespace of our own."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "ip", "iptables"))):
        return False
    tried = subprocess.run(["unshare", "-n", "iptables", "-L"], capture_output=True, check=False)
    return tried.returncode == 0


pytestmark = pytest.mark.skipif(
    not can_cut(),
    reason=f"no packet filter of our own{REMEDY}apt-get install iproute2 iptables, and run as root",
)


def told_while_cut_off(*settings: str) -> dict[str, Any]:
    ended = subprocess.run(
        [*COMMAND, *settings], cwd=ROOT, capture_output=True, text=True, check=False, timeout=600
    )
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


@pytest.mark.parametrize("beacons", ["true", pytest.param("false", marks=pytest.mark.nightly)])
def test_a_coordinator_that_is_cut_off_answers_nothing_that_is_out_of_date(beacons: str) -> None:
    found = told_while_cut_off(f"beacon.enable={beacons}")
    assert found["stale"] == 0, found["some"]
    assert found["codes"][NOT_COORDINATOR] > 0


@pytest.mark.nightly
def test_without_leases_it_does_so_the_check_is_not_blind() -> None:
    assert told_while_cut_off("offsets.read.lease.ms=0")["stale"] > 0
