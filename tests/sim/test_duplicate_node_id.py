"""Two nodes with one id: the second does not serve, and the first notices nothing of it.

Source: docs/spec/reliability.md §3 P10; docs/spec/cluster.md §1.2 and §1.11 check Z1.
"""

from __future__ import annotations

import asyncio

import pytest

from barnabas.protocol.zookeeper import znodes
from tests.harness.seeds import seeds
from tests.sim.cluster import NODES, Cluster, Machine, simulated_cluster
from tests.sim.simulated_network import OWNER

WITHIN_S = 60.0


def holder(cluster: Cluster, node: int) -> int:
    """The session that a node's registration is of."""
    found = cluster.ensemble.tree.nodes.get(znodes.broker_path(node))
    assert found is not None, f"nobody is registered as {node}"
    return found.owner


async def outcome(twin: Machine) -> BaseException | None:
    """Why the twin does not serve; None when it serves."""
    ready = asyncio.Event()
    token = OWNER.set(twin.name)
    try:
        running = asyncio.create_task(twin._run(ready))
    finally:
        OWNER.reset(token)
    waiting = asyncio.create_task(ready.wait())
    async with asyncio.timeout(WITHIN_S):
        await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if running.done():
        return running.exception()
    running.cancel()
    await asyncio.wait({running})
    return None


async def scenario(cluster: Cluster) -> None:
    rng = cluster.loop.random
    await cluster.start()
    node = rng.choice(NODES)
    first, twin = cluster.machines[node], Machine(cluster, node)
    twin.name = "twin"
    session = holder(cluster, node)
    await asyncio.sleep(rng.uniform(0, 3))
    if rng.random() < 0.5:
        cluster.loop.network.cut(first.name, twin.name)  # then only its session shows that it lives
    error = await outcome(twin)
    assert error is not None, f"two nodes serve as {node}"
    assert holder(cluster, node) == session, "the registration is another's"
    assert f"broker.id={node} is" in str(error)
    cluster.loop.network.heal(twin.name)
    await cluster.stop()


def simulate(seed: int) -> None:
    """One history."""
    with simulated_cluster(seed) as (runner, cluster):
        runner.run(scenario(cluster))


@pytest.mark.parametrize("seed", seeds(range(1, 6), range(6, 300)))
def test_a_second_node_with_an_id_that_is_taken_never_serves(seed: int) -> None:
    simulate(seed)
