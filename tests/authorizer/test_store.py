"""Entries in ZooKeeper, changed by several at once: docs/spec/security.md §3 (S46 to S49, S86)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable

import pytest

from barnabas.broker.authorizer.access_control import AccessControl
from barnabas.broker.authorizer.acl_changes import COMPARE_S, NOTE_AGE_MS_MAX
from barnabas.broker.settings.authorizer_settings import AuthorizerSettings
from barnabas.client.zookeeper.interface import ZooKeeperError
from barnabas.protocol.acl import (
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.zookeeper import acl_znodes as znodes
from tests.handlers.peer import SomePeer
from tests.sim.simulated_loop import seeded_runner
from tests.sim.simulated_zookeeper import SimEnsemble, SimZooKeeper

T = ResourcePattern(ResourceType.TOPIC, "t")
PREFIX = ResourcePattern(ResourceType.TOPIC, "t", PatternType.PREFIXED)
START_MS = 1_700_000_000_000


def acl(name: str, operation: Operation = Operation.READ) -> Acl:
    return Acl(f"User:{name}", "*", operation, Permission.ALLOW)


class World:
    """Nodes with access control, on one ensemble, and a hand that writes as Kafka does."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.ensemble = SimEnsemble(loop, latency=lambda: 0.001, now_ms=self.now_ms)
        self.hand = self.ensemble.connect()
        self.sessions: list[SimZooKeeper] = []
        self.tasks: list[asyncio.Task[None]] = []

    def now_ms(self) -> int:
        return START_MS + int(self.loop.time() * 1000)

    async def node(self) -> AccessControl:
        session = self.ensemble.connect()
        self.sessions.append(session)
        node = AccessControl(
            AuthorizerSettings(),
            session,
            now=self.loop.time,
            now_ms=self.now_ms,
            rng=random.Random(len(self.sessions)),
        )
        await node.load()
        self.tasks.append(asyncio.create_task(node.run()))
        return node

    async def write(
        self, pattern: ResourcePattern, acls: Iterable[Acl], *, noted: bool = True
    ) -> None:
        """As another broker, or kafka-acls with --authorizer-properties, writes."""
        path = znodes.resource_path(pattern)
        data = znodes.acls_to_json(acls)
        if await self.hand.exists(path) is None:
            await self.hand.create(path, data)
        else:
            await self.hand.set(path, data)
        if noted:
            prefix = f"{znodes.CHANGES[pattern.pattern_type]}/{znodes.CHANGE_PREFIX}"
            await self.hand.create(prefix, znodes.change_to_json(pattern), sequence=True)


def acls_of(node: AccessControl, pattern: ResourcePattern = T) -> set[Acl]:
    found = node.cache.snapshot.resources.get(pattern)
    return set() if found is None else set(found.acls)


async def until(is_so: object, within_s: float) -> None:
    assert callable(is_so)
    async with asyncio.timeout(within_s):
        while not is_so():  # noqa: ASYNC110 - in simulated time
            await asyncio.sleep(0.001)


@pytest.fixture
def simulated() -> Iterable[tuple[asyncio.Runner, World]]:
    with seeded_runner(1) as (runner, loop):
        world = World(loop)
        yield runner, world

        async def end() -> None:
            for task in world.tasks:
                task.cancel()
            await asyncio.gather(*world.tasks, return_exceptions=True)

        runner.run(end())


Simulated = tuple[asyncio.Runner, World]


def test_all_directories_exist_from_the_start(simulated: Simulated) -> None:
    """S46: Kafka's brokers and tools expect them."""
    runner, world = simulated

    async def story() -> list[str]:
        await world.node()
        return [path for path in znodes.PERSISTENT_PATHS if await world.hand.exists(path) is None]

    assert len(znodes.PERSISTENT_PATHS) == 14
    assert runner.run(story()) == []


def test_what_another_broker_writes_acts_here_at_once(simulated: Simulated) -> None:
    """Issue 16: within 100 ms of its note; both kinds of patterns."""
    runner, world = simulated

    async def story() -> None:
        node = await world.node()
        await world.write(T, [acl("alice")])
        await until(lambda: acls_of(node) == {acl("alice")}, 0.1)
        await world.write(PREFIX, [acl("bob")])
        await until(lambda: acls_of(node, PREFIX) == {acl("bob")}, 0.1)
        await world.write(T, [acl("carol")])
        await until(lambda: acls_of(node) == {acl("carol")}, 0.1)

    runner.run(story())


