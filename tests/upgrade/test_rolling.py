"""Nodes of an earlier release and of this one are one cluster, in both directions."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.upgrade.releases import BEFORE_VOTERS, history_or_skip, path_of
from tests.upgrade.rolling import roll


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
