"""zk-migrate: both stores end equal, live groups are refused, and all can be put back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from barnabas.client.cluster import TopicPartition
from barnabas.client.zookeeper.interface import ZooKeeper, read_if_any
from barnabas.client.zookeeper.kazoo_session import connect
from barnabas.console.development.cluster import Cluster
from barnabas.pipeline import cluster_requests
from barnabas.pipeline.blocking_client import BlockingClient
from barnabas.pipeline.jobs import zk_migrate
from barnabas.pipeline.jobs.inputs import JobSource
from barnabas.pipeline.jobs.reports.report import Report
from barnabas.pipeline.jobs.zk_migrate import ZkMigrateConfig
from barnabas.protocol.zookeeper import znodes

Fill = Callable[..., str]
Step = Callable[..., Report]
Offsets = dict[str, dict[int, tuple[int | None, int | None]]]
"""What ZooKeeper and the coordinator hold, by group and partition."""


class BothStores:
    """Writes and reads offsets as consumers would."""

    def __init__(self, cluster: Cluster, client: BlockingClient, topic: str) -> None:
        self._cluster = cluster
        self._client = client
        self._topic = topic

    def write(self, offsets: Offsets) -> None:
        async def write(zookeeper: ZooKeeper) -> None:
            for group, partitions in offsets.items():
                for partition, (offset, _) in partitions.items():
                    path = znodes.consumer_offset_path(group, self._topic, partition)
                    if offset is not None:
                        await zookeeper.create(path, str(offset).encode(), parents=True)

        self.ask(write)
        for group, partitions in offsets.items():
            committed = {
                TopicPartition(self._topic, partition): offset
                for partition, (_, offset) in partitions.items()
                if offset is not None
            }
            self._client.run(cluster_requests.commit(self._client.cluster, group, committed))

    def read(self, like: Offsets) -> Offsets:
        async def read(zookeeper: ZooKeeper) -> dict[tuple[str, int], int | None]:
            found = {}
            for group, partitions in like.items():
                for partition in partitions:
                    path = znodes.consumer_offset_path(group, self._topic, partition)
                    held = await read_if_any(zookeeper, path)
                    found[group, partition] = None if held is None else int(held[0])
            return found

        in_zookeeper = self.ask(read)
        offsets: Offsets = {}
        for group, partitions in like.items():
            committed = self._client.run(cluster_requests.committed(self._client.cluster, group))
            offsets[group] = {
                partition: (
                    in_zookeeper[group, partition],
                    committed.get(TopicPartition(self._topic, partition)),
                )
                for partition in partitions
            }
        return offsets

    def ask(self, work: Callable[[ZooKeeper], Coroutine[Any, Any, Any]]) -> Any:
        async def run() -> Any:
            session = await connect(self._cluster.zookeeper)
            try:
                return await work(session)
            finally:
                await session.close()

        return asyncio.run(run())


@pytest.fixture
def stores(cluster: Cluster, client: BlockingClient, filled: Fill) -> BothStores:
    return BothStores(cluster, client, filled(1, count=3))


@pytest.fixture
def step(spark: SparkSession, cluster: Cluster, group: str, tmp_path: Path) -> Step:
    def run(name: str) -> Report:
        source = JobSource(bootstrap=cluster.bootstrap, groups=f"^{group}")
        config = ZkMigrateConfig(
            step=name,
            plan=str(tmp_path / "plan"),
            zookeeper=cluster.zookeeper,
            source=source,
            connections=2,
        )
        return zk_migrate.run(spark, config)

    return run


def test_both_stores_end_equal_and_can_be_put_back(
    stores: BothStores, step: Step, group: str
) -> None:
    before: Offsets = {
        f"{group}-old": {0: (50, None), 1: (60, None), 2: (None, None)},
        f"{group}-half": {0: (5, 9), 1: (12, 7), 2: (8, 8)},
    }
    after: Offsets = {
        f"{group}-old": {0: (50, 50), 1: (60, 60), 2: (None, None)},
        f"{group}-half": {0: (9, 9), 1: (12, 12), 2: (8, 8)},
    }
    stores.write(before)
    planned = step("plan")
    assert planned.figures == {"groups": 2, "offsets": 5, "equal": 1, "planned": 4}
    assert stores.read(before) == before
    applied = step("apply")
    assert applied.figures == {"groups": 2, "offsets": 5, "equal": 1, "migrated": 4}
    assert applied.exit_code == 0
    assert stores.read(after) == after
    assert step("apply").figures == applied.figures, "a second time changes nothing"
    assert step("verify").figures == {"groups": 2, "offsets": 5, "verified": 5}
    assert step("rollback").figures == {"groups": 2, "offsets": 5, "equal": 1, "rolled-back": 4}
    assert stores.read(before) == before
    assert step("verify").figures == {"groups": 2, "offsets": 5, "differs": 4, "verified": 1}


def test_a_group_that_somebody_consumes_in_is_left_alone(
    stores: BothStores, step: Step, group: str
) -> None:
    before: Offsets = {group: {0: (5, None)}}
    stores.write(before)
    path = znodes.consumer_path(group, "consumer-1")

    async def live(zookeeper: ZooKeeper) -> tuple[Report, Report]:
        await zookeeper.create(path, b"{}", ephemeral=True, parents=True)
        refused = await asyncio.to_thread(step, "plan")
        return refused, await asyncio.to_thread(step, "apply")

    for report in stores.ask(live):
        assert report.figures == {"groups": 1, "offsets": 1, "active": 1}
        assert report.exit_code == 1
    assert stores.read(before) == before


def test_an_offset_that_moved_since_the_plan_is_left_alone(
    stores: BothStores, step: Step, group: str
) -> None:
    stores.write({group: {0: (5, None), 1: (6, 9)}})
    step("plan")
    stores.write({group: {0: (None, 30)}})

    async def commit(zookeeper: ZooKeeper) -> None:
        (topic,) = await zookeeper.children(f"{znodes.CONSUMERS}/{group}/offsets")
        await zookeeper.set(znodes.consumer_offset_path(group, topic, 1), b"7")

    stores.ask(commit)
    assert step("apply").figures == {"groups": 1, "offsets": 2, "moved": 2}
    assert stores.read({group: {0: (0, 0), 1: (0, 0)}}) == {group: {0: (5, 30), 1: (7, 9)}}


def test_a_group_that_went_on_in_zookeeper_since_the_plan_is_not_moved_behind_it(
    stores: BothStores, step: Step, group: str
) -> None:
    stores.write({group: {0: (5, None), 1: (6, 2)}})
    step("plan")

    async def consume(zookeeper: ZooKeeper) -> None:
        (topic,) = await zookeeper.children(f"{znodes.CONSUMERS}/{group}/offsets")
        await zookeeper.set(znodes.consumer_offset_path(group, topic, 0), b"8")

    stores.ask(consume)
    assert step("apply").figures == {"groups": 1, "offsets": 2, "migrated": 1, "moved": 1}
    assert stores.read({group: {0: (0, 0), 1: (0, 0)}}) == {group: {0: (8, None), 1: (6, 6)}}


def test_offsets_that_nobody_can_use_are_told_and_left_where_they_are(
    stores: BothStores, step: Step, group: str
) -> None:
    stores.write({group: {0: (5, None), 7: (6, None)}})

    async def spoil(zookeeper: ZooKeeper) -> None:
        (topic,) = await zookeeper.children(f"{znodes.CONSUMERS}/{group}/offsets")
        for partition, data in ((1, b"-1"), (2, b"many")):
            path = znodes.consumer_offset_path(group, topic, partition)
            await zookeeper.create(path, data)

    stores.ask(spoil)
    planned = step("plan")
    assert planned.figures == {"groups": 1, "offsets": 4, "failed": 2, "gone": 1, "planned": 1}
    applied = step("apply")
    assert applied.figures == {"groups": 1, "offsets": 4, "failed": 2, "gone": 1, "migrated": 1}
    assert stores.read({group: {0: (0, 0), 7: (0, 0)}}) == {group: {0: (5, 5), 7: (6, None)}}
