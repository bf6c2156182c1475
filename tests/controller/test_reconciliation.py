"""Nothing that gets lost on the way stays lost: watches, notes, orders."""

from __future__ import annotations

from barnabas.broker.controller.components import ControllerComponents
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.zookeeper import znodes
from tests.controller.small_cluster import SmallCluster


async def reconcile(cluster: SmallCluster) -> None:
    """What the controller does every ten seconds, now."""

    async def work(components: ControllerComponents) -> None:
        await components.reconciliation.step()

    await (await cluster.elected()).controller.ask("reconcile", work)


def deafen(cluster: SmallCluster) -> None:
    """Every watch anybody holds is gone without having fired."""
    for node in cluster.nodes.values():
        node.zookeeper.lose_watches()


async def test_a_topic_whose_watch_was_lost_is_found(cluster: SmallCluster) -> None:
    await cluster.start(1)
    await cluster.elected()
    deafen(cluster)
    await cluster.create("t", {0: (1,)})
    await reconcile(cluster)
    await cluster.led("t", 0, 1)


async def test_partitions_whose_watch_was_lost_are_found(cluster: SmallCluster) -> None:
    await cluster.start(1)
    await cluster.create("t", {0: (1,)})
    await cluster.led("t", 0, 1)
    deafen(cluster)
    record = await cluster.assignment("t")
    grown = znodes.TopicAssignment(partitions={0: (1,), 1: (1,)}, topic_id=record.topic_id)
    await cluster.observer.set(znodes.topic_path("t"), grown.to_json())
    await reconcile(cluster)
    await cluster.led("t", 1, 1)


async def test_a_dead_node_whose_watch_was_lost_is_found(cluster: SmallCluster) -> None:
    await cluster.start(1)
    await cluster.start(2, ("broker",))
    await cluster.create("t", {0: (2, 1)})
    await cluster.led("t", 0, 2)
    deafen(cluster)
    await cluster.bury(2)
    await reconcile(cluster)
    await cluster.led("t", 0, 1)
    assert (await cluster.state("t", 0)).isr == (1,)


async def test_a_marked_topic_whose_watch_was_lost_is_deleted(cluster: SmallCluster) -> None:
    await cluster.start(1)
    await cluster.create("t", {0: (1,)})
    await cluster.led("t", 0, 1)
    deafen(cluster)
    await cluster.observer.create(znodes.deletion_path("t"))
    await reconcile(cluster)
    await cluster.gone(znodes.deletion_path("t"))


async def test_an_in_sync_set_that_nobody_announced_is_told_to_all(cluster: SmallCluster) -> None:
    for node_id in (1, 2):
        await cluster.start(node_id)
    await cluster.create("t", {0: (1, 2)})
    await cluster.led("t", 0, 1)
    await cluster.set_in_sync("t", 0, (1,))
    await reconcile(cluster)
    await cluster.until(
        lambda: all(
            (info := node.cache.snapshot.partition("t", 0)) is not None and info.isr == (1,)
            for node in cluster.nodes.values()
        )
    )


async def test_a_note_about_in_sync_sets_is_acted_on_and_taken_away(cluster: SmallCluster) -> None:
    for node_id in (1, 2):
        await cluster.start(node_id)
    await cluster.create("t", {0: (1, 2)})
    await cluster.led("t", 0, 1)
    await cluster.set_in_sync("t", 0, (1,))
    note = znodes.IsrChange(partitions=(znodes.TopicPartition("t", 0),)).to_json()
    path = await cluster.observer.create(znodes.ISR_CHANGE_PREFIX, note, sequence=True)
    await cluster.gone(path)
    await cluster.until(
        lambda: (
            (info := cluster.nodes[2].cache.snapshot.partition("t", 0)) is not None
            and info.isr == (1,)
        )
    )


async def test_wishes_of_tools_are_found_without_their_watch(cluster: SmallCluster) -> None:
    for node_id in (1, 2):
        await cluster.start(node_id)
    await cluster.create("t", {0: (1, 2)})
    await cluster.led("t", 0, 1)
    deafen(cluster)
    move = znodes.ReassignPartitions(partitions=(znodes.Reassignment("t", 0, (2, 1)),))
    await cluster.observer.create(znodes.REASSIGN_PARTITIONS, move.to_json())
    elect = znodes.PreferredElection(partitions=(znodes.TopicPartition("t", 0),))
    await reconcile(cluster)
    await cluster.gone(znodes.REASSIGN_PARTITIONS)
    deafen(cluster)
    await cluster.observer.create(znodes.PREFERRED_ELECTION, elect.to_json())
    await reconcile(cluster)
    await cluster.led("t", 0, 2)
    await cluster.gone(znodes.PREFERRED_ELECTION)


async def test_a_replica_that_could_not_take_its_role_over_is_told_again(
    cluster: SmallCluster,
) -> None:
    node = await cluster.start(1)
    node.refusals["t", 0] = ErrorCode.UNKNOWN_SERVER_ERROR
    await cluster.create("t", {0: (1,)})
    await cluster.until(lambda: cluster.knows_leader("t", 0, 1))
    assert ("t", 0) not in node.hosted
    node.refusals.clear()
    await reconcile(cluster)
    await cluster.until(lambda: ("t", 0) in node.hosted)
    assert await node.controller.heard(60)
    before = len(cluster.orders)
    await reconcile(cluster)
    assert await node.controller.heard(60)
    assert len(cluster.orders) == before, "nothing is told twice"


async def test_a_partition_may_be_led_as_soon_as_its_topic_allows_to_lose_records(
    cluster: SmallCluster,
) -> None:
    """docs/spec/cluster.md §2.16 check C5, without any other change that would make the controller
    look again.
    """
    for node_id in (1, 2):
        await cluster.start(node_id, ("broker", "coordinator") if node_id == 2 else ("broker",))
    await cluster.create("t", {0: (1, 2)})
    await cluster.led("t", 0, 1)
    await cluster.set_in_sync("t", 0, (1,))
    await cluster.bury(1)
    await cluster.led("t", 0, -1)
    cluster.unclean_topics.add("t")
    (await cluster.elected()).controller.settings_changed()
    await cluster.led("t", 0, 2)
    assert (await cluster.state("t", 0)).isr == (2,)


async def test_every_topic_is_looked_at_in_its_turn(cluster: SmallCluster) -> None:
    for node_id in (1, 2):
        await cluster.start(node_id)
    names = [f"t{number}" for number in range(4)]
    for name in names:
        await cluster.create(name, dict.fromkeys(range(200), (1, 2)))
        await cluster.led(name, 199, 1)
    for name in names:
        await cluster.set_in_sync(name, 7, (1,))
    for _ in range(2):
        await reconcile(cluster)
    for name in names:
        await cluster.until(
            lambda: (
                (info := cluster.nodes[2].cache.snapshot.partition(name, 7)) is not None  # noqa: B023
                and info.isr == (1,)
            )
        )
