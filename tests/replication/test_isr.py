"""In-sync sets and ZooKeeper: lost answers, other leaders, no connection, notices.

Source: docs/spec/cluster.md §3.6; §3.11 checks R6 and R7; §6 pitfalls 3, 4 and 16.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.replication.isr import NOTIFICATION_CHECK_S, NOTIFICATION_QUIET_S, IsrManager
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.client.zookeeper.interface import ConnectionLost
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.zookeeper import znodes
from tests.replication.logs import NODE, FakeFetcherManager, ManualLogManager, a_batch, lead
from tests.sim.simulated_loop import SimulatedLoop
from tests.sim.simulated_zookeeper import SimEnsemble, SimZooKeeper

LAG_MS = 30_000
STATE = znodes.partition_state_path("t", 0)


class LeadingNode:
    """One leader, its ZooKeeper, and the work that writes in-sync sets."""

    def __init__(self, loop: SimulatedLoop, shelf: ManualLogManager) -> None:
        self.ensemble = SimEnsemble(loop, latency=loop.network.latency, now_ms=loop.wall_ms)
        self.zookeeper: SimZooKeeper = self.ensemble.connect()
        self.isr_manager = IsrManager(
            self.zookeeper, NODE, loop, lag_max_ms=LAG_MS, live_nodes=lambda: {1, 2, 3}
        )
        self.replicas = ReplicaManager(
            NODE,
            shelf,
            knows=lambda topic, index: True,
            context=self.isr_manager,
            fetchers=FakeFetcherManager(),
        )
        self.resigned: list[tuple[str, int, int | None]] = []
        self.replicas.on_resigned.append(lambda *what: self.resigned.append(what))

    @property
    def partition(self) -> Partition:
        found = self.replicas.get("t", 0)
        assert found is not None
        return found

    async def write(self, isr: tuple[int, ...], *, leader: int = NODE, epoch: int = 0) -> int:
        """The state as a controller writes it; the version it then has."""
        data = znodes.PartitionState(
            leader=leader, leader_epoch=epoch, controller_epoch=1, isr=isr
        ).to_json()
        if await self.zookeeper.exists(STATE) is None:
            await self.zookeeper.create(STATE, data, parents=True)
            return 0
        return (await self.zookeeper.set(STATE, data)).version

    async def state(self) -> tuple[tuple[int, ...], int]:
        data, stat = await self.zookeeper.get(STATE)
        return znodes.PartitionState.from_json(data).isr, stat.version

    def lose_disk(self) -> None:
        """The directory of the log fails."""
        self.partition.log.take_offline("injected")
        self.replicas.directory_failed(self.partition.log.directory.parent, [("t", 0)])

    async def begin(self, isr: tuple[int, ...]) -> None:
        version = await self.write(isr)
        lead(self.replicas, "t", replicas=[1, 2, 3], isr=list(isr), partition_epoch=version)
        await self.zookeeper.create(znodes.ISR_CHANGES, parents=True)


Story = Callable[[LeadingNode], Coroutine[Any, Any, None]]


@pytest.fixture
def tell(tmp_path: Path) -> Iterator[Callable[[Story], None]]:
    async def run(story: Story) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        shelf = ManualLogManager(tmp_path)
        await shelf.load()
        leading_node = LeadingNode(loop, shelf)
        working = asyncio.create_task(leading_node.isr_manager.run(leading_node.replicas))
        await story(leading_node)
        working.cancel()
        await asyncio.wait({working})
        assert working.cancelled()
        await shelf.close()

    with asyncio.Runner(loop_factory=lambda: SimulatedLoop(1)) as runner:
        yield lambda story: runner.run(run(story))


def test_a_laggard_leaves_the_set_under_the_same_leader_epoch(
    tell: Callable[[Story], None],
) -> None:
    async def story(leading_node: LeadingNode) -> None:
        await leading_node.begin((1, 2, 3))
        leading_node.partition.append(a_batch(), acks=1, is_client=True)
        leading_node.partition.follower_fetched(2, 1, 0)
        await asyncio.sleep(LAG_MS / 1000 * 1.5 + 1)
        assert await leading_node.state() == ((1, 2), 1)
        assert (leading_node.partition.isr, leading_node.partition.high_watermark) == ((1, 2), 1)
        data, _ = await leading_node.zookeeper.get(STATE)
        assert znodes.PartitionState.from_json(data).leader_epoch == 0
        leading_node.partition.follower_fetched(3, 1, 0)
        await asyncio.sleep(1)
        assert await leading_node.state() == ((1, 2, 3), 2)

    tell(story)


def test_a_change_whose_answer_was_lost_is_found_and_the_next_one_works(
    tell: Callable[[Story], None],
) -> None:
    async def story(leading_node: LeadingNode) -> None:
        await leading_node.begin((1,))
        leading_node.zookeeper.lose_next_answer()
        leading_node.partition.follower_fetched(2, 0, 0)
        await asyncio.sleep(1)
        assert (leading_node.partition.isr, leading_node.partition.zk_version) == ((1, 2), 1)
        leading_node.partition.follower_fetched(3, 0, 0)
        await asyncio.sleep(1)
        assert await leading_node.state() == ((1, 2, 3), 2)
        assert leading_node.partition.zk_version == 2

    tell(story)


def test_what_an_earlier_change_of_ours_left_is_adopted(tell: Callable[[Story], None]) -> None:
    async def story(leading_node: LeadingNode) -> None:
        await leading_node.begin((1,))
        await leading_node.write((1, 3))
        leading_node.partition.follower_fetched(2, 0, 0)
        await asyncio.sleep(1)
        assert (leading_node.partition.isr, leading_node.partition.zk_version) == ((1, 3, 2), 2)
        assert leading_node.partition.pending_isr_change is None

    tell(story)


def test_a_leader_that_finds_a_later_epoch_stops_leading(tell: Callable[[Story], None]) -> None:
    async def story(leading_node: LeadingNode) -> None:
        await leading_node.begin((1, 2))
        leading_node.partition.append(a_batch(), acks=1, is_client=True)
        told: list[ErrorCode] = []
        leading_node.partition.when_committed(1, told.append)
        await leading_node.write((2,), leader=2, epoch=1)
        leading_node.partition.follower_fetched(3, 1, 0)
        await asyncio.sleep(1)
        assert not leading_node.partition.is_leader
        assert told == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert leading_node.resigned == [("t", 0, 0)]
        assert (await leading_node.state())[0] == (2,)
        lead(leading_node.replicas, "t", epoch=2, replicas=[1, 2, 3], isr=[1, 2], partition_epoch=2)
        assert leading_node.partition.is_leader

    tell(story)


def test_without_zookeeper_a_set_does_not_shrink_and_nothing_is_acknowledged_for_all(
    tell: Callable[[Story], None],
) -> None:
    async def story(leading_node: LeadingNode) -> None:
        await leading_node.begin((1, 2))
        leading_node.zookeeper.suspend()
        leading_node.partition.append(a_batch(), acks=-1, is_client=True)
        told: list[ErrorCode] = []
        leading_node.partition.when_committed(1, told.append)
        await asyncio.sleep(3 * LAG_MS / 1000)
        assert (leading_node.partition.isr, told) == ((1, 2), [])
        leading_node.zookeeper.resume()
        await asyncio.sleep(10)
        assert (leading_node.partition.isr, told) == ((1,), [ErrorCode.NONE])

    tell(story)


def test_a_leader_whose_directory_failed_changes_no_set(tell: Callable[[Story], None]) -> None:
    async def story(leading_node: LeadingNode) -> None:
        await leading_node.begin((1, 2))
        leading_node.partition.append(a_batch(), acks=-1, is_client=True)
        leading_node.lose_disk()
        await asyncio.sleep(3 * LAG_MS / 1000)
        leading_node.partition.follower_fetched(3, 1, 0)
        await asyncio.sleep(1)
        assert (await leading_node.state(), leading_node.partition.isr) == (((1, 2), 0), (1, 2))

    tell(story)


def test_a_change_that_was_under_way_when_the_directory_failed_is_not_tried_again(
    tell: Callable[[Story], None],
) -> None:
    async def story(leading_node: LeadingNode) -> None:
        await leading_node.begin((1, 2))
        leading_node.zookeeper.suspend()
        leading_node.partition.append(a_batch(), acks=-1, is_client=True)
        await asyncio.sleep(3 * LAG_MS / 1000)
        assert leading_node.partition.pending_isr_change is not None
        leading_node.lose_disk()
        await asyncio.sleep(LAG_MS / 1000)  # so that the try under way has failed
        leading_node.zookeeper.resume()
        await asyncio.sleep(10)
        assert await leading_node.state() == ((1, 2), 0)

    tell(story)


def test_a_change_of_a_deleted_partition_ends(tell: Callable[[Story], None]) -> None:
    async def story(leading_node: LeadingNode) -> None:
        await leading_node.begin((1,))
        await leading_node.zookeeper.delete(STATE)
        leading_node.partition.follower_fetched(2, 0, 0)
        await asyncio.sleep(1)
        assert leading_node.partition.pending_isr_change is None

    tell(story)


def test_the_controller_is_told_of_changes_together_and_when_they_have_settled(
    tell: Callable[[Story], None],
) -> None:
    async def story(leading_node: LeadingNode) -> None:
        await leading_node.begin((1,))
        for node in (2, 3):
            leading_node.partition.follower_fetched(node, 0, 0)
            await asyncio.sleep(1)
        assert await leading_node.zookeeper.children(znodes.ISR_CHANGES) == []
        await asyncio.sleep(NOTIFICATION_QUIET_S + NOTIFICATION_CHECK_S)
        [name] = await leading_node.zookeeper.children(znodes.ISR_CHANGES)
        data, _ = await leading_node.zookeeper.get(f"{znodes.ISR_CHANGES}/{name}")
        assert list(znodes.IsrChange.from_json(data).partitions) == [("t", 0)]

    tell(story)


def test_a_set_that_changes_while_it_is_announced_is_announced_again(
    tell: Callable[[Story], None],
) -> None:
    async def story(leading_node: LeadingNode) -> None:
        zookeeper = leading_node.zookeeper
        create = zookeeper.create

        async def slow_create(path: str, data: bytes = b"", **options: bool) -> str:
            name = await create(path, data, **options)
            leading_node.partition.follower_fetched(3, 0, 0)
            await asyncio.sleep(1)
            assert leading_node.partition.isr == (1, 2, 3)
            return name

        await leading_node.begin((1,))
        leading_node.partition.follower_fetched(2, 0, 0)
        zookeeper.create = slow_create  # type: ignore[method-assign]
        await asyncio.sleep(3 * (NOTIFICATION_QUIET_S + NOTIFICATION_CHECK_S))
        assert len(await zookeeper.children(znodes.ISR_CHANGES)) == 2

    tell(story)


def test_an_announcement_that_failed_is_made_again(tell: Callable[[Story], None]) -> None:
    async def story(leading_node: LeadingNode) -> None:
        zookeeper = leading_node.zookeeper
        create = zookeeper.create

        async def failing_create(path: str, data: bytes = b"", **options: bool) -> str:
            zookeeper.create = create  # type: ignore[method-assign]
            raise ConnectionLost(path)

        await leading_node.begin((1,))
        leading_node.partition.follower_fetched(2, 0, 0)
        zookeeper.create = failing_create  # type: ignore[method-assign]
        await asyncio.sleep(3 * (NOTIFICATION_QUIET_S + NOTIFICATION_CHECK_S))
        assert len(await zookeeper.children(znodes.ISR_CHANGES)) == 1

    tell(story)
