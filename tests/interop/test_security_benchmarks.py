"""The benchmarks of security and fairness run, in a second or two: no figure is looked at.

What they would hide otherwise: an answer that is wrong, a login that fails, a flood that ends.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from benchmarks import fairness, overload, security
from benchmarks.produce_fetch import BulkClient
from benchmarks.tls_stores import make_stores

WINDOW_S = 0.3


@pytest.mark.nightly
def test_every_row_of_security_is_filled_with_right_answers(tmp_path: Path) -> None:
    plan = security.Plan(rounds=1, seconds=WINDOW_S, warm_up=WINDOW_S, megabytes=1)
    with ExitStack() as stack:
        zookeeper = stack.enter_context(EmbeddedZooKeeper(tmp_path / "zookeeper"))
        stores = make_stores(tmp_path / "tls")
        running = list(security.nodes(["Barnabas"], None, tmp_path, zookeeper.hosts, stores))
        for _, node in running:
            stack.enter_context(node.server)
        commits = stack.enter_context(security.Commits(None))
        work = security.Measuring(commits, stack.enter_context(BulkClient(None)), plan)
        security.measure(running, work, plan)
    shapes, protocols = len(security.SHAPES), len(security.ENCRYPTED)
    assert len(work.rows) == protocols * (shapes + 2) + 2 * shapes
    assert all(row.rounds["Barnabas"][0] > 0 for row in work.rows.values())
    assert len(list(security.costs(work.rows, ["Barnabas"]))) == 2 * (shapes + 2) + shapes


@pytest.mark.nightly
def test_others_are_served_beside_a_flood_with_and_without_quotas(tmp_path: Path) -> None:
    with (
        EmbeddedZooKeeper(tmp_path / "zookeeper") as zookeeper,
        overload.barnabas(1, tmp_path, zookeeper.hosts, fairness.SETTINGS) as system,
    ):
        system.prepare()
        (found,) = fairness.measure(system, ["metadata"], 1, WINDOW_S)
    assert found.alone[0].per_second > 0
    assert found.unbounded[0].per_second > 0
    assert found.bounded[0].per_second > 0
    assert "| metadata |" in fairness.table([found])
