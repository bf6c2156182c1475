"""The controller at work: elections, leaders, nodes that come and go.

Source: docs/spec/cluster.md §2.16 checks C1 to C6.
"""

from __future__ import annotations

import asyncio

from barnabas.protocol.zookeeper import znodes
from tests.controller.small_cluster import SmallCluster


async def test_exactly_one_of_three_nodes_is_elected(cluster: SmallCluster) -> None:
    for node_id in (1, 2, 3):
        await cluster.start(node_id)
    first = await cluster.elected()
    await cluster.until(
        lambda: all(
            node.cache.snapshot.controller_id == first.id
            and set(node.cache.snapshot.brokers) == {1, 2, 3}
            for node in cluster.nodes.values()
        )
    )
    assert [node.id for node in cluster.nodes.values() if node.controller.is_active] == [first.id]
    assert int((await cluster.observer.get(znodes.CONTROLLER_EPOCH))[0]) == 1


async def test_another_controller_follows_a_dead_one_with_the_next_epoch(
    cluster: SmallCluster,
) -> None:
    for node_id in (1, 2, 3):
        await cluster.start(node_id)
    await cluster.create("t", {0: (2, 3), 1: (3, 2)})
    first = await cluster.elected()
    await cluster.led("t", 0, 2)
    await cluster.bury(first.id)
    second = await cluster.elected()
    assert second.id != first.id
    assert second.controller.epoch == 2
    await cluster.until(
        lambda: all(
            node.cache.snapshot.controller_id == second.id for node in cluster.nodes.values()
        )
    )


async def test_only_coordinators_are_elected(cluster: SmallCluster) -> None:
    await cluster.start(1, ("broker",))
    await cluster.start(2, ("coordinator",))
    assert (await cluster.elected()).id == 2


async def test_a_topic_in_the_oldest_format_gets_leaders_and_an_id(cluster: SmallCluster) -> None:
    """docs/spec/cluster.md §1.11 check Z7."""
    await cluster.start(1)
    await cluster.elected()
    payload = b'{"version":1,"partitions":{"0":[1],"1":[1]}}'
    await cluster.observer.create("/brokers/topics/old", payload)
    await cluster.led("old", 1, 1)
    state = await cluster.state("old", 0)
    assert (state.leader, state.leader_epoch, state.isr) == (1, 0, (1,))
    assert len(cluster.nodes[1].cache.snapshot.topic_ids["old"]) == 16
    assert cluster.nodes[1].hosted["old", 0].is_new


async def test_nodes_hear_of_each_other_before_they_hear_of_leaders(cluster: SmallCluster) -> None:
    await cluster.start(1)
    await cluster.create("t", {0: (1, 2)})
    await cluster.elected()
    await cluster.led("t", 0, 1)
    await cluster.start(2)
    await cluster.until(lambda: ("t", 0) in cluster.nodes[2].hosted)
    kinds = [order.kind for order in cluster.orders if order.node == 2]
    assert kinds.index("UpdateMetadata") < kinds.index("LeaderAndIsr")


async def test_a_dead_leader_is_followed_by_the_first_live_replica_in_sync(
    cluster: SmallCluster,
) -> None:
    """docs/spec/cluster.md §2.16 check C3."""
    for node_id in (1, 2, 3):
        await cluster.start(node_id)
    await cluster.create("t", {0: (3, 1, 2)})
    await cluster.led("t", 0, 3)
    await cluster.bury(3)
    await cluster.led("t", 0, 1)
    state = await cluster.state("t", 0)
    assert state.leader == 1
    assert state.isr == (1, 2)
    assert state.leader_epoch >= 1
    await cluster.until(lambda: cluster.nodes[1].hosted["t", 0].leader == 1)


async def test_the_only_replica_of_a_partition_stays_in_its_in_sync_set(
    cluster: SmallCluster,
) -> None:
    """docs/spec/cluster.md §2.16 check C4: without its node nobody leads; with it, it leads again,
    one epoch later.
    """
    await cluster.start(1, ("broker", "coordinator"))
    await cluster.start(2, ("broker",))
    await cluster.create("t", {0: (2,)})
    await cluster.led("t", 0, 2)
    await cluster.bury(2)
    await cluster.led("t", 0, -1)
    dead = await cluster.state("t", 0)
    assert (dead.leader, dead.isr) == (-1, (2,))
    await cluster.start(2, ("broker",))
    await cluster.led("t", 0, 2)
    back = await cluster.state("t", 0)
    assert back.leader_epoch > dead.leader_epoch


async def test_nobody_outside_the_in_sync_set_is_elected_unless_the_topic_allows_it(
    cluster: SmallCluster,
) -> None:
    """docs/spec/cluster.md §2.16 check C5."""
    for node_id in (1, 2, 3):
        await cluster.start(node_id)
    await cluster.create("t", {0: (1, 2)})
    await cluster.led("t", 0, 1)
    alone = znodes.PartitionState(leader=1, leader_epoch=0, controller_epoch=1, isr=(1,))
    await cluster.observer.set(znodes.partition_state_path("t", 0), alone.to_json())
    await cluster.bury(1)
    await cluster.led("t", 0, -1)
    cluster.unclean_topics.add("t")
    await cluster.start(4)
    await cluster.led("t", 0, 2)
    assert (await cluster.state("t", 0)).isr == (2,)


