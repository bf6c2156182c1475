"""Elections of many partitions at once: from what is known, and told before anything else.

Source: docs/spec/cluster.md §2.6 and §2.7.
"""

from __future__ import annotations

from collections import Counter

import pytest

from barnabas.client.zookeeper.interface import Stat, Watch
from barnabas.protocol.zookeeper import znodes
from tests.controller.small_cluster import SmallCluster

PARTITIONS = 250
"""More than are written at a time."""


@pytest.fixture
async def large(cluster: SmallCluster) -> SmallCluster:
    """Node 1 is the controller; node 3 leads one topic and follows in another."""
    await cluster.start(1)
    for node_id in (2, 3):
        await cluster.start(node_id, ("broker",))
    await cluster.create("led", dict.fromkeys(range(PARTITIONS), (3, 1, 2)))
    await cluster.create("followed", dict.fromkeys(range(PARTITIONS), (1, 3)))
    await cluster.led("led", PARTITIONS - 1, 3)
    await cluster.led("followed", PARTITIONS - 1, 1)
    return cluster


def note_reads(cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The states that the controller reads from now on, by path."""
    read: list[str] = []
    zookeeper = cluster.nodes[1].zookeeper
    get = zookeeper.get

    async def noted(path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        if path.endswith("/state"):
            read.append(path)
        return await get(path, watch)

    monkeypatch.setattr(zookeeper, "get", noted)
    return read


async def test_what_a_dead_node_led_is_elected_without_reading_each_state(
    large: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = note_reads(large, monkeypatch)
    await large.bury(3)
    await large.led("led", PARTITIONS - 1, 1)
    await large.until(lambda: large.nodes[1].hosted["followed", PARTITIONS - 1].isr == (1,))
    assert read == []
    for index in (0, PARTITIONS - 1):
        state = await large.state("led", index)
        assert (state.leader, state.isr, state.leader_epoch) == (1, (1, 2), 1)
        state = await large.state("followed", index)
        assert (state.leader, state.isr, state.leader_epoch) == (1, (1,), 1)


async def test_a_state_that_its_leader_changed_meanwhile_is_read_and_chosen_from_anew(
    large: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Node 1 fell behind in one partition just before: elected, it would lose records."""
    await large.set_in_sync("led", 7, (3, 2))
    await large.set_in_sync("followed", 8, (1,))
    read = note_reads(large, monkeypatch)
    await large.bury(3)
    await large.led("led", 7, 2)
    await large.led("led", 6, 1)
    await large.led("led", PARTITIONS - 1, 1)
    assert (await large.state("led", 7)).isr == (2,)
    await large.until(lambda: large.nodes[1].hosted["followed", PARTITIONS - 1].isr == (1,))
    state = await large.state("followed", 8)
    assert (state.isr, state.leader_epoch) == ((1,), 0)
    # Those that would have been written together, and no others.
    assert len(read) == len(set(read)) == 400
    assert znodes.partition_state_path("led", 249) not in read


async def test_new_leaders_are_told_before_other_in_sync_sets_are_written(
    large: SmallCluster,
) -> None:
    """Clients wait for the leaders of what a dead node led, and for nothing else."""
    before = len(large.orders)
    await large.bury(3)
    await large.until(lambda: large.nodes[1].hosted["followed", PARTITIONS - 1].isr == (1,))
    told = [
        {topic.topic_name for topic in order.request.topic_states}
        for order in large.orders[before:]
        if order.kind == "LeaderAndIsr" and order.node == 1
    ]
    assert told == [{"led"}, {"led"}, {"followed"}]


async def test_of_many_elections_those_of_coordinators_come_first_and_are_told_at_once(
    large: SmallCluster,
) -> None:
    """Groups need not wait until everything else that a dead node led is elected, too."""
    await large.create("__consumer_offsets", dict.fromkeys(range(3), (3, 1)))
    await large.led("__consumer_offsets", 2, 3)
    before = len(large.orders)
    await large.bury(3)
    await large.until(lambda: large.nodes[1].hosted["followed", PARTITIONS - 1].isr == (1,))
    told = [
        Counter(
            topic.topic_name for topic in order.request.topic_states for _ in topic.partition_states
        )
        for order in large.orders[before:]
        if order.kind == "LeaderAndIsr" and order.node == 1
    ]
    assert told[:2] == [{"__consumer_offsets": 3, "led": 197}, {"led": 53}]
