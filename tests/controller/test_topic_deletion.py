"""Topics deleted and created again, with nodes down in between.

Source: docs/spec/cluster.md §2.16 check C8.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from barnabas.broker.controller import topic_deletion
from barnabas.broker.controller.context import Replica
from barnabas.broker.controller.leader_election import DELETED
from barnabas.broker.controller.topic_deletion import TopicDeletion
from barnabas.client.zookeeper.interface import Create
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


MANY = [f"topic-{number:02}" for number in range(30)]


async def created(cluster: SmallCluster, names: list[str], replicas: tuple[int, ...]) -> None:
    for name in names:
        await cluster.create(name, {0: replicas})
    for name in names:
        await cluster.led(name, 0, replicas[0])


async def delete_together(cluster: SmallCluster, names: list[str]) -> None:
    await cluster.observer.multi(*(Create(znodes.deletion_path(name)) for name in names))


def deleting_orders(cluster: SmallCluster, node: int, since: int) -> list[tuple[str, int]]:
    """The orders of a deletion as one node got them, and of how many topics each was."""
    found = []
    for order in cluster.orders[since:]:
        if order.node != node:
            continue
        topics = [
            topic.topic_name
            for topic in order.request.topic_states
            for state in topic.partition_states
            if order.kind == "StopReplica" or state.leader == DELETED
        ]
        if topics:
            found.append((order.kind, len(topics)))
    return found


async def test_many_topics_deleted_together_are_three_orders_to_a_node(
    cluster: SmallCluster,
) -> None:
    """First nobody is to find them any more, then replicas stop, then they are deleted."""
    for node_id in (1, 2):
        await cluster.start(node_id)
    await created(cluster, MANY, (1, 2))
    since = len(cluster.orders)
    await delete_together(cluster, MANY)
    for name in MANY:
        await gone(cluster, znodes.deletion_path(name))
    assert await cluster.observer.children(znodes.BROKER_TOPICS) == []
    for node in cluster.nodes.values():
        assert node.hosted == {}
        assert deleting_orders(cluster, node.id, since) == [
            ("UpdateMetadata", len(MANY)),
            ("StopReplica", len(MANY)),
            ("StopReplica", len(MANY)),
        ]


async def test_of_very_many_topics_a_few_are_begun_at_a_time(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever else happens meanwhile need not wait until all are begun, or gone."""
    monkeypatch.setattr(topic_deletion, "AT_ONCE", 10)
    await cluster.start(1)
    await created(cluster, MANY, (1,))
    since = len(cluster.orders)
    await delete_together(cluster, MANY)
    for name in MANY:
        await gone(cluster, znodes.deletion_path(name))
    told = [count for _kind, count in deleting_orders(cluster, 1, since)]
    assert told == [10] * 9
    assert cluster.nodes[1].hosted == {}


async def test_a_new_controller_begins_all_deletions_it_finds_however_many(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_deletion, "AT_ONCE", 4)
    for node_id in (1, 2):
        await cluster.start(node_id)
    first = await cluster.elected()
    other = 3 - first.id
    await created(cluster, MANY, (other,))
    await cluster.kill(first.id)
    await delete_together(cluster, MANY)
    await cluster.notice(first)
    for name in MANY:
        await gone(cluster, znodes.deletion_path(name))
    assert cluster.nodes[other].hosted == {}


async def test_a_deletion_does_not_look_at_the_others_that_wait(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for node_id in (1, 2):
        await cluster.start(node_id)
    await cluster.start(3, ("broker",))
    await created(cluster, MANY, (3,))
    await created(cluster, ["t"], (1, 2))
    await cluster.bury(3)
    await cluster.led(MANY[-1], 0, -1)
    await delete_together(cluster, MANY)
    ruling = (await cluster.elected()).controller.context
    assert ruling is not None
    await cluster.until(lambda: ruling.waiting == set(MANY))
    looked: Counter[str] = Counter()
    replicas_of = TopicDeletion._replicas

    def noted(deletion: TopicDeletion, topic: str) -> list[Replica]:
        looked[topic] += 1
        return replicas_of(deletion, topic)

    monkeypatch.setattr(TopicDeletion, "_replicas", noted)
    await delete_together(cluster, ["t"])
    await gone(cluster, znodes.deletion_path("t"))
    assert looked.keys() == {"t"}
