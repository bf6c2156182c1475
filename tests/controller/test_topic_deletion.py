"""Topics deleted and created again, with nodes down in between (check C8)."""

from __future__ import annotations

import asyncio

from barnabas.protocol import znodes
from tests.controller.small_cluster import SmallCluster


async def gone(cluster: SmallCluster, path: str) -> None:
    while True:
        changed = asyncio.Event()
        if await cluster.observer.exists(path, changed.set) is None:
            return
        async with asyncio.timeout(5):
            await changed.wait()


async def test_a_deleted_topic_leaves_nothing_behind(cluster: SmallCluster) -> None:
    for node_id in (1, 2):
        await cluster.start(node_id)
    await cluster.create("t", {0: (1, 2), 1: (2, 1)})
    await cluster.led("t", 1, 2)
    await cluster.observer.create(znodes.deletion_path("t"))
    await gone(cluster, znodes.deletion_path("t"))
    assert await cluster.observer.exists("/brokers/topics/t") is None
    assert await cluster.observer.exists("/config/topics/t") is None
    for node in cluster.nodes.values():
        assert "t" not in node.cache.snapshot.topics
        assert node.hosted == {}


async def test_fifty_lives_of_one_name(cluster: SmallCluster) -> None:
    await cluster.start(1)
    ids = set()
    for life in range(50):
        count = 1 + life % 4
        await cluster.create_by_wish(name="t", partitions=count)
        await cluster.led("t", count - 1, 1)
        snapshot = cluster.nodes[1].cache.snapshot
        assert sorted(snapshot.topics["t"]) == list(range(count))
        ids.add(snapshot.topic_ids["t"])
        await cluster.observer.create(znodes.deletion_path("t"))
        await gone(cluster, znodes.deletion_path("t"))
    assert len(ids) == 50
    assert await cluster.observer.children(znodes.DELETE_TOPICS) == []


async def test_deletion_waits_for_a_node_that_is_down(cluster: SmallCluster) -> None:
    await cluster.start(1)
    await cluster.start(2, ("broker",))
    await cluster.create("t", {0: (2,)})
    await cluster.led("t", 0, 2)
    await cluster.bury(2)
    await cluster.led("t", 0, -1)
    await cluster.observer.create(znodes.deletion_path("t"))
    await cluster.create("other", {0: (1,)})
    await cluster.led("other", 0, 1)
    assert await cluster.observer.exists("/brokers/topics/t") is not None
    await cluster.start(2, ("broker",))
    await gone(cluster, znodes.deletion_path("t"))
    assert await cluster.observer.exists("/brokers/topics/t") is None


async def test_a_new_controller_finishes_what_the_old_one_began(cluster: SmallCluster) -> None:
    for node_id in (1, 2):
        await cluster.start(node_id)
    first = await cluster.elected()
    other = next(node for node in cluster.nodes.values() if node is not first)
    await cluster.create("t", {0: (other.id,)})
    await cluster.led("t", 0, other.id)
    other.is_up = False
    await cluster.observer.create(znodes.deletion_path("t"))
    await cluster.until(lambda: "t" not in first.cache.snapshot.topics)
    other.is_up = True
    await cluster.bury(first.id)
    await gone(cluster, znodes.deletion_path("t"))
    assert other.hosted == {}


async def test_a_marker_for_an_unknown_topic_is_taken_away(cluster: SmallCluster) -> None:
    await cluster.start(1)
    await cluster.elected()
    await cluster.observer.create(znodes.deletion_path("nobody"))
    await gone(cluster, znodes.deletion_path("nobody"))


async def test_a_topic_on_its_way_out_does_not_grow(cluster: SmallCluster) -> None:
    await cluster.start(1)
    await cluster.start(2, ("broker",))
    await cluster.create("t", {0: (2,)})
    await cluster.led("t", 0, 2)
    await cluster.bury(2)
    await cluster.led("t", 0, -1)
    await cluster.observer.create(znodes.deletion_path("t"))
    controller = cluster.nodes[1].controller
    await cluster.until(
        lambda: controller._term is not None and "t" in controller._term.context.deleting
    )
    grown = znodes.TopicAssignment(partitions={0: (2,), 1: (1,)}, topic_id=b"x" * 16)
    changed = asyncio.Event()
    await cluster.observer.set("/brokers/topics/t", grown.to_json())
    await cluster.observer.get("/brokers/topics/t", changed.set)
    async with asyncio.timeout(5):
        await changed.wait()
    data, _stat = await cluster.observer.get("/brokers/topics/t")
    assert set(znodes.TopicAssignment.from_json(data).partitions) == {0}