def test_a_change_here_acts_here_before_it_is_answered_and_elsewhere_soon(
    simulated: Simulated,
) -> None:
    runner, world = simulated

    async def story() -> None:
        here, there = await world.node(), await world.node()
        before, after = await here.store.change(T, lambda acls: acls | {acl("alice")})
        assert (set(before), set(after)) == (set(), {acl("alice")})
        assert acls_of(here) == {acl("alice")}
        await until(lambda: acls_of(there) == {acl("alice")}, 0.1)
        await there.store.change(T, lambda acls: acls - {acl("alice")})
        await until(lambda: acls_of(here) == set(), 0.1)
        assert await world.hand.exists(znodes.resource_path(T)) is None, (
            "S52: last gone, znode gone"
        )

    runner.run(story())


def test_of_a_thousand_concurrent_creations_on_three_nodes_none_is_lost(
    simulated: Simulated,
) -> None:
    """The check of docs/spec/security.md §3."""
    runner, world = simulated

    async def story() -> None:
        nodes = [await world.node() for _ in range(3)]
        wanted = {acl(f"user{number}") for number in range(1000)}
        await asyncio.gather(
            *(
                nodes[place % 3].store.change(T, lambda acls, one=one: acls | {one})  # type: ignore[misc]
                for place, one in enumerate(sorted(wanted))
            )
        )
        data, _ = await world.hand.get(znodes.resource_path(T))
        assert znodes.acls_from_json(data) == wanted
        await until(lambda: all(acls_of(node) == wanted for node in nodes), 5)

    runner.run(story())


def test_deleting_one_of_three_leaves_two_in_force_everywhere(simulated: Simulated) -> None:
    """S86: CVE-2024-27309."""
    runner, world = simulated

    async def story() -> None:
        nodes = [await world.node() for _ in range(3)]
        three = {acl("a"), acl("b"), acl("c")}
        await nodes[0].store.change(T, lambda acls: acls | three)
        await until(lambda: all(acls_of(node) == three for node in nodes), 1)
        await nodes[1].store.change(T, lambda acls: acls - {acl("b")})
        await until(lambda: all(acls_of(node) == three - {acl("b")} for node in nodes), 1)
        for node in nodes:
            may = [
                node.authorizer.allows(
                    SomePeer(principal=f"User:{name}"), Operation.READ, ResourceType.TOPIC, "t"
                )
                for name in "abc"
            ]
            assert may == [True, False, True]

    runner.run(story())


def test_a_change_without_a_note_is_found_by_comparing(simulated: Simulated) -> None:
    """S49: its writer died between the two."""
    runner, world = simulated

    async def story() -> None:
        node = await world.node()
        await world.write(T, [acl("alice")], noted=False)
        await asyncio.sleep(COMPARE_S / 2)
        assert acls_of(node) == set()
        await until(lambda: acls_of(node) == {acl("alice")}, COMPARE_S)

    runner.run(story())


def test_what_was_written_while_this_node_was_away_is_read_when_it_is_back(
    simulated: Simulated,
) -> None:
    """S48: without ZooKeeper the cache decides; a note that came meanwhile is followed."""
    runner, world = simulated

    async def story() -> None:
        node = await world.node()
        await node.store.change(T, lambda acls: acls | {acl("alice")})
        world.sessions[0].suspend()
        await world.write(T, [acl("bob")])
        await asyncio.sleep(1)
        assert acls_of(node) == {acl("alice")}
        world.sessions[0].resume()
        await until(lambda: acls_of(node) == {acl("bob")}, 1)

    runner.run(story())


def test_a_note_that_could_not_be_written_is_made_up_for(simulated: Simulated) -> None:
    """S49: the change is in ZooKeeper, its note is owed until it is there."""
    runner, world = simulated

    async def story() -> None:
        here, there = await world.node(), await world.node()
        real = world.sessions[0].create

        async def lost(path: str, data: bytes = b"", **how: bool) -> str:
            if znodes.CHANGE_PREFIX in path and not is_back:
                raise ZooKeeperError("the connection is gone")
            return await real(path, data, **how)

        is_back = False
        world.sessions[0].create = lost  # type: ignore[method-assign]
        await here.store.change(T, lambda acls: acls | {acl("alice")})
        assert acls_of(here) == {acl("alice")}
        await asyncio.sleep(10)
        assert acls_of(there) == set()
        is_back = True
        await until(lambda: acls_of(there) == {acl("alice")}, 2.5)

    runner.run(story())