async def test_a_node_that_came_back_unseen_is_treated_as_one_that_died(
    cluster: SmallCluster,
) -> None:
    """docs/spec/cluster.md §2.16 check C6, with one replica: the new life leads in a new epoch."""
    await cluster.start(1)
    await cluster.create("t", {0: (1,)})
    await cluster.start(2, ("broker",))
    await cluster.create("u", {0: (2,)})
    await cluster.led("u", 0, 2)
    before = await cluster.state("u", 0)
    cluster.nodes[2].zookeeper.expire()
    await cluster.until(
        lambda: (
            (found := cluster.nodes[1].cache.snapshot.partition("u", 0)) is not None
            and found.leader == 2
            and found.leader_epoch > before.leader_epoch
        )
    )
    await cluster.until(  # it is told by another request than all others
        lambda: cluster.nodes[2].hosted["u", 0].leader_epoch > before.leader_epoch
    )


async def test_a_follower_that_came_back_unseen_leaves_the_in_sync_set_until_it_caught_up(
    cluster: SmallCluster,
) -> None:
    """docs/spec/cluster.md §2.16 check C6: what was meant for its former life is refused, so it
    keeps what it was told.
    """
    await cluster.start(1)
    await cluster.start(2, ("broker",))
    await cluster.create("t", {0: (1, 2)})
    await cluster.led("t", 0, 1)
    await cluster.until(lambda: ("t", 0) in cluster.nodes[2].hosted)
    before = await cluster.state("t", 0)
    cluster.nodes[2].zookeeper.expire()
    await cluster.until(
        lambda: (
            (info := cluster.nodes[1].cache.snapshot.partition("t", 0)) is not None
            and info.isr == (1,)
            and 2 in cluster.nodes[1].cache.snapshot.brokers
        )
    )
    state = await cluster.state("t", 0)
    assert (state.leader, state.isr) == (1, (1,))
    assert state.leader_epoch > before.leader_epoch
    await cluster.until(lambda: cluster.nodes[2].hosted["t", 0].leader_epoch == state.leader_epoch)
    epoch = cluster.nodes[2].registration.broker_epoch
    obeyed = [order for order in cluster.orders if order.node == 2 and not order.code]
    assert all(
        order.request.broker_epoch == epoch for order in obeyed if order.kind == "StopReplica"
    )


async def test_a_killed_node_registers_at_once_when_it_is_started_again(
    cluster: SmallCluster,
) -> None:
    """The note in its data directory names the session of its former life."""
    await cluster.start(1)
    await cluster.create("t", {0: (1,)})
    await cluster.led("t", 0, 1)
    before = await cluster.state("t", 0)
    await cluster.kill(1)
    again = await cluster.start(1)
    await cluster.until(
        lambda: (
            again.controller.is_active
            and (found := again.hosted.get(("t", 0))) is not None
            and found.leader_epoch > before.leader_epoch
        )
    )
    assert again.controller.epoch == 2


async def test_a_node_that_rules_from_its_start_never_tells_of_a_part_of_a_topic(
    cluster: SmallCluster,
) -> None:
    """aiokafka's producer ends when a partition that it knows is not named any more."""
    for node_id in (1, 2):
        await cluster.start(node_id)
    first = await cluster.elected()
    other = next(node_id for node_id in (1, 2) if node_id != first.id)
    await cluster.create("t", {0: (first.id, other), 1: (other, first.id), 2: (other, first.id)})
    for index, leader in enumerate((first.id, other, other)):
        await cluster.led("t", index, leader)
    await cluster.kill(first.id)
    again = await cluster.start(first.id)
    told: list[int] = []
    cache = again.cache
    cache.on_change.append(lambda: told.append(len(cache.snapshot.topics.get("t", ()))))
    await cluster.until(lambda: again.controller.is_active and len(again.hosted) == 3)
    await cluster.until(lambda: bool(told) and told[-1] == 3)
    assert set(told) <= {0, 3}


async def test_a_lost_answer_to_the_election_does_not_leave_the_cluster_without_controller(
    cluster: SmallCluster,
) -> None:
    node = await cluster.start(1)
    await cluster.elected()
    await cluster.observer.delete(znodes.CONTROLLER)
    node.zookeeper.lose_next_answer()
    await cluster.until(lambda: node.controller.is_active and node.controller.epoch > 1)
    stat = await cluster.observer.exists(znodes.CONTROLLER)
    assert stat is not None
    assert stat.ephemeral_owner == node.zookeeper.session_id


async def test_a_lost_connection_in_the_middle_of_an_election_does_not_end_the_term(
    cluster: SmallCluster,
) -> None:
    for node_id in (1, 2, 3):
        await cluster.start(node_id)
    first = await cluster.elected()
    others = [node_id for node_id in (1, 2, 3) if node_id != first.id]
    await cluster.create("t", {0: (*others, first.id), 1: (*others, first.id)})
    await cluster.led("t", 0, others[0])
    await cluster.led("t", 1, others[0])
    first.zookeeper.lose_next_write()
    await cluster.bury(others[0])
    await cluster.led("t", 0, others[1])
    await cluster.led("t", 1, others[1])
    assert first.controller.is_active
    assert first.controller.epoch == 1
    assert (await cluster.state("t", 0)).leader_epoch == 1, "nothing was written twice"


