"""What is done again after an expired session, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from barnabas.broker.lifecycle.registration import SessionRenewal
from barnabas.broker.settings.topic_configs import TopicConfigs
from barnabas.client.zookeeper.interface import ConnectionLost
from barnabas.protocol.zookeeper import znodes
from tests.sim.simulated_zookeeper import SimEnsemble

Step = Callable[[], Awaitable[None]]


async def test_the_steps_are_taken_in_order_once_for_each_expiry() -> None:
    session = SimEnsemble(asyncio.get_running_loop()).connect()
    taken: asyncio.Queue[str] = asyncio.Queue()
    first, second = noting(taken, "first"), noting(taken, "second")
    running = asyncio.create_task(SessionRenewal(session, [first, second]).run())
    for _ in range(2):
        session.suspend()
        session.resume()
        session.expire()
        assert [await taken.get(), await taken.get()] == ["first", "second"]
    assert taken.empty()
    running.cancel()


async def test_steps_that_an_outage_interrupts_are_all_taken_again() -> None:
    session = SimEnsemble(asyncio.get_running_loop()).connect()
    taken: asyncio.Queue[str] = asyncio.Queue()
    is_first = True

    async def interrupted() -> None:
        nonlocal is_first
        await noting(taken, "interrupted")()
        if is_first:
            is_first = False
            session.suspend()
            raise ConnectionLost("cut")

    steps: list[Step] = [noting(taken, "before"), interrupted, noting(taken, "after")]
    running = asyncio.create_task(SessionRenewal(session, steps).run())
    session.expire()
    assert [await taken.get(), await taken.get()] == ["before", "interrupted"]
    session.resume()
    assert [await taken.get() for _ in range(3)] == ["before", "interrupted", "after"]
    running.cancel()


async def test_settings_changed_during_an_outage_are_found_after_it() -> None:
    ensemble = SimEnsemble(asyncio.get_running_loop())
    session, other = ensemble.connect(), ensemble.connect()
    for path in (znodes.CONFIG_CHANGES, znodes.CONFIG_TOPICS):
        await other.create(path, parents=True)
    configs = TopicConfigs(session, lambda: 0)
    changed: asyncio.Queue[str] = asyncio.Queue()
    configs.on_change.append(changed.put_nowait)
    await configs.load()
    running = asyncio.create_task(configs.run())
    session.suspend()
    await other.create(
        znodes.topic_config_path("t"), znodes.TopicConfig(config={"retention.ms": "1"}).to_json()
    )
    note = znodes.ConfigChange(entity_path="topics/t").to_json()
    await other.create(znodes.CONFIG_CHANGE_PREFIX, note, sequence=True)
    assert changed.empty()
    session.resume()
    async with asyncio.timeout(60):
        assert await changed.get() == "t"
    assert configs.overrides("t") == {"retention.ms": "1"}
    running.cancel()


def noting(taken: asyncio.Queue[str], name: str) -> Step:
    async def step() -> None:
        taken.put_nowait(name)

    return step
