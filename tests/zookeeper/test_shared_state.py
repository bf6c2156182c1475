"""Topic settings, blocks of producer ids and the offsets of classic consumers.

Source: docs/spec/cluster.md §1.11 check Z8.
"""

from __future__ import annotations

import asyncio
import json
from functools import partial

import pytest

from barnabas.broker.coordination.coordinator_ports import ZooKeeperOffsetsPort
from barnabas.broker.coordination.producer_id_manager import ProducerIdManager
from barnabas.broker.lifecycle.node_identity import create_persistent_znodes
from barnabas.broker.settings.config_announcements import NOTE_AGE_MS_MAX
from barnabas.broker.settings.topic_configs import TopicConfigs
from barnabas.client.zookeeper.interface import NodeExists, ZooKeeper
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.zookeeper import znodes
from tests.harness.znodes import session as znode_session
from tests.zookeeper.conftest import Connect


async def set_config(session: ZooKeeper, topic: str, **overrides: str) -> None:
    config = {name.replace("_", "."): value for name, value in overrides.items()}
    payload = znodes.TopicConfig(config=config).to_json()
    try:
        await session.create(znodes.topic_config_path(topic), payload)
    except NodeExists:
        await session.set(znodes.topic_config_path(topic), payload)


async def announce(session: ZooKeeper, topic: str) -> None:
    note = znodes.ConfigChange(entity_path=f"topics/{topic}").to_json()
    await session.create(znodes.CONFIG_CHANGE_PREFIX, note, sequence=True)


def settled_on_29(configs: TopicConfigs, done: asyncio.Event, topic: str) -> None:
    if configs.overrides(topic).get("retention.ms") == "29":
        done.set()


async def test_a_burst_of_changes_ends_with_the_last_value_everywhere(sessions: Connect) -> None:
    writer, *readers = [await sessions() for _ in range(3)]
    await create_persistent_znodes(writer)
    followers = [TopicConfigs(reader, lambda: 0) for reader in readers]
    settled = [asyncio.Event() for _ in followers]
    async with asyncio.TaskGroup() as tasks:
        running = []
        for configs, done in zip(followers, settled, strict=True):
            await configs.load()
            configs.on_change.append(partial(settled_on_29, configs, done))
            running.append(tasks.create_task(configs.run()))
        for value in range(30):
            await set_config(writer, "t", retention_ms=str(value))
            await announce(writer, "t")
        async with asyncio.timeout(60):
            for done in settled:
                await done.wait()
        for task in running:
            task.cancel()


async def test_settings_that_were_there_before_are_loaded(session: ZooKeeper) -> None:
    await create_persistent_znodes(session)
    await set_config(session, "t", segment_bytes="1000")
    await announce(session, "t")
    configs = TopicConfigs(session, lambda: 0)
    await configs.load()
    assert configs.overrides("t") == {"segment.bytes": "1000"}
    assert configs.overrides("unknown") == {}
    await set_config(session, "t", segment_bytes="2000")
    assert await configs.refresh("t") == {"segment.bytes": "2000"}


async def test_old_announcements_are_deleted_and_nonsense_is_ignored(session: ZooKeeper) -> None:
    await create_persistent_znodes(session)
    stat = await session.exists(znodes.CONFIG_CHANGES)
    assert stat is not None
    configs = TopicConfigs(session, lambda: stat.ctime_ms + NOTE_AGE_MS_MAX + 60_000)
    await configs.load()
    changed = asyncio.Event()
    configs.on_change.append(lambda topic: changed.set())
    following = asyncio.create_task(configs.run())
    await session.create(znodes.CONFIG_CHANGE_PREFIX, b"no json", sequence=True)
    await set_config(session, "t", segment_bytes="1000")
    old = json.dumps({"version": 1, "entity_type": "topics", "entity_name": "t"}).encode()
    await session.create(znodes.CONFIG_CHANGE_PREFIX, old, sequence=True)
    async with asyncio.timeout(60):
        await changed.wait()
        while await session.children(znodes.CONFIG_CHANGES):
            fewer = asyncio.Event()
            if await session.children(znodes.CONFIG_CHANGES, fewer.set):
                await fewer.wait()
    following.cancel()


async def test_no_two_nodes_get_the_same_producer_ids(sessions: Connect) -> None:
    nodes = [await sessions() for _ in range(3)]
    await create_persistent_znodes(nodes[0])
    takers = [ProducerIdManager(session, number) for number, session in enumerate(nodes)]
    blocks = await asyncio.gather(*(taker.take() for taker in takers * 3))
    assert sorted(block.start for block in blocks) == [1000 * number for number in range(9)]
    assert {len(block) for block in blocks} == {1000}
    record = json.loads((await nodes[0].get(znodes.PRODUCER_ID_BLOCK))[0])
    assert (record["block_start"], record["block_end"]) == ("8000", "8999")


async def test_kafka_finds_no_text_where_no_block_was_taken(sessions: Connect, hosts: str) -> None:
    await create_persistent_znodes(await sessions())
    with znode_session(hosts) as client:
        assert client.get(znodes.PRODUCER_ID_BLOCK)[0] is None


async def test_without_zookeeper_there_are_no_producer_ids(sessions: Connect) -> None:
    session = await sessions()
    with pytest.raises(Refused) as refused:
        await ProducerIdManager(session, 1).take()
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_offsets_of_classic_consumers_are_decimal_text(session: ZooKeeper) -> None:
    offsets = ZooKeeperOffsetsPort(session)
    codes = await offsets.commit("g", {("t", 0): 5, ("t", 1): 7, ("../x", 0): 1})
    assert codes == {
        ("t", 0): ErrorCode.NONE,
        ("t", 1): ErrorCode.NONE,
        ("../x", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    await offsets.commit("g", {("t", 0): 6})
    assert (await session.get("/consumers/g/offsets/t/0"))[0] == b"6"
    found = await offsets.fetch("g", [("t", 0), ("t", 1), ("t", 2)])
    assert found == {
        ("t", 0): 6,
        ("t", 1): 7,
        ("t", 2): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


@pytest.mark.parametrize("group", ["", ".", "..", "a/b", "../../controller", "nul\0"])
async def test_a_group_that_would_leave_its_place_in_the_tree_is_refused(
    session: ZooKeeper, group: str
) -> None:
    offsets = ZooKeeperOffsetsPort(session)
    assert await offsets.commit(group, {("t", 0): 5}) == {("t", 0): ErrorCode.INVALID_GROUP_ID}
    assert await offsets.fetch(group, [("t", 0)]) == {("t", 0): ErrorCode.INVALID_GROUP_ID}
    assert await session.children("/") == []
