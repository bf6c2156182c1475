"""What a node tells the controller of its disks, also when ZooKeeper is away just then."""

from __future__ import annotations

import asyncio

from barnabas.broker.lifecycle.log_dir_events import LogDirEvents
from barnabas.broker.lifecycle.node_identity import create_persistent_znodes
from barnabas.client.zookeeper.interface import ZooKeeper
from barnabas.protocol.zookeeper import znodes
from tests.sim.simulated_zookeeper import SimEnsemble


async def notes(zookeeper: ZooKeeper, count: int) -> list[int]:
    """The nodes that the notes are of, once there are so many."""
    changed = asyncio.Event()
    async with asyncio.timeout(60):
        while len(names := await zookeeper.children(znodes.LOG_DIR_EVENTS, changed.set)) < count:
            await changed.wait()
            changed.clear()
    payloads = [await zookeeper.get(f"{znodes.LOG_DIR_EVENTS}/{name}") for name in names]
    return [znodes.LogDirEvent.from_json(data).broker for data, _stat in payloads]


async def test_a_note_is_written_for_each_change_and_after_an_outage() -> None:
    ensemble = SimEnsemble(asyncio.get_running_loop())
    observer, zookeeper = ensemble.connect(), ensemble.connect()
    await create_persistent_znodes(observer)
    telling = LogDirEvents(zookeeper, 7)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(telling.run())
        telling.notify()
        telling.notify()
        assert await notes(observer, 1) == [7]
        zookeeper.suspend()
        telling.notify()
        zookeeper.resume()
        assert await notes(observer, 2) == [7, 7]
        running.cancel()
