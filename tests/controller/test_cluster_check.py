"""A ZooKeeper that was replaced by an empty one, or by another cluster's, under running nodes."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Callable

import pytest

from barnabas.broker.lifecycle.cluster_id_check import ClusterIdCheck
from barnabas.broker.lifecycle.node_identity import (
    cluster_id,
    create_persistent_znodes,
    establish_identity,
)
from barnabas.client.zookeeper.interface import ZooKeeper
from barnabas.protocol.settings import ConfigError
from barnabas.protocol.zookeeper import znodes
from tests.controller.small_cluster import SmallCluster
from tests.sim.simulated_files import SimulatedFiles
from tests.sim.simulated_zookeeper import SimEnsemble

OURS = "ours-ours-ours-ours-ou"


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0)


async def written(zookeeper: ZooKeeper, cluster: str) -> None:
    record = znodes.ClusterId(cluster_id=cluster)
    await zookeeper.create(znodes.CLUSTER_ID, record.to_json(), parents=True)


async def test_an_empty_zookeeper_is_told_at_once_and_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    session = SimEnsemble(asyncio.get_running_loop()).connect()
    confirming = asyncio.create_task(ClusterIdCheck(session, OURS).confirm())
    await until(lambda: bool(caplog.records))
    [warning] = caplog.records
    assert warning.levelname == "WARNING"
    assert "missing znodes: /cluster/id, /brokers/ids, /brokers/topics" in warning.message
    assert "Bring back ZooKeeper's data" in warning.message
    assert not confirming.done()
    await written(session, OURS)
    async with asyncio.timeout(60):
        await confirming


async def test_another_cluster_in_zookeeper_is_named(caplog: pytest.LogCaptureFixture) -> None:
    session = SimEnsemble(asyncio.get_running_loop()).connect()
    await written(session, "theirs")
    confirming = asyncio.create_task(ClusterIdCheck(session, OURS).confirm())
    await until(lambda: "it holds cluster theirs" in caplog.text)
    confirming.cancel()


async def test_the_right_cluster_is_confirmed_without_a_word(
    caplog: pytest.LogCaptureFixture,
) -> None:
    session = SimEnsemble(asyncio.get_running_loop()).connect()
    await written(session, OURS)
    await ClusterIdCheck(session, OURS).confirm()
    assert not caplog.records


async def test_a_node_whose_data_name_a_cluster_founds_no_other_one(
    cluster: SmallCluster,
) -> None:
    """An empty ZooKeeper got a new id from it, which no node's data fitted."""
    files, directory = SimulatedFiles(lambda: 1), cluster.directory(1)
    loop = asyncio.get_running_loop()

    async def established(zookeeper: ZooKeeper) -> str:
        found = await establish_identity(
            zookeeper,
            files,
            [directory],
            configured_id=1,
            may_generate_id=False,
            reserved_id_max=1000,
            rng=random.Random(1),
        )
        return found.cluster_id

    before, after = SimEnsemble(loop).connect(), SimEnsemble(loop).connect()
    await create_persistent_znodes(before)
    ours = await established(before)
    with pytest.raises(ConfigError, match=f"belongs to cluster {ours}.*lost its data"):
        await established(after)
    assert await after.exists(znodes.CLUSTER_ID) is None
    assert await cluster_id(after, random.Random(2)) != ours


async def test_a_node_stands_for_no_election_before_it_is_registered_in_its_new_session(
    cluster: SmallCluster,
) -> None:
    """Watches fire when the session goes: in an empty ZooKeeper it would have been elected."""
    node = await cluster.start(1)
    await cluster.elected()
    node.controller._dependencies = dataclasses.replace(
        node.controller._dependencies, is_registered=lambda: node.registration.is_held
    )
    held = asyncio.Event()
    node.renewal._steps = [held.wait, *node.renewal._steps]  # type: ignore[list-item]
    node.zookeeper.expire()
    node.controller._controller_changed()
    await node.controller._campaign()
    assert await cluster.observer.exists(znodes.CONTROLLER) is None
    held.set()
    await cluster.elected()
