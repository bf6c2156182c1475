"""A small cluster for each test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.controller.settings_desk import Desk, open_desk
from tests.controller.small_cluster import SmallCluster
from tests.sim.simulated_zookeeper import SimEnsemble


@pytest.fixture
async def cluster() -> AsyncIterator[SmallCluster]:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[SmallCluster] = loop.create_future()
    over = asyncio.Event()

    async def hold() -> None:
        async with asyncio.TaskGroup() as tasks:
            small = SmallCluster(tasks, SimEnsemble(loop))
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
