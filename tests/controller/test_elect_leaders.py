"""Elections that an administrator asks for (docs/spec/cluster.md §2.6)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from barnabas.broker.controller.components import ControllerComponents
from barnabas.broker.controller.elect_leaders import ElectionOutcome
from barnabas.protocol.errors import ErrorCode, Refused
from tests.controller.small_cluster import SmallCluster


async def elect(
    cluster: SmallCluster, partitions: Sequence[tuple[str, int]] | None, *, is_unclean: bool = False
) -> dict[tuple[str, int], ElectionOutcome]:
    async def work(components: ControllerComponents) -> dict[tuple[str, int], ElectionOutcome]:
        return await components.elections.elect(partitions, is_unclean=is_unclean)

    return await (await cluster.elected()).controller.ask("elect", work)


@pytest.fixture
async def two(cluster: SmallCluster) -> SmallCluster:
    """t-0 prefers 1 and is led by 2; node 2 is controller whatever happens to 1."""
    await cluster.start(2)
    await cluster.elected()
    await cluster.start(1, ("broker",))
    await cluster.create("t", {0: (1, 2)})
    await cluster.led("t", 0, 1)
    return cluster


async def test_the_preferred_replica_leads_again(two: SmallCluster) -> None:
    two.nodes[1].zookeeper.expire()
    await two.led("t", 0, 2)
    await two.until(lambda: 1 in two.nodes[2].cache.snapshot.brokers)
    refused = await elect(two, [("t", 0)])
    assert refused["t", 0].code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    await two.set_in_sync("t", 0, (2, 1))
    done = await elect(two, [("t", 0)])
    assert done["t", 0] == ElectionOutcome(ErrorCode.NONE, leader=1)
    await two.led("t", 0, 1)


async def test_what_needs_no_election_or_does_not_exist_has_its_code(two: SmallCluster) -> None:
    found = await elect(two, [("t", 0), ("t", 7), ("u", 0)])
    assert {partition: outcome.code for partition, outcome in found.items()} == {
        ("t", 0): ErrorCode.ELECTION_NOT_NEEDED,
        ("t", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("u", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


async def test_naming_no_partition_names_all(two: SmallCluster) -> None:
    await two.create("v", {0: (2,), 1: (1,)})
    await two.led("v", 1, 1)
    assert set(await elect(two, None)) == {("t", 0), ("v", 0), ("v", 1)}


async def test_an_unclean_election_happens_only_where_nobody_leads(two: SmallCluster) -> None:
    led = await elect(two, [("t", 0)], is_unclean=True)
    assert led["t", 0].code == ErrorCode.ELECTION_NOT_NEEDED
    await two.set_in_sync("t", 0, (1,))
    await two.bury(1)
    await two.led("t", 0, -1)
    done = await elect(two, [("t", 0)], is_unclean=True)
    assert done["t", 0] == ElectionOutcome(ErrorCode.NONE, leader=2)
    await two.led("t", 0, 2)
    assert (await two.state("t", 0)).isr == (2,)


async def test_an_unclean_election_needs_a_live_replica(two: SmallCluster) -> None:
    await two.create("v", {0: (1,)})
    await two.led("v", 0, 1)
    await two.bury(1)
    await two.led("v", 0, -1)
    found = await elect(two, [("v", 0)], is_unclean=True)
    assert found["v", 0].code == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


async def test_only_the_controller_elects(two: SmallCluster) -> None:
    async def work(components: ControllerComponents) -> None:
        raise AssertionError("not asked")

    with pytest.raises(Refused) as refused:
        await two.nodes[1].controller.ask("elect", work)
    assert refused.value.code == ErrorCode.NOT_CONTROLLER


async def test_leadership_is_given_back_once_too_much_of_it_went_astray(two: SmallCluster) -> None:
    async def balance(components: ControllerComponents) -> None:
        await components.preferred_leaders.balance()

    two.nodes[1].zookeeper.expire()
    await two.led("t", 0, 2)
    await two.until(lambda: 1 in two.nodes[2].cache.snapshot.brokers)
    await two.set_in_sync("t", 0, (2, 1))
    await two.nodes[2].controller.ask("balance", balance)
    await two.led("t", 0, 1)
    state = await two.state("t", 0)
    await two.nodes[2].controller.ask("balance", balance)
    assert await two.state("t", 0) == state


async def test_a_partition_that_is_being_moved_is_not_balanced(two: SmallCluster) -> None:
    async def move_and_balance(components: ControllerComponents) -> None:
        await components.reassignments.alter({("t", 0): (3, 2)})
        await components.preferred_leaders.balance()

    await two.start(3, ("broker",))
    await two.until(lambda: 3 in two.nodes[2].cache.snapshot.brokers)
    await two.nodes[2].controller.ask("move", move_and_balance)
    assert (await two.state("t", 0)).leader == 1
    assert (await two.assignment("t")).adding == {0: (3,)}
