"""Partitions added, leaders elected and replicas moved by request: the codes a client sees."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.controller.create_partitions import PartitionCreator
from barnabas.broker.handlers.create_partitions import CreatePartitionsHandler
from barnabas.broker.handlers.elect_leaders import PREFERRED, UNCLEAN, ElectLeadersHandler
from barnabas.broker.handlers.partition_reassignments import PartitionReassignmentsHandler
from barnabas.coordinator.ports import STATE_TOPICS
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    alter_partition_reassignments,
    create_partitions,
    elect_leaders,
    list_partition_reassignments,
)
from barnabas.protocol.zookeeper import znodes
from tests.controller.small_cluster import SmallCluster, SmallNode
from tests.handlers.peer import call, over_the_wire


@pytest.fixture
async def ruler(cluster: SmallCluster) -> SmallNode:
    """The controller of three nodes with one topic."""
    for node_id in (1, 2, 3):
        await cluster.start(node_id)
    await cluster.create("t", {0: (1, 2)})
    await cluster.led("t", 0, 1)
    return await cluster.elected()


def partitions_handler(cluster: SmallCluster, node: SmallNode) -> CreatePartitionsHandler:
    return CreatePartitionsHandler(
        PartitionCreator(cluster.observer),
        node.cache,
        is_controller=lambda: node.controller.is_active,
        heard=node.controller.heard,
    )


async def grown(
    cluster: SmallCluster,
    node: SmallNode,
    *topics: create_partitions.Topic,
    version: int = 3,
    validate_only: bool = False,
    timeout_ms: int = 60_000,
) -> dict[str, int]:
    request = create_partitions.CreatePartitionsRequest(
        topics=topics, timeout_ms=timeout_ms, validate_only=validate_only
    )
    answer = await partitions_handler(cluster, node).create(call(request, version))
    results = over_the_wire(answer, version).results
    return {result.name: result.error_code for result in results}


def topic(name: str, count: int, *assigned: tuple[int, ...]) -> create_partitions.Topic:
    chosen = [create_partitions.Assignment(broker_ids=each) for each in assigned] or None
    return create_partitions.Topic(name=name, count=count, assignments=chosen)


@pytest.mark.parametrize("version", range(4))
async def test_added_partitions_are_led_and_known_everywhere_when_it_is_answered(
    cluster: SmallCluster, ruler: SmallNode, version: int
) -> None:
    assert await grown(cluster, ruler, topic("t", 4), version=version) == {"t": 0}
    record = await cluster.assignment("t")
    assert sorted(record.partitions) == [0, 1, 2, 3]
    assert all(len(set(replicas)) == 2 for replicas in record.partitions.values())
    for node in cluster.nodes.values():
        assert all(node.cache.snapshot.leader("t", index) is not None for index in range(4))


async def test_the_replicas_of_added_partitions_go_on_where_those_of_the_first_began(
    cluster: SmallCluster, ruler: SmallNode
) -> None:
    """The last vector of docs/spec/cluster.md §2.10."""
    await cluster.create("v", {0: (2, 3), 1: (3, 1), 2: (1, 2)})
    await cluster.led("v", 2, 1)
    assert await grown(cluster, ruler, topic("v", 6)) == {"v": 0}
    record = await cluster.assignment("v")
    assert [record.partitions[index] for index in (3, 4, 5)] == [(2, 3), (3, 1), (1, 2)]


async def test_replicas_of_added_partitions_may_be_chosen(
    cluster: SmallCluster, ruler: SmallNode
) -> None:
    assert await grown(cluster, ruler, topic("t", 3, (3, 1), (2, 3))) == {"t": 0}
    assert (await cluster.assignment("t")).partitions == {0: (1, 2), 1: (3, 1), 2: (2, 3)}


@pytest.mark.parametrize(
    ("wish", "code"),
    [
        (topic("u", 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (topic("t", 1), ErrorCode.INVALID_PARTITIONS),
        (topic("t", 0), ErrorCode.INVALID_PARTITIONS),
        (topic("t", 10**6), ErrorCode.INVALID_PARTITIONS),
        (topic("t", 3, (1, 2)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", 2, (1,)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", 2, (1, 1)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", 2, (1, 9)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
async def test_partitions_that_cannot_be_added_have_their_code(
    cluster: SmallCluster, ruler: SmallNode, wish: create_partitions.Topic, code: ErrorCode
) -> None:
    assert await grown(cluster, ruler, wish) == {wish.name: code}
    assert (await cluster.assignment("t")).partitions == {0: (1, 2)}


@pytest.mark.parametrize("name", sorted(STATE_TOPICS))
async def test_a_state_topic_never_grows_since_its_keys_would_be_looked_for_elsewhere(
    cluster: SmallCluster, ruler: SmallNode, name: str
) -> None:
    """KAFKA-7801: docs/spec/transactions.md §1.1."""
    await cluster.create(name, {0: (1, 2)})
    await cluster.led(name, 0, 1)
    wish = topic(name, 2)
    assert await grown(cluster, ruler, wish) == {name: ErrorCode.INVALID_PARTITIONS}
    assert (await cluster.assignment(name)).partitions == {0: (1, 2)}


async def test_a_topic_does_not_grow_while_it_is_moved_or_deleted_or_named_twice(
    cluster: SmallCluster, ruler: SmallNode
) -> None:
    assert await grown(cluster, ruler, topic("t", 2), topic("t", 3)) == {"t": 42}
    await reassigned(ruler, ("t", 0, (1, 3)))
    assert await grown(cluster, ruler, topic("t", 2)) == {"t": ErrorCode.REASSIGNMENT_IN_PROGRESS}
    await cluster.observer.create(znodes.deletion_path("t"))
    assert await grown(cluster, ruler, topic("t", 2)) == {"t": ErrorCode.INVALID_TOPIC_EXCEPTION}


async def test_validation_writes_nothing_and_no_time_leaves_no_time(
    cluster: SmallCluster, ruler: SmallNode
) -> None:
    assert await grown(cluster, ruler, topic("t", 2), validate_only=True) == {"t": 0}
    assert (await cluster.assignment("t")).partitions == {0: (1, 2)}
    late = await grown(cluster, ruler, topic("t", 2), timeout_ms=0)
    assert late == {"t": ErrorCode.REQUEST_TIMED_OUT}
    await cluster.until(lambda: ruler.cache.snapshot.leader("t", 1) is not None)


async def test_only_the_controller_adds_elects_and_moves(
    cluster: SmallCluster, ruler: SmallNode
) -> None:
    other = cluster.nodes[ruler.id % 3 + 1]
    code = ErrorCode.NOT_CONTROLLER
    assert await grown(cluster, other, topic("t", 2)) == {"t": code}
    assert (await elected(other, [("t", 0)])).error_code == code
    assert (await reassigned(other, ("t", 0, (1, 3)))).error_code == code
    assert (await listed(other)).error_code == code


async def elected(
    node: SmallNode,
    partitions: list[tuple[str, int]] | None,
    *,
    kind: int = PREFERRED,
    version: int = 2,
    timeout_ms: int = 60_000,
) -> Any:
    named = None
    if partitions is not None:
        named = [elect_leaders.TopicPartitions(topic=t, partitions=[i]) for t, i in partitions]
    request = elect_leaders.ElectLeadersRequest(
        election_type=kind, topic_partitions=named, timeout_ms=timeout_ms
    )
    handler = ElectLeadersHandler(node.controller, node.cache)
    return over_the_wire(await handler.elect(call(request, version)), version)


def codes(answer: Any) -> dict[tuple[str, int], int]:
    return {
        (result.topic, each.partition_id): each.error_code
        for result in answer.replica_election_results
        for each in result.partition_result
    }


@pytest.mark.parametrize("version", range(3))
async def test_an_election_is_answered_when_its_leader_is_known(
    cluster: SmallCluster, ruler: SmallNode, version: int
) -> None:
    await move_leader(cluster, ruler)
    answer = await elected(ruler, [("t", 0), ("t", 9)], version=version)
    assert codes(answer) == {("t", 0): 0, ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert ruler.cache.snapshot.leader("t", 0) == 2


async def test_where_all_are_asked_for_only_those_that_changed_are_told(
    cluster: SmallCluster, ruler: SmallNode
) -> None:
    assert codes(await elected(ruler, None)) == {}
    assert codes(await elected(ruler, [("t", 0)])) == {("t", 0): ErrorCode.ELECTION_NOT_NEEDED}
    await move_leader(cluster, ruler)
    assert codes(await elected(ruler, None)) == {("t", 0): ErrorCode.NONE}


async def test_a_kind_of_election_that_does_not_exist_is_refused(ruler: SmallNode) -> None:
    answer = await elected(ruler, [("t", 0)], kind=7)
    assert (answer.error_code, codes(answer)) == (42, {("t", 0): 42})
    unclean = await elected(ruler, [("t", 0)], kind=UNCLEAN)
    assert codes(unclean) == {("t", 0): ErrorCode.ELECTION_NOT_NEEDED}


async def move_leader(cluster: SmallCluster, ruler: SmallNode) -> None:
    """Replicas (2, 1) with 1 as leader: now somebody else is preferred."""
    await reassigned(ruler, ("t", 0, (2, 1)))
    await cluster.until(
        lambda: (
            (info := ruler.cache.snapshot.partition("t", 0)) is not None
            and info.replicas == (2, 1)
            and info.leader == 1
        )
    )


async def reassigned(node: SmallNode, *wishes: tuple[str, int, tuple[int, ...] | None]) -> Any:
    request = alter_partition_reassignments.AlterPartitionReassignmentsRequest(
        topics=[
            alter_partition_reassignments.Topic(
                name=name,
                partitions=[
                    alter_partition_reassignments.Partition(partition_index=i, replicas=target)
                ],
            )
            for name, i, target in wishes
        ]
    )
    return over_the_wire(
        await PartitionReassignmentsHandler(node.controller).alter(call(request, 0)), 0
    )


async def listed(node: SmallNode, topics: dict[str, list[int]] | None = None) -> Any:
    named = None
    if topics is not None:
        named = [
            list_partition_reassignments.Topic(name=name, partition_indexes=indexes)
            for name, indexes in topics.items()
        ]
    request = list_partition_reassignments.ListPartitionReassignmentsRequest(topics=named)
    return over_the_wire(
        await PartitionReassignmentsHandler(node.controller).list(call(request, 0)), 0
    )


async def test_moves_under_way_are_listed_until_they_are_over(
    cluster: SmallCluster, ruler: SmallNode
) -> None:
    answer = await reassigned(ruler, ("t", 0, (3, 2)), ("u", 0, (1,)))
    outcomes = {result.name: result.partitions[0].error_code for result in answer.responses}
    assert outcomes == {"t": 0, "u": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    (moving,) = (await listed(ruler)).topics
    (row,) = moving.partitions
    assert row.replicas == (3, 2, 1)
    assert (row.adding_replicas, row.removing_replicas) == ((3,), (1,))
    assert not (await listed(ruler, {"t": [1], "u": [0]})).topics
    assert (await listed(ruler, {"t": [0]})).topics
    await cluster.set_in_sync("t", 0, (1, 2, 3))
    await cluster.led("t", 0, 3)
    assert not (await listed(ruler)).topics


async def test_a_partition_named_twice_is_moved_as_the_last_wish_says(ruler: SmallNode) -> None:
    answer = await reassigned(ruler, ("t", 0, (1, 2)), ("t", 0, (3, 2)))
    [told] = answer.responses
    assert [each.error_code for each in told.partitions] == [0]
    [moving] = (await listed(ruler)).topics
    assert moving.partitions[0].replicas == (3, 2, 1)
