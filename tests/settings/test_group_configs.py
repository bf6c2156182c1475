"""The settings of groups in ZooKeeper, and how nodes learn of them.

Source: docs/spec/consumer-groups.md §2.6.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from barnabas.broker.lifecycle.node_identity import create_persistent_znodes
from barnabas.broker.settings.config_changes import ConfigChanges, Overrides
from barnabas.broker.settings.group_configs import NAMES_BYTES_MAX, GroupConfigs
from barnabas.client.zookeeper.interface import NodeExists
from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.consumer_groups.group_settings import HEARTBEAT, SESSION
from barnabas.protocol.zookeeper import znodes
from tests.sim.simulated_zookeeper import SimEnsemble, SimZooKeeper

NAMES = ("g", "..", ".", "a/b", "a b", "ä~*", "<default>", "x" * 1000, "%2E", "a\nb")


def payload(**overrides: str) -> bytes:
    return znodes.EntityConfig(
        config={name.replace("_", "."): value for name, value in overrides.items()}
    ).to_json()


@pytest.fixture
async def ensemble() -> SimEnsemble:
    return SimEnsemble(asyncio.get_running_loop())


@pytest.fixture
async def session(ensemble: SimEnsemble) -> SimZooKeeper:
    session = ensemble.connect()
    await create_persistent_znodes(session)
    return session


@pytest.fixture
async def configs(session: SimZooKeeper) -> AsyncIterator[GroupConfigs]:
    """Follows what is announced."""
    configs = GroupConfigs(session, lambda: 0, CoordinatorConfig())
    await configs.load()
    following = asyncio.create_task(configs.run())
    yield configs
    following.cancel()
    await asyncio.wait([following])


async def give(changes: ConfigChanges, group: str, **overrides: str) -> None:
    wanted = {name.replace("_", "."): value for name, value in overrides.items()}
    await changes.change_group(group, lambda _: wanted, is_dry=False)


def changed(configs: GroupConfigs) -> asyncio.Queue[str]:
    told: asyncio.Queue[str] = asyncio.Queue()
    configs.on_change.append(told.put_nowait)
    return told


@pytest.mark.parametrize("group", NAMES)
async def test_a_group_of_any_name_has_settings_of_its_own(
    ensemble: SimEnsemble, configs: GroupConfigs, group: str
) -> None:
    told = changed(configs)
    other = ensemble.connect()
    await give(ConfigChanges(other), group, consumer_session_timeout_ms="50000")
    assert await told.get() == group
    assert configs.overrides(group) == {SESSION: "50000"}
    assert configs.settings_of(group) == (50_000, 5000, 1000)
    assert configs.settings_of(group + "2") == (45_000, 5000, 1000)
    (segment,) = await other.children(znodes.CONFIG_GROUPS)
    assert znodes.group_of_segment(segment) == group
    late = GroupConfigs(ensemble.connect(), lambda: 0, CoordinatorConfig())
    await late.load()
    assert late.overrides(group) == {SESSION: "50000"}


async def test_a_group_that_sets_nothing_any_more_leaves_no_znode(
    ensemble: SimEnsemble, configs: GroupConfigs
) -> None:
    told = changed(configs)
    other = ensemble.connect()
    await give(ConfigChanges(other), "g", consumer_session_timeout_ms="50000")
    await give(ConfigChanges(other), "g", consumer_heartbeat_interval_ms="6000")
    while configs.overrides("g") != {HEARTBEAT: "6000"}:
        await told.get()
    await give(ConfigChanges(other), "g")
    while configs.overrides("g"):
        await told.get()
    assert configs.settings_of("g") == (45_000, 5000, 1000)
    assert await other.children(znodes.CONFIG_GROUPS) == []


async def test_what_changes_nothing_is_not_written_and_not_announced(session: SimZooKeeper) -> None:
    changes = ConfigChanges(session)
    await give(changes, "g")
    await changes.change_group("g", lambda _: {SESSION: "50000"}, is_dry=True)
    assert await session.children(znodes.GROUP_CHANGES) == []
    await give(changes, "g", consumer_session_timeout_ms="50000")
    await give(changes, "g", consumer_session_timeout_ms="50000")
    assert len(await session.children(znodes.GROUP_CHANGES)) == 1
    assert await session.children(znodes.CONFIG_CHANGES) == []  # a Kafka node would trip over it


async def test_two_who_change_a_group_at_once_both_succeed(session: SimZooKeeper) -> None:
    changes = ConfigChanges(session)

    async def put(name: str, value: str) -> None:
        def edit(before: Overrides) -> Overrides:
            return {**before, name: value}

        await changes.change_group("g", edit, is_dry=False)

    await asyncio.gather(*(put(f"n{index}", str(index)) for index in range(8)))
    data, _ = await session.get(znodes.group_config_path("g"))
    assert znodes.EntityConfig.from_json(data).config == {f"n{i}": str(i) for i in range(8)}


async def test_changes_during_an_outage_are_found_after_it(
    ensemble: SimEnsemble, session: SimZooKeeper, configs: GroupConfigs
) -> None:
    told = changed(configs)
    session.suspend()
    await give(ConfigChanges(ensemble.connect()), "g", consumer_session_timeout_ms="50000")
    assert told.empty()
    session.resume()
    assert await told.get() == "g"


async def test_a_load_also_finds_what_is_gone(session: SimZooKeeper) -> None:
    """After a session that was lost announcements may have come and gone."""
    configs = GroupConfigs(session, lambda: 0, CoordinatorConfig())
    path = znodes.group_config_path("g")
    await session.create(path, payload(consumer_session_timeout_ms="50000"))
    await configs.load()
    assert configs.overrides("g")
    await session.delete(path)
    await configs.load()
    assert not configs.overrides("g")


async def test_what_makes_no_sense_in_zookeeper_is_left_out(
    session: SimZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    for segment, data in (
        ("%zz", payload(consumer_session_timeout_ms="50000")),
        ("%ff", payload(consumer_session_timeout_ms="50000")),
        ("a~", payload(consumer_session_timeout_ms="50000")),
        ("broken", b"{"),
        ("list", b"[]"),
        ("early", payload(consumer_session_timeout_ms="1")),
        ("text", payload(consumer_session_timeout_ms="soon")),
    ):
        await session.create(f"{znodes.CONFIG_GROUPS}/{segment}", data)
    await session.create(znodes.GROUP_CHANGE_PREFIX, b"no json", sequence=True)
    configs = GroupConfigs(session, lambda: 0, CoordinatorConfig())
    await configs.load()
    for group in ("%zz", "a~", "broken", "list", "early", "text"):
        assert configs.settings_of(group) == (45_000, 5000, 1000)
    assert "does not hold as it is group=early" in caplog.text


async def test_how_many_groups_may_set_something_is_bounded(session: SimZooKeeper) -> None:
    configs = GroupConfigs(session, lambda: 0, CoordinatorConfig())
    length = 30_000
    groups = [f"{index:05d}".ljust(length, "x") for index in range(NAMES_BYTES_MAX // length)]
    for group in groups:
        assert configs.has_room(group)
        await give(ConfigChanges(session), group, consumer_session_timeout_ms="50000")
    await configs.load()
    assert not configs.has_room("y" * length)
    assert configs.has_room(groups[0])
    await give(ConfigChanges(session), groups[0])
    await configs.load()
    assert configs.has_room("y" * length)


async def test_the_znodes_are_made_once(session: SimZooKeeper) -> None:
    await create_persistent_znodes(session)
    with pytest.raises(NodeExists):
        await session.create(znodes.CONFIG_GROUPS)
