"""A small cluster for each test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from barnabas.broker.controller import controller
from barnabas.broker.handlers import create_partitions, topics
from barnabas.broker.settings.node_config import ControllerSettings
from tests.controller.settings_desk import Desk, open_desk
from tests.controller.small_cluster import SmallCluster
from tests.sim.simulated_zookeeper import SimEnsemble

PATIENT_S = 60.0


@pytest.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SmallCluster]:
    """Nothing happens in it by the clock alone, however long a test takes on a busy machine.

    Else a controller gives leadership back after 5 s and reads states anew after 10 s, and an
    answer that waits for the other nodes is given without them after 2 s.
    """
    monkeypatch.setattr(controller, "RECONCILIATION_S", 3600.0)
    for handler in (create_partitions, topics):
        monkeypatch.setattr(handler, "OTHERS_S", PATIENT_S)
    monkeypatch.setattr(topics, "NAME_FREE_S_MAX", PATIENT_S)
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[SmallCluster] = loop.create_future()
    over = asyncio.Event()

    async def hold() -> None:
        async with asyncio.TaskGroup() as tasks:
            settings = ControllerSettings(auto_leader_rebalance_enable=False)
            small = SmallCluster(tasks, SimEnsemble(loop), settings=settings)
            ready.set_result(small)
            await over.wait()
            small.end()

    holder = asyncio.create_task(hold())
    yield await ready
    over.set()
    await holder


@pytest.fixture
async def desk(cluster: SmallCluster) -> Desk:
    """Changes settings of topics, groups and nodes by request."""
    return await open_desk(cluster)