async def test_an_expired_session_ends_the_term_before_anything_of_the_new_one(
    cluster: SmallCluster,
) -> None:
    node = await cluster.start(1)
    await cluster.create("t", {0: (1,)})
    await cluster.led("t", 0, 1)
    epoch = node.registration.broker_epoch
    node.zookeeper.expire()
    assert not node.controller.is_active
    await cluster.until(
        lambda: node.controller.is_active and node.registration.broker_epoch > epoch
    )
    assert node.controller.epoch == 2


async def test_orders_to_a_deaf_node_are_sent_until_it_hears(cluster: SmallCluster) -> None:
    await cluster.start(1)
    second = await cluster.start(2, ("broker",))
    await cluster.elected()
    second.is_up = False
    await cluster.create("t", {0: (2,)})
    await asyncio.sleep(0)
    second.is_up = True
    await cluster.until(lambda: ("t", 0) in second.hosted)


async def test_added_partitions_get_leaders(cluster: SmallCluster) -> None:
    await cluster.start(1)
    await cluster.create("t", {0: (1,)})
    await cluster.led("t", 0, 1)
    data, stat = await cluster.observer.get("/brokers/topics/t")
    record = znodes.TopicAssignment.from_json(data)
    grown = znodes.TopicAssignment(partitions={0: (1,), 1: (1,)}, topic_id=record.topic_id)
    await cluster.observer.set("/brokers/topics/t", grown.to_json(), stat.version)
    await cluster.led("t", 1, 1)


async def test_a_replica_on_a_failed_disk_is_taken_offline(cluster: SmallCluster) -> None:
    await cluster.start(1)
    await cluster.start(2)
    cluster.nodes[1].broken.add(("t", 0))
    await cluster.create("t", {0: (1, 2)})
    await cluster.led("t", 0, 2)
    assert (await cluster.state("t", 0)).isr == (2,)
    info = cluster.nodes[2].cache.snapshot.partition("t", 0)
    assert info is not None
    assert info.offline == (1,)


async def test_a_replica_serves_again_when_its_node_tells_of_its_disk(
    cluster: SmallCluster,
) -> None:
    node = await cluster.start(1)
    node.broken.add(("t", 0))
    await cluster.create("t", {0: (1,), 1: (1,)})
    await cluster.led("t", 0, -1)
    node.broken.clear()
    note = znodes.LogDirEvent(broker=1).to_json()
    await cluster.observer.create(znodes.LOG_DIR_EVENT_PREFIX, note, sequence=True)
    await cluster.led("t", 0, 1)
    assert (await cluster.state("t", 0)).leader_epoch > 0
    assert node.hosted["t", 0].leader == 1


async def test_a_tool_may_ask_for_preferred_leaders(cluster: SmallCluster) -> None:
    for node_id in (1, 2):
        await cluster.start(node_id)
    await cluster.create("t", {0: (1, 2)})
    await cluster.led("t", 0, 1)
    state = await cluster.state("t", 0)
    moved = znodes.PartitionState(leader=2, leader_epoch=1, controller_epoch=1, isr=(1, 2))
    assert state.isr == (1, 2)
    await cluster.observer.set(znodes.partition_state_path("t", 0), moved.to_json())
    wish = znodes.PreferredElection(partitions=(znodes.TopicPartition("t", 0),))
    await cluster.observer.create(znodes.PREFERRED_ELECTION, wish.to_json())
    await cluster.until(
        lambda: (
            (found := cluster.nodes[1].cache.snapshot.partition("t", 0)) is not None
            and found.leader_epoch == 2
        )
    )
    assert (await cluster.state("t", 0)).leader == 1
    gone = asyncio.Event()
    if await cluster.observer.exists(znodes.PREFERRED_ELECTION, gone.set) is not None:
        async with asyncio.timeout(60):
            await gone.wait()


async def test_a_node_that_stops_in_order_hands_its_leadership_over(cluster: SmallCluster) -> None:
    """docs/spec/cluster.md §2.16 check C7 without load."""
    for node_id in (1, 2):
        await cluster.start(node_id)
    await cluster.create("t", {0: (2, 1)})
    await cluster.create("alone", {0: (2,)})
    await cluster.led("t", 0, 2)
    await cluster.led("alone", 0, 2)
    controller = (await cluster.elected()).controller
    answered: asyncio.Future[tuple[int, list[tuple[str, int]]]] = (
        asyncio.get_running_loop().create_future()
    )
    epoch = cluster.nodes[2].registration.broker_epoch
    controller.prepare_shutdown(2, epoch, lambda code, left: answered.set_result((code, left)))
    assert await answered == (0, [])
    await cluster.led("t", 0, 1)
    assert (await cluster.state("t", 0)).isr == (1,)
    assert (await cluster.state("alone", 0)).leader == 2