def test_a_write_whose_answer_was_lost_is_found_and_announced(simulated: Simulated) -> None:
    runner, world = simulated

    async def story() -> None:
        here, there = await world.node(), await world.node()
        real = world.sessions[0].create

        async def unanswered(path: str, data: bytes = b"", **how: bool) -> str:
            made = await real(path, data, **how)
            if path == znodes.resource_path(T):
                raise ZooKeeperError("the answer is lost")
            return made

        world.sessions[0].create = unanswered  # type: ignore[method-assign]
        with pytest.raises(ZooKeeperError):
            await here.store.change(T, lambda acls: acls | {acl("alice")})
        for node in (here, there):
            await until(lambda node=node: acls_of(node) == {acl("alice")}, 2)

    runner.run(story())


def test_a_note_that_cannot_be_read_has_everything_read(simulated: Simulated) -> None:
    runner, world = simulated

    async def story() -> None:
        node = await world.node()
        await world.write(T, [acl("alice")], noted=False)
        prefix = f"{znodes.CHANGES[PatternType.LITERAL]}/{znodes.CHANGE_PREFIX}"
        await world.hand.create(prefix, b"\xff nonsense", sequence=True)
        await until(lambda: acls_of(node) == {acl("alice")}, 1)

    runner.run(story())


def test_unreadable_entries_deny_until_they_are_mended(
    simulated: Simulated, caplog: pytest.LogCaptureFixture
) -> None:
    """S46; and a change there is refused, instead of overwriting what may have denied."""
    runner, world = simulated

    async def story() -> None:
        node = await world.node()
        await world.write(T, [acl("alice")])
        await until(lambda: acls_of(node) == {acl("alice")}, 1)
        await world.hand.set(znodes.resource_path(T), b'{"version":9}')
        prefix = f"{znodes.CHANGES[PatternType.LITERAL]}/{znodes.CHANGE_PREFIX}"
        await world.hand.create(prefix, znodes.change_to_json(T), sequence=True)
        await until(lambda: not acls_of(node), 1)
        peer = SomePeer(principal="User:alice")

        def may_read() -> bool:
            return node.authorizer.allows(peer, Operation.READ, ResourceType.TOPIC, "t")

        assert not may_read()
        assert "denies a resource whose entries cannot be read" in caplog.text
        with pytest.raises(Refused):
            await node.store.change(T, lambda acls: acls | {acl("eve")})
        await world.write(T, [acl("alice")])
        await until(may_read, 1)

    runner.run(story())


def test_old_notes_are_deleted_by_any_node(simulated: Simulated) -> None:
    """S47: those over 15 minutes."""
    runner, world = simulated

    async def notes() -> list[str]:
        return await world.hand.children(znodes.CHANGES[PatternType.LITERAL])

    async def story() -> None:
        await world.node()
        await world.write(T, [acl("alice")])
        await asyncio.sleep(NOTE_AGE_MS_MAX / 2000)
        assert len(await notes()) == 1
        await asyncio.sleep(NOTE_AGE_MS_MAX / 1000)
        await world.write(T, [acl("bob")])
        await asyncio.sleep(1)
        assert len(await notes()) == 1

    runner.run(story())


def test_a_node_that_starts_reads_what_is_there(simulated: Simulated) -> None:
    """S48."""
    runner, world = simulated

    async def story() -> None:
        first = await world.node()
        names = [f"t{number}" for number in range(450)]
        for name in names:
            pattern = ResourcePattern(ResourceType.GROUP, name)
            await first.store.change(pattern, lambda acls: acls | {acl("alice")})
        second = await world.node()
        found = {one.pattern.name for one in second.cache.snapshot.bindings(AclFilter())}
        assert found == set(names)

    runner.run(story())


def test_more_entries_than_a_znode_holds_are_refused(simulated: Simulated) -> None:
    runner, world = simulated

    async def story() -> None:
        node = await world.node()
        many = {acl("x" * 200 + str(number)) for number in range(5000)}
        with pytest.raises(Refused) as refusal:
            await node.store.change(T, lambda acls: acls | many)
        assert refusal.value.code is ErrorCode.INVALID_REQUEST
        assert acls_of(node) == set()
        assert not node.store.owed

    runner.run(story())
