"""Who may answer for what it leads: only nodes that have heard who leads.

Source: docs/spec/reliability.md §3.1 (a) and (e).
"""

from __future__ import annotations

import pytest

from barnabas.broker.controller.term import ControllerTerm
from tests.controller.small_cluster import SmallCluster


async def test_a_node_that_came_back_may_answer_only_after_it_was_told_what_it_leads(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As far as it knows it leads what it led before, and an election takes its time."""
    admitted: dict[int, int] = {}

    def informed(term: ControllerTerm, node: int, broker_epoch: int) -> None:
        """Note how many orders had been heard when a registration was first admitted."""
        del term
        if node == 2:
            admitted.setdefault(broker_epoch, len(cluster.orders))
            cluster.changed.set()

    monkeypatch.setattr(ControllerTerm, "informed", informed)
    await cluster.start(1)
    await cluster.start(2, ("broker",))
    await cluster.create("alone", {0: (2,)})
    await cluster.led("alone", 0, 2)
    former = cluster.nodes[2].registration.broker_epoch
    cluster.nodes[2].zookeeper.expire()
    before = cluster.nodes[2].hosted["alone", 0].leader_epoch
    await cluster.until(lambda: cluster.nodes[2].hosted["alone", 0].leader_epoch > before)
    await cluster.until(lambda: any(epoch > former for epoch in admitted))
    told = [
        at
        for at, one in enumerate(cluster.orders)
        if one.node == 2 and one.kind == "LeaderAndIsr" and one.request.broker_epoch > former
    ]
    assert admitted[max(admitted)] > told[0]
