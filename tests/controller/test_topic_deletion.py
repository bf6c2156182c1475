"""Topics deleted and created again, with nodes down in between.

Source: docs/spec/cluster.md §2.16 check C8.
"""

from __future__ import annotations

import asyncio

from barnabas.protocol.zookeeper import znodes
from tests.controller.small_cluster import SmallCluster


async def gone(cluster: SmallCluster, path: str) -> None:
    while True:
        changed = asyncio.Event()
        if await cluster.observer.exists(path, changed.set) is None:
            return
        async with asyncio.timeout(60):
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
    async with asyncio.timeout(60):
        await changed.wait()
    data, _stat = await cluster.observer.get("/brokers/topics/t")
    assert set(znodes.TopicAssignment.from_json(data).partitions) == {0}


async def test_a_node_that_missed_a_deletion_hears_of_it_when_it_is_back(
    cluster: SmallCluster,
) -> None:
    await cluster.start(1)
    frozen = await cluster.start(2, ("broker",))
    await cluster.create("deleted", {0: (1,)})
    await cluster.create("anew", {0: (1,), 1: (1,)})
    await cluster.led("deleted", 0, 1)
    await cluster.led("anew", 1, 1)
    frozen.is_up = False
    for name in ("deleted", "anew"):
        await cluster.observer.create(znodes.deletion_path(name))
        await gone(cluster, znodes.deletion_path(name))
    await cluster.create("anew", {0: (1,)})
    frozen.zookeeper.expire()
    frozen.is_up = True
    await cluster.until(lambda: "deleted" not in frozen.cache.snapshot.topics)
    await cluster.until(lambda: list(frozen.cache.snapshot.topics.get("anew", ())) == [0])


async def test_a_new_controller_tells_of_deletions_its_predecessor_could_not(
    cluster: SmallCluster,
) -> None:
    for node_id in (1, 2):
        await cluster.start(node_id)
    first = await cluster.elected()
    deaf = await cluster.start(3, ("broker",))
    await cluster.create("t", {0: (first.id,)})
    await cluster.led("t", 0, first.id)
    deaf.is_up = False
    await cluster.observer.create(znodes.deletion_path("t"))
    await gone(cluster, znodes.deletion_path("t"))
    await cluster.bury(first.id)
    deaf.is_up = True
    await cluster.until(lambda: "t" not in deaf.cache.snapshot.topics)


async def test_a_topic_that_a_new_controller_cannot_read_is_not_taken_for_deleted(
    cluster: SmallCluster,
) -> None:
    for node_id in (1, 2):
        await cluster.start(node_id)
    first = await cluster.elected()
    await cluster.create("t", {0: (3 - first.id,)})
    await cluster.led("t", 0, 3 - first.id)
    await cluster.observer.set("/brokers/topics/t", b"{")
    await cluster.bury(first.id)
    await cluster.create("later", {0: (3 - first.id,)})
    await cluster.led("later", 0, 3 - first.id)
    assert cluster.knows_leader("t", 0, 3 - first.id)


async def test_a_marker_is_no_deletion_for_a_new_controller_that_may_not_delete(
    cluster: SmallCluster,
) -> None:
    cluster.may_delete_topics = False
    await cluster.start(1)
    await cluster.create("t", {0: (1,)})
    await cluster.led("t", 0, 1)
    await cluster.bury(1)
    await cluster.observer.create(znodes.deletion_path("t"))
    await cluster.start(1)
    await gone(cluster, znodes.deletion_path("t"))
    await cluster.led("t", 0, 1)
