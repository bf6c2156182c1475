"""Partitions that get other replicas (docs/spec/cluster.md §2.12)."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from barnabas.broker.controller.components import ControllerComponents
from barnabas.broker.controller.leader_election import NO_LEADER
from barnabas.broker.controller.reassignment import AT_ONCE
from barnabas.client.zookeeper.interface import Delete, Op, Set
from barnabas.coordinator.ports import STATE_TOPICS
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.zookeeper import znodes
from tests.controller.small_cluster import SmallCluster

Wishes = dict[tuple[str, int], tuple[int, ...] | None]


@pytest.fixture
async def four(cluster: SmallCluster) -> SmallCluster:
    for node_id in (1, 2, 3, 4):
        await cluster.start(node_id)
    await cluster.elected()
    await cluster.create("t", {0: (1, 2)})
    await cluster.led("t", 0, 1)
    return cluster


def wished_by_tool(wishes: Mapping[tuple[str, int], tuple[int, ...]]) -> bytes:
    """The znode of a tool."""
    rows = [znodes.Reassignment(*partition, nodes) for partition, nodes in wishes.items()]
    return znodes.ReassignPartitions(partitions=tuple(rows)).to_json()


async def alter(cluster: SmallCluster, wishes: Wishes) -> dict[tuple[str, int], Refused | None]:
    controller = (await cluster.elected()).controller

    async def work(components: ControllerComponents) -> Any:
        return await components.reassignments.alter(wishes)

    outcomes: dict[tuple[str, int], Refused | None] = await controller.ask("reassign", work)
    return outcomes


async def moved(cluster: SmallCluster, replicas: tuple[int, ...]) -> None:
    """Every node knows the replicas of t-0 by now."""
    await cluster.until(
        lambda: all(
            (info := node.cache.snapshot.partition("t", 0)) is not None
            and info.replicas == replicas
            for node in cluster.nodes.values()
        )
    )


async def settled(cluster: SmallCluster, replicas: tuple[int, ...]) -> None:
    """No move of t-0 is written down any more: that is the last thing a move does."""
    await moved(cluster, replicas)
    goal = znodes.TopicAssignment(partitions={0: replicas}).to_json()
    async with asyncio.timeout(60):
        while True:
            changed = asyncio.Event()
            data, _stat = await cluster.observer.get(znodes.topic_path("t"), changed.set)
            record = znodes.TopicAssignment.from_json(data)
            if dataclasses.replace(record, topic_id=None).to_json() == goal:
                return
            await changed.wait()


async def test_a_move_waits_for_the_new_replicas_and_takes_the_old_ones_away(
    four: SmallCluster,
) -> None:
    assert await alter(four, {("t", 0): (3, 4)}) == {("t", 0): None}
    await moved(four, (3, 4, 1, 2))
    record = await four.assignment("t")
    assert record.partitions == {0: (3, 4, 1, 2)}
    assert (record.adding, record.removing) == ({0: (3, 4)}, {0: (1, 2)})
    await four.until(lambda: ("t", 0) in four.nodes[3].hosted and ("t", 0) in four.nodes[4].hosted)
    assert four.nodes[3].hosted["t", 0].is_new
    assert (await four.state("t", 0)).leader == 1

    await four.set_in_sync("t", 0, (1, 2, 3))
    await four.set_in_sync("t", 0, (1, 2, 3, 4))
    await moved(four, (3, 4))
    await four.until(lambda: ("t", 0) not in four.nodes[1].hosted)
    await four.until(lambda: ("t", 0) not in four.nodes[2].hosted)
    state = await four.state("t", 0)
    assert (state.leader, state.isr) == (3, (3, 4))
    await settled(four, (3, 4))
    await four.until(lambda: four.nodes[3].hosted["t", 0].leader_epoch == state.leader_epoch)


async def test_a_move_that_only_reorders_replicas_is_over_at_once(four: SmallCluster) -> None:
    await alter(four, {("t", 0): (2, 1)})
    await settled(four, (2, 1))
    assert (await four.state("t", 0)).leader == 1


async def test_a_move_called_off_takes_the_new_replicas_away(four: SmallCluster) -> None:
    """As in Kafka, the old order of the replicas is not remembered."""
    await alter(four, {("t", 0): (3, 2)})
    await four.until(lambda: ("t", 0) in four.nodes[3].hosted)
    assert await alter(four, {("t", 0): None}) == {("t", 0): None}
    await moved(four, (2, 1))
    await four.until(lambda: ("t", 0) not in four.nodes[3].hosted)
    await settled(four, (2, 1))
    assert (await four.state("t", 0)).leader == 1


async def test_a_second_wish_replaces_the_first(four: SmallCluster) -> None:
    await alter(four, {("t", 0): (3, 2)})
    await alter(four, {("t", 0): (4, 2)})
    await moved(four, (4, 2, 1))
    await four.until(lambda: ("t", 0) not in four.nodes[3].hosted)
    await four.set_in_sync("t", 0, (1, 2, 4))
    await moved(four, (4, 2))
    assert (await four.state("t", 0)).leader == 4


async def test_a_new_controller_goes_on_with_a_move(four: SmallCluster) -> None:
    await alter(four, {("t", 0): (3, 4)})
    first = await four.elected()
    await four.bury(first.id)
    second = await four.elected()
    assert second.id != first.id
    others = tuple(sorted({1, 2, 3, 4} - {first.id}))
    await four.until(lambda: all(four.nodes[node].hosted.get(("t", 0)) for node in others))
    await four.start(first.id)
    await four.until(lambda: ("t", 0) in four.nodes[first.id].hosted)
    await four.set_in_sync("t", 0, (1, 2, 3, 4))
    await settled(four, (3, 4))


@pytest.mark.parametrize(
    ("partition", "target", "code"),
    [
        (("t", 0), (), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (("t", 0), (1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (("t", 0), (1, 9), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (("t", 0), (-1,), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (("t", 5), (1,), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("u", 0), (1,), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("t", 0), None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        (("u", 0), None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
async def test_what_cannot_be_moved_has_its_code(
    four: SmallCluster,
    partition: tuple[str, int],
    target: tuple[int, ...] | None,
    code: ErrorCode,
) -> None:
    refusal = (await alter(four, {partition: target}))[partition]
    assert refusal is not None
    assert refusal.code == code
    assert (await four.assignment("t")).partitions == {0: (1, 2)}


async def test_a_replica_goes_only_to_nodes_of_the_topics_role(four: SmallCluster) -> None:
    await four.start(5, ("coordinator",))
    await four.until(lambda: 5 in four.nodes[1].cache.snapshot.brokers)
    refusal = (await alter(four, {("t", 0): (5,)}))["t", 0]
    assert refusal is not None
    assert refusal.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.fixture
async def missing_one(four: SmallCluster) -> tuple[SmallCluster, int, int]:
    """One of the two nodes of t-0 is down, the first number; the other leads it."""
    ruler = (await four.elected()).id
    away = 1 if ruler == 2 else 2
    await four.bury(away)
    await four.until(lambda: away not in four.nodes[ruler].cache.snapshot.brokers)
    await four.led("t", 0, 3 - away)
    return four, away, 3 - away


async def is_under_way(cluster: SmallCluster) -> bool:
    record = await cluster.assignment("t")
    return bool(record.adding or record.removing)


async def test_a_replica_that_stays_may_be_down_and_the_move_ends_when_it_is_in_sync_again(
    missing_one: tuple[SmallCluster, int, int],
) -> None:
    cluster, away, rest = missing_one
    assert await alter(cluster, {("t", 0): (away, rest, 3)}) == {("t", 0): None}
    await cluster.until(lambda: ("t", 0) in cluster.nodes[3].hosted)
    await cluster.set_in_sync("t", 0, (rest, 3))
    await cluster.until(
        lambda: (
            (info := cluster.nodes[rest].cache.snapshot.partition("t", 0)) is not None
            and info.isr == (rest, 3)
        )
    )
    assert await is_under_way(cluster)

    back = await cluster.start(away)
    await cluster.until(lambda: ("t", 0) in back.hosted)
    await cluster.set_in_sync("t", 0, (away, rest, 3))
    await settled(cluster, (away, rest, 3))


async def test_of_two_dead_replicas_one_can_be_replaced(four: SmallCluster) -> None:
    ruler = (await four.elected()).id
    first, second, last = (node for node in (1, 2, 3, 4) if node != ruler)
    await four.create("u", {0: (first, second, ruler)})
    await four.led("u", 0, first)
    await four.bury(first)
    await four.bury(second)
    await four.led("u", 0, ruler)
    assert await alter(four, {("u", 0): (last, second, ruler)}) == {("u", 0): None}
    record = await four.assignment("u")
    assert (record.adding, record.removing) == ({0: (last,)}, {0: (first,)})


async def test_a_partition_that_was_created_on_nodes_nobody_has_heard_of_can_be_moved_to_live_ones(
    four: SmallCluster,
) -> None:
    await four.create_by_wish(name="u", assignment={0: (8, 9), 1: (2, 1)})
    await four.led("u", 1, 2)
    assert await alter(four, {("u", 0): (2, 8)}) == {("u", 0): None}
    await four.led("u", 0, 2)
    assert await alter(four, {("u", 0): (2, 3)}) == {("u", 0): None}
    await four.until(lambda: ("u", 0) in four.nodes[3].hosted)
    await four.set_in_sync("u", 0, (2, 3))
    await four.until(lambda: four.nodes[1].cache.snapshot.topics["u"][0].replicas == (2, 3))
    assert (await four.state("u", 0)).leader == 2


async def test_a_tool_may_keep_a_replica_that_is_down(
    missing_one: tuple[SmallCluster, int, int],
) -> None:
    cluster, away, rest = missing_one
    wish = znodes.ReassignPartitions(partitions=(znodes.Reassignment("t", 0, (away, rest, 3)),))
    await cluster.observer.create(znodes.REASSIGN_PARTITIONS, wish.to_json())
    await moved(cluster, (away, rest, 3))
    assert await is_under_way(cluster)


async def test_a_replica_that_is_still_being_added_counts_as_added_when_it_is_named_again(
    missing_one: tuple[SmallCluster, int, int],
) -> None:
    """As in Kafka: what stays is what the partition had before all moves."""
    cluster, away, rest = missing_one
    new = 3 if (await cluster.elected()).id == 4 else 4
    await alter(cluster, {("t", 0): (away, rest, new)})
    await cluster.until(lambda: ("t", 0) in cluster.nodes[new].hosted)
    await cluster.bury(new)
    await cluster.until(lambda: new not in cluster.nodes[rest].cache.snapshot.brokers)
    refusal = (await alter(cluster, {("t", 0): (rest, new)}))["t", 0]
    assert refusal is not None
    assert refusal.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert await alter(cluster, {("t", 0): (rest, away)}) == {("t", 0): None}


async def test_a_replica_that_stays_may_be_on_a_node_whose_role_has_changed(
    missing_one: tuple[SmallCluster, int, int],
) -> None:
    cluster, away, rest = missing_one
    await cluster.start(away, ("coordinator",))
    await cluster.until(lambda: away in cluster.nodes[rest].cache.snapshot.brokers)
    assert await alter(cluster, {("t", 0): (away, rest, 3)}) == {("t", 0): None}


async def test_what_is_left_of_a_partition_is_led_before_its_move_ends(
    missing_one: tuple[SmallCluster, int, int],
) -> None:
    """All that stays is the last replica in sync, which is down."""
    cluster, away, rest = missing_one
    await cluster.start(away)
    await cluster.bury(rest)
    await cluster.led("t", 0, NO_LEADER)
    assert await alter(cluster, {("t", 0): (rest,)}) == {("t", 0): None}
    assert await is_under_way(cluster)
    assert (await cluster.state("t", 0)).isr == (rest,)

    await cluster.start(rest)
    await settled(cluster, (rest,))
    assert (await cluster.state("t", 0)).leader == rest


@pytest.mark.parametrize("topic", sorted(STATE_TOPICS))
async def test_a_coordinator_whose_replica_is_moved_away_is_waited_for_no_longer_than_its_answer(
    four: SmallCluster, topic: str
) -> None:
    """It is in no list of replicas any more, and hears of its successor by StopReplica alone."""
    await four.create(topic, {0: (2,)})
    await four.led(topic, 0, 2)
    await alter(four, {(topic, 0): (3,)})
    await four.until(lambda: (topic, 0) in four.nodes[3].hosted)
    await four.set_in_sync(topic, 0, (2, 3))
    await four.until(lambda: four.nodes[3].hosted[topic, 0].leader == 3)
    assert (topic, 0) not in four.nodes[2].hosted
    components = (await four.elected()).controller._components
    assert components is not None
    assert not components.term.handovers.is_awaited(2)


async def test_the_znode_of_tools_is_obeyed_and_taken_away(four: SmallCluster) -> None:
    wish = znodes.ReassignPartitions(
        partitions=(znodes.Reassignment("t", 0, (2, 3)), znodes.Reassignment("no", 0, (1,)))
    )
    await four.observer.create(znodes.REASSIGN_PARTITIONS, wish.to_json())
    await moved(four, (2, 3, 1))
    await four.set_in_sync("t", 0, (1, 2, 3))
    await moved(four, (2, 3))
    await four.gone(znodes.REASSIGN_PARTITIONS)
    again = znodes.ReassignPartitions(partitions=(znodes.Reassignment("t", 0, (3, 2)),))
    await four.observer.create(znodes.REASSIGN_PARTITIONS, again.to_json())
    await moved(four, (3, 2))
    await four.gone(znodes.REASSIGN_PARTITIONS)


async def test_a_znode_nobody_can_read_is_taken_away(four: SmallCluster) -> None:
    await four.observer.create(znodes.REASSIGN_PARTITIONS, b"{nonsense")
    await four.gone(znodes.REASSIGN_PARTITIONS)


async def test_deleting_a_topic_ends_its_move(four: SmallCluster) -> None:
    await alter(four, {("t", 0): (3, 2)})
    await four.until(lambda: ("t", 0) in four.nodes[3].hosted)
    await four.observer.create(znodes.deletion_path("t"))
    await four.gone(znodes.deletion_path("t"))
    assert all(("t", 0) not in node.hosted for node in four.nodes.values())
    assert await four.observer.exists(znodes.topic_path("t")) is None


async def test_a_replica_moved_away_is_deleted_when_its_node_is_back(four: SmallCluster) -> None:
    """The old replica's node is away at the end of the move."""
    ruler = (await four.elected()).id
    away = next(node for node in (1, 2) if node != ruler)
    rest = 3 - away
    await four.bury(away)
    await four.led("t", 0, rest)
    await alter(four, {("t", 0): (rest, 3)})
    await four.set_in_sync("t", 0, (rest, 3))
    await moved(four, (rest, 3))
    back = await four.start(away)
    await four.until(
        lambda: any(
            order.node == away and order.kind == "StopReplica" and back.is_up
            for order in four.orders[-20:]
        )
    )


