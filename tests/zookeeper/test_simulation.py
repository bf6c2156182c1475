"""The in-memory ZooKeeper answers like the real one: same operations, same results."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from barnabas.client.zookeeper.interface import (
    Check,
    Create,
    Delete,
    MultiFailed,
    Op,
    SessionExpired,
    Set,
    Stat,
    ZooKeeper,
    ZooKeeperError,
)
from tests.net.client import until
from tests.sim.simulated_zookeeper import SimEnsemble

PATHS = ["/a", "/b", "/a/a", "/a/b", "/b/a", "/a/a/a"]


def an_operation(rng: random.Random) -> Op:
    path = rng.choice(PATHS)
    version = rng.choice([-1, -1, 0, 1, 2])
    operations: list[Op] = [
        Create(path, b"new", ephemeral=rng.random() < 0.2),
        Create(path + "-", b"", sequence=True),
        Set(path, bytes([rng.randrange(65, 90)]), version),
        Delete(path, version),
        Check(path, version),
    ]
    return rng.choice(operations)


def plain(result: Any) -> Any:
    if isinstance(result, Stat):
        return (result.version, result.ephemeral_owner != 0, result.children_count)
    if isinstance(result, tuple | list):
        return [plain(item) for item in result]
    return result


async def outcome(session: ZooKeeper, operations: list[Op]) -> Any:
    try:
        if len(operations) > 1:
            return plain(await session.multi(*operations))
        match operations[0]:
            case Create(path, data, ephemeral, sequence):
                return await session.create(path, data, ephemeral=ephemeral, sequence=sequence)
            case Set(path, data, version):
                return plain(await session.set(path, data, version))
            case Delete(path, version):
                return await session.delete(path, version)
            case Check(path, _version):
                return plain(await session.exists(path))
    except MultiFailed as failed:
        return (failed.index, type(failed.error))
    except ZooKeeperError as error:
        return type(error)


async def everything(session: ZooKeeper, path: str) -> Any:
    names = sorted(await session.children(path))
    data, stat = await session.get(path)
    prefix = "" if path == "/" else path
    below = {name: await everything(session, f"{prefix}/{name}") for name in names}
    return data, plain(stat), below


@pytest.mark.parametrize("seed", range(6))
async def test_random_operations_have_equal_results(session: ZooKeeper, seed: int) -> None:
    rng = random.Random(seed)
    simulated = SimEnsemble(asyncio.get_running_loop()).connect()
    await simulated.create("/root")
    await session.create("/root")
    for _ in range(250):
        operations = [an_operation(rng) for _ in range(rng.choice([1, 1, 2, 4]))]
        real = await outcome(session, operations)
        assert await outcome(simulated, operations) == real, operations
    assert await everything(simulated, "/") == await everything(session, "/")


async def test_watches_fire_for_the_same_changes(session: ZooKeeper) -> None:
    simulated = SimEnsemble(asyncio.get_running_loop()).connect()
    assert await watched(session) == await watched(simulated)


WATCHES = 5


async def watched(session: ZooKeeper) -> list[str]:
    fired: list[str] = []
    await session.create("/a")
    await session.create("/a/b")
    await session.get("/a", lambda: fired.append("data /a"))
    await session.children("/a", lambda: fired.append("children /a"))
    await session.exists("/a/b", lambda: fired.append("exists /a/b"))
    await session.exists("/c", lambda: fired.append("exists /c"))
    await session.children("/", lambda: fired.append("children /"))
    await session.set("/a/b", b"1")
    await session.create("/a/c")
    await session.create("/c")
    await session.set("/a", b"2")
    await session.exists("/a")
    await until(lambda: len(fired) >= WATCHES)  # kazoo tells of them in a thread of its own
    return sorted(fired)


async def test_an_expired_session_loses_its_ephemerals_and_its_calls() -> None:
    ensemble = SimEnsemble(asyncio.get_running_loop())
    session, other = ensemble.connect(), ensemble.connect()
    await session.create("/mine", ephemeral=True)
    ensemble.end(session.session_id)
    with pytest.raises(SessionExpired):
        await session.get("/mine")
    assert await other.exists("/mine") is None
