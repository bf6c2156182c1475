"""Nodes of an earlier release and of this one are one cluster, in both directions."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.upgrade.releases import BEFORE_VOTERS, history_or_skip, path_of
from tests.upgrade.rolling import roll
from tests.upgrade.transactional_traffic import CHECKOUT, TransactionalTraffic

WAITS = "a transaction cannot be ended, its readers wait"
"""What a coordinator says of a partition that an older node leads."""


def tell(line: str) -> None:
    print(line)  # noqa: T201 - pytest shows it when the test fails


@pytest.mark.nightly
def test_a_rolling_upgrade_and_downgrade_under_load_loses_nothing() -> None:
    history_or_skip(BEFORE_VOTERS)
    report = roll(tell)
    assert report.findings == []
    assert len(report.moves) == 6
    assert sum(is_controller for _, _, is_controller, _ in report.moves) >= 2


@pytest.mark.nightly
def test_transactions_work_when_the_last_older_node_is_gone_and_nobody_notices_before() -> None:
    """The release before has no transactions: what it leads cannot be told of their ends."""
    history_or_skip(BEFORE_VOTERS)
    traffic = TransactionalTraffic()
    report = roll(tell, moved=traffic.moved)
    tell(f"{traffic.codes} {traffic.outcomes}")
    assert traffic.findings == []
    assert traffic.is_whole == 1
    assert traffic.codes[CHECKOUT] == {"NONE"}
    assert traffic.codes[BEFORE_VOTERS.version] == {"TRANSACTIONAL_ID_AUTHORIZATION_FAILED"}
    assert [line for line in report.findings if WAITS not in line] == []


@pytest.mark.nightly
def test_the_earlier_release_is_what_its_nodes_run() -> None:
    history_or_skip(BEFORE_VOTERS)
    folder = path_of(BEFORE_VOTERS)
    found = subprocess.run(
        [sys.executable, "-P", "-c", "import barnabas.broker as it; print(it.__file__)"],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.startswith(f"{folder}/")