async def test_many_moves_of_a_tool_leave_time_for_other_things(four: SmallCluster) -> None:
    """They are begun some at a time; a topic that is created meanwhile does not wait for all."""
    await four.create("many", dict.fromkeys(range(90), (1, 2)))
    await four.led("many", 89, 1)
    wish = znodes.ReassignPartitions(
        partitions=tuple(znodes.Reassignment("many", index, (2, 3)) for index in range(90))
    )
    await four.observer.create(znodes.REASSIGN_PARTITIONS, wish.to_json())
    await four.until(
        lambda: (
            (info := four.nodes[1].cache.snapshot.partition("many", 0)) is not None
            and 3 in info.replicas
        )
    )
    await four.create("new", {0: (1,)})
    await four.led("new", 0, 1)
    assert not (await four.assignment("many")).adding.get(89)
    for index in range(90):
        await four.until(
            lambda: (
                (info := four.nodes[1].cache.snapshot.partition("many", index)) is not None  # noqa: B023
                and 3 in info.replicas
            )
        )
        await four.set_in_sync("many", index, (1, 2, 3))
    await four.gone(znodes.REASSIGN_PARTITIONS)
    assert (await four.assignment("many")).partitions[89] == (2, 3)


async def test_wishes_that_are_fulfilled_together_are_struck_out_together(
    four: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write of the znode has all that is left of it read again."""
    await four.create("many", dict.fromkeys(range(10), (1, 2)))
    await four.led("many", 9, 1)
    zookeeper = (await four.elected()).zookeeper
    written: list[type[Op]] = []
    multi = zookeeper.multi

    async def noted(*operations: Op) -> list[Any]:
        written.extend(
            type(operation)
            for operation in operations
            if operation.path == znodes.REASSIGN_PARTITIONS
        )
        return await multi(*operations)

    monkeypatch.setattr(zookeeper, "multi", noted)
    wish = znodes.ReassignPartitions(
        partitions=tuple(znodes.Reassignment("many", index, (2, 3)) for index in range(10))
    )
    await four.observer.create(znodes.REASSIGN_PARTITIONS, wish.to_json())
    await four.until(
        lambda: (
            len([key for key in four.nodes[3].hosted if key[0] == "many"]) == 10
            and four.knows_leader("many", 9, 1)
        )
    )
    caught_up = [
        Set(
            znodes.partition_state_path("many", index),
            dataclasses.replace(await four.state("many", index), isr=(1, 2, 3)).to_json(),
        )
        for index in range(10)
    ]
    await four.observer.multi(*caught_up)
    await four.gone(znodes.REASSIGN_PARTITIONS)
    assert set((await four.assignment("many")).partitions.values()) == {(2, 3)}
    assert written == [Delete]


async def test_a_move_of_a_tool_that_a_request_calls_off_is_not_begun_again(
    four: SmallCluster,
) -> None:
    wish = znodes.ReassignPartitions(partitions=(znodes.Reassignment("t", 0, (2, 3)),))
    await four.observer.create(znodes.REASSIGN_PARTITIONS, wish.to_json())
    await moved(four, (2, 3, 1))
    assert await alter(four, {("t", 0): None}) == {("t", 0): None}
    assert await four.observer.exists(znodes.REASSIGN_PARTITIONS) is None
    await settled(four, (2, 1))


async def test_a_request_wins_against_the_wish_of_a_tool_that_was_fulfilled_just_before(
    four: SmallCluster,
) -> None:
    wish = znodes.ReassignPartitions(partitions=(znodes.Reassignment("t", 0, (2, 3)),))
    await four.observer.create(znodes.REASSIGN_PARTITIONS, wish.to_json())
    await moved(four, (2, 3, 1))
    controller = (await four.elected()).controller

    async def work(components: ControllerComponents) -> None:
        await four.set_in_sync("t", 0, (1, 2, 3))
        await components.reassignments.resume([("t", 0)])
        assert not components.context.reassignments
        await components.reassignments.alter({("t", 0): (3, 4)})

    await controller.ask("fulfil, then move on", work)
    assert await four.observer.exists(znodes.REASSIGN_PARTITIONS) is None
    await moved(four, (3, 4, 2))
    await four.set_in_sync("t", 0, (2, 3, 4))
    await settled(four, (3, 4))


async def test_a_request_that_replaces_a_move_of_a_tool_is_not_undone_when_the_tools_others_end(
    four: SmallCluster,
) -> None:
    await four.create("u", {0: (1, 2)})
    await four.led("u", 0, 1)
    wished = wished_by_tool({("t", 0): (2, 3), ("u", 0): (2, 3)})
    await four.observer.create(znodes.REASSIGN_PARTITIONS, wished)
    await moved(four, (2, 3, 1))
    await four.until(lambda: ("u", 0) in four.nodes[3].hosted)

    assert await alter(four, {("t", 0): (3, 4)}) == {("t", 0): None}
    data, _stat = await four.observer.get(znodes.REASSIGN_PARTITIONS)
    assert data == wished_by_tool({("u", 0): (2, 3)})
    await four.set_in_sync("u", 0, (1, 2, 3))
    await four.gone(znodes.REASSIGN_PARTITIONS)
    await moved(four, (3, 4, 2, 1))
    await four.set_in_sync("t", 0, (1, 2, 3, 4))
    await settled(four, (3, 4))


async def test_a_request_replaces_a_wish_of_a_tool_that_is_not_begun_yet(
    four: SmallCluster,
) -> None:
    await four.create("many", dict.fromkeys(range(AT_ONCE + 3), (1, 2)))
    await four.led("many", AT_ONCE + 2, 1)
    wished = {("many", index): (2, 3) for index in range(AT_ONCE + 3)}
    replaced, called_off, left = (("many", AT_ONCE + number) for number in range(3))

    async def work(components: ControllerComponents) -> Any:
        await four.observer.create(znodes.REASSIGN_PARTITIONS, wished_by_tool(wished))
        await components.reassignments.process_admin_znode()
        return await components.reassignments.alter({replaced: (3, 4), called_off: None})

    outcomes = await (await four.elected()).controller.ask("begin some, then another", work)
    assert outcomes == {replaced: None, called_off: None}
    await four.until(lambda: left in four.nodes[3].hosted)
    await alter(four, {})  # behind all that was queued
    record = await four.assignment("many")
    assert record.partitions[replaced[1]] == (3, 4, 1, 2)
    assert record.partitions[called_off[1]] == (1, 2)
    assert record.partitions[left[1]] == (2, 3, 1)


async def test_a_request_that_is_refused_leaves_the_wish_of_a_tool(four: SmallCluster) -> None:
    wished = wished_by_tool({("t", 0): (2, 3)})
    await four.observer.create(znodes.REASSIGN_PARTITIONS, wished)
    await moved(four, (2, 3, 1))
    refusal = (await alter(four, {("t", 0): (9,)}))["t", 0]
    assert refusal is not None
    assert (await four.observer.get(znodes.REASSIGN_PARTITIONS))[0] == wished
    await four.set_in_sync("t", 0, (1, 2, 3))
    await settled(four, (2, 3))
    await four.gone(znodes.REASSIGN_PARTITIONS)


async def test_a_tool_that_writes_behind_a_request_has_the_last_word(four: SmallCluster) -> None:
    await four.observer.create(znodes.REASSIGN_PARTITIONS, wished_by_tool({("t", 0): (2, 3)}))
    await moved(four, (2, 3, 1))
    await alter(four, {("t", 0): (3, 4)})
    await four.observer.create(znodes.REASSIGN_PARTITIONS, wished_by_tool({("t", 0): (2, 4)}))
    await moved(four, (2, 4, 1))
    await four.set_in_sync("t", 0, (1, 2, 4))
    await settled(four, (2, 4))
    await four.gone(znodes.REASSIGN_PARTITIONS)


async def test_a_wish_of_a_tool_that_is_refused_is_struck_out_while_its_partition_is_moved(
    four: SmallCluster,
) -> None:
    await alter(four, {("t", 0): (3, 4)})
    await four.observer.create(znodes.REASSIGN_PARTITIONS, wished_by_tool({("t", 0): (9,)}))
    await four.gone(znodes.REASSIGN_PARTITIONS)
    await moved(four, (3, 4, 1, 2))
