"""One replica's disk turns over a bit of what it had fsynced: another replica's copy replaces it.

Nothing acknowledged is lost or taken back meanwhile, whoever of the nodes leads. Issue 12, item 19.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from barnabas.broker.storage.recovery.damage import is_damaged
from barnabas.coordinator.ports import OFFSETS_TOPIC
from barnabas.protocol.messages import fetch
from barnabas.protocol.records import batch
from tests.harness.seeds import seeds
from tests.sim.cluster import Cluster, Machine, eventually, simulated_cluster
from tests.sim.test_replicated_commits import (
    GROUPS,
    PARTITIONS,
    Commits,
    commit_all_the_time,
    coordinator,
    fetch_all_the_time,
    fetched,
    in_sync,
)
from tests.sim.test_replication import created

SEEDS = range(1, 4)
BODY = 70
"""Somewhere in the first record of a batch."""
MAGIC = 16


def log_path(index: int) -> Path:
    return Path(f"/data/{OFFSETS_TOPIC}-{index}/{0:020d}.log")


def turn_over(machine: Machine, index: int, place: int) -> int:
    """Flip one bit of a batch in the middle of an offsets partition; the offset where it begins."""
    data = machine.disk._files[log_path(index)].data
    batches = list(batch.iterate(bytes(data)))
    position, _ = batches[len(batches) // 2]
    data[position + place] ^= 0x04
    return batch.base_offset(bytes(data), position)


def led_by(cluster: Cluster, index: int) -> Machine | None:
    for machine in cluster.up():
        partition = machine.partition(OFFSETS_TOPIC, index)
        if partition is not None and partition.is_leader:
            return machine
    return None


async def has_led(cluster: Cluster, index: int) -> Machine | None:
    return led_by(cluster, index)


async def alike(cluster: Cluster) -> bool | None:
    """Every replica is whole, and has the same bytes."""
    for index in range(PARTITIONS):
        copies = set()
        for machine in cluster.machines.values():
            partition = machine.partition(OFFSETS_TOPIC, index)
            if partition is None or is_damaged(partition.log):
                return None
            size = partition.log.size
            copies.add(bytes(machine.disk._files[log_path(index)].data[:size]))
        if len(copies) > 1:
            return None
    return True


Fault = Callable[[Cluster], Awaitable[None]]


async def while_it_is_down(cluster: Cluster) -> None:
    """A follower's disk is damaged between two lives of its node; its standby finds that."""
    for index in range(PARTITIONS):
        led = await eventually(lambda index=index: has_led(cluster, index))  # type: ignore[misc]
        machine = next(other for other in cluster.up() if other is not led)
        await machine.stop()
        turn_over(machine, index, BODY)
        await asyncio.sleep(9)
        await machine.start()


async def of_the_leader(cluster: Cluster) -> None:
    """Somebody reads the leader's log where it is damaged."""
    for index in range(PARTITIONS):
        led = await eventually(lambda index=index: has_led(cluster, index))  # type: ignore[misc]
        await asyncio.sleep(0.5)
        offset = turn_over(led, index, MAGIC)

        async def replaced(
            index: int = index, led: Machine = led, offset: int = offset
        ) -> bool | None:
            partition = fetch.Partition(
                partition=index, fetch_offset=offset, partition_max_bytes=99
            )
            request = fetch.FetchRequest(
                max_wait_ms=0,
                min_bytes=0,
                max_bytes=1 << 20,
                topics=[fetch.Topic(topic=OFFSETS_TOPIC, partitions=[partition])],
            )
            await cluster.ask(led.id, request, 8)
            now = led_by(cluster, index)
            return True if now is not None and now is not led else None

        await eventually(replaced)


async def scenario(cluster: Cluster, fault: Fault) -> None:
    seen = {group: Commits() for group in GROUPS}
    await cluster.start()
    await created(cluster)
    for group in GROUPS:
        await eventually(lambda group=group: coordinator(cluster, group))  # type: ignore[misc]
    await eventually(lambda: in_sync(cluster))
    async with asyncio.TaskGroup() as tasks:
        running = [
            tasks.create_task(activity(cluster, group, seen[group]))
            for group in GROUPS
            for activity in (commit_all_the_time, fetch_all_the_time)
        ]
        await asyncio.sleep(3)
        await fault(cluster)
        await asyncio.sleep(3)
        for task in running:
            task.cancel()
    for group, commits in seen.items():
        found = await eventually(lambda group=group: fetched(cluster, group))  # type: ignore[misc]
        assert commits.least <= found <= commits.sent
    await eventually(lambda: in_sync(cluster))
    await eventually(lambda: alike(cluster))
    await cluster.stop()


@pytest.mark.parametrize("seed", seeds(SEEDS))
@pytest.mark.parametrize("fault", [while_it_is_down, of_the_leader])
def test_a_damaged_replica_is_copied_anew_and_no_commit_is_lost(
    seed: int, fault: Fault, caplog: pytest.LogCaptureFixture
) -> None:
    with simulated_cluster(seed) as (runner, cluster):
        runner.run(scenario(cluster, fault))
    assert "fetches anew what is damaged" in caplog.text
    assert "lost committed records" not in caplog.text
