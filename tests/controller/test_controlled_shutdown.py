"""Nodes that stop in order, and how long anybody waits for nodes that do not answer."""

from __future__ import annotations

import asyncio

from barnabas.protocol.errors import ErrorCode
from tests.controller.small_cluster import SmallCluster

Outcome = tuple[ErrorCode, list[tuple[str, int]]]


async def prepared(cluster: SmallCluster, node_id: int) -> Outcome:
    """What the controller answers to a node that wants to stop."""
    answered: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    controller = (await cluster.elected()).controller
    epoch = cluster.nodes[node_id].registration.broker_epoch
    controller.prepare_shutdown(
        node_id, epoch, lambda code, left: answered.set_result((code, left))
    )
    return await answered


async def three(cluster: SmallCluster) -> None:
    for node_id in (1, 2, 3):
        await cluster.start(node_id)
    await cluster.create("t", {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)})
    for index, leader in enumerate((1, 2, 3)):
        await cluster.led("t", index, leader)


async def test_a_node_that_stops_leads_and_follows_nothing_when_it_is_answered(
    cluster: SmallCluster,
) -> None:
    """docs/spec/cluster.md §2.16 check C7: whoever takes over knows it before the old leader goes,
    -1 is never seen.
    """
    await three(cluster)
    seen: set[int] = set()
    for node in cluster.nodes.values():
        snapshot = node.cache

        def note(cache=snapshot) -> None:  # type: ignore[no-untyped-def]
            seen.update(info.leader for info in cache.snapshot.topics.get("t", {}).values())

        node.cache.on_change.append(note)
    stopping = (await cluster.elected()).id % 3 + 1
    assert await prepared(cluster, stopping) == (ErrorCode.NONE, [])
    for index in range(3):
        state = await cluster.state("t", index)
        assert stopping not in (state.leader, *state.isr)
        assert len(state.isr) == 2
        await cluster.led("t", index, state.leader)
    await cluster.bury(stopping)
    await cluster.until(
        lambda: all(stopping not in n.cache.snapshot.brokers for n in cluster.nodes.values())
    )
    assert -1 not in seen


async def test_the_controller_itself_hands_over_before_it_stops(cluster: SmallCluster) -> None:
    await three(cluster)
    ruler = (await cluster.elected()).id
    assert await prepared(cluster, ruler) == (ErrorCode.NONE, [])
    for index in range(3):
        state = await cluster.state("t", index)
        assert state.leader != ruler
        await cluster.led("t", index, state.leader)


async def test_what_nobody_else_can_lead_is_told_to_the_node_that_stops(
    cluster: SmallCluster,
) -> None:
    await three(cluster)
    ruler = (await cluster.elected()).id
    stopping = ruler % 3 + 1
    index = stopping - 1
    await cluster.set_in_sync("t", index, (stopping,))
    code, left = await prepared(cluster, stopping)
    assert (code, left) == (ErrorCode.NONE, [("t", index)])
    await cluster.set_in_sync("t", index, (stopping, ruler))
    assert await prepared(cluster, stopping) == (ErrorCode.NONE, [])


async def test_nobody_is_waited_for_twice_who_does_not_answer(cluster: SmallCluster) -> None:
    for node_id in (1, 2):
        await cluster.start(node_id)
    controller = (await cluster.elected()).controller
    assert await controller.heard(60)
    silent = cluster.nodes[
        next(node for node in (1, 2) if not cluster.nodes[node].controller.is_active)
    ]
    silent.listens.clear()
    await cluster.create("t", {0: (1, 2)})
    await cluster.until(lambda: any(order.kind == "LeaderAndIsr" for order in cluster.orders))
    assert not await controller.heard(0.01)
    async with asyncio.timeout(60):
        assert await controller.heard(3600)
    silent.listens.set()
    await cluster.until(lambda: ("t", 0) in silent.hosted)
    assert await controller.heard(60)


async def test_a_node_that_cannot_be_connected_to_delays_nothing(cluster: SmallCluster) -> None:
    for node_id in (1, 2):
        await cluster.start(node_id)
    controller = (await cluster.elected()).controller
    assert await controller.heard(60)
    dead = cluster.nodes[
        next(node for node in (1, 2) if not cluster.nodes[node].controller.is_active)
    ]
    dead.is_up = False
    await cluster.create("t", {0: (1, 2)})
    await cluster.until(lambda: any(order.kind == "LeaderAndIsr" for order in cluster.orders))
    async with asyncio.timeout(60):
        assert await controller.heard(3600)
    dead.is_up = True
    await cluster.until(lambda: ("t", 0) in dead.hosted)
