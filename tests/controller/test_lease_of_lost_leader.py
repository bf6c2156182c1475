"""A leader that is gone may still answer under its lease, so nobody is elected in its place yet."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from barnabas.broker.controller.components import ControllerComponents
from barnabas.broker.controller.leader_election import NO_LEADER
from barnabas.protocol.zookeeper import znodes

from .small_cluster import SmallCluster

Asked = Callable[[SmallCluster, ControllerComponents], Awaitable[Any]]


async def move(_: SmallCluster, components: ControllerComponents) -> None:
    await components.reassignments.alter({("t", 0): (3, 1)})


async def end_of_a_move(_: SmallCluster, components: ControllerComponents) -> None:
    await components.reassignments.alter({("t", 0): (3,)})


async def preferred(_: SmallCluster, components: ControllerComponents) -> None:
    await components.elections.elect([("t", 0)], is_unclean=False)


async def unclean(_: SmallCluster, components: ControllerComponents) -> None:
    await components.elections.elect([("t", 0)], is_unclean=True)


async def preferred_for_a_tool(cluster: SmallCluster, components: ControllerComponents) -> None:
    request = znodes.PreferredElection(partitions=(znodes.TopicPartition("t", 0),))
    await cluster.observer.create(znodes.PREFERRED_ELECTION, request.to_json())
    await components.preferred_leaders.process_admin_znode()


async def balance(_: SmallCluster, components: ControllerComponents) -> None:
    await components.preferred_leaders.balance()


@pytest.mark.parametrize(
    "asked", [move, end_of_a_move, preferred, unclean, preferred_for_a_tool, balance]
)
async def test_nobody_is_elected_for_any_reason_while_a_lease_of_the_lost_leader_may_last(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch, asked: Asked
) -> None:
    """Which it may just after a takeover: a predecessor may have granted it."""
    ruler = await cluster.start(1)
    await cluster.start(2, ("broker",))
    await cluster.create("t", {0: (3, 2)})
    await cluster.led("t", 0, 2)
    new = await cluster.start(3, ("broker",))
    await cluster.until(lambda: ("t", 0) in new.hosted)
    await cluster.set_in_sync("t", 0, (3, 2))
    components = ruler.controller._components
    assert components is not None
    leases = {2, NO_LEADER}
    monkeypatch.setattr(components.term.partitions, "_may_answer", leases.__contains__)
    await cluster.bury(2)
    await cluster.led("t", 0, NO_LEADER)

    await ruler.controller.ask("elect", lambda components: asked(cluster, components))
    assert (await cluster.state("t", 0)).leader == NO_LEADER
    leases.clear()
    await ruler.controller.ask("leases are over", lambda parts: parts.term.elect_missing_leaders())
    await cluster.led("t", 0, 3)
