"""Session leases outlast a ZooKeeper that answers nothing, at whatever moment it begins to.

Source: docs/beacons.md, "How long ZooKeeper may be away"; docs/spec/reliability.md §3.1 (f). One,
two and three shipped nodes without beacons on one seeded loop.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass

import pytest

from barnabas.broker.settings.liveness_settings import proof_interval_s
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import find_coordinator, offset_commit, offset_fetch
from tests.sim.cluster import Cluster, eventually, simulated_cluster
from tests.sim.test_replication import TOPIC, created

GROUPS = ("a", "b")
SESSION_S = 18.0
RECONNECT_S = 0.5
"""From ZooKeeper's return to a new connection: more than kazoo's longest pause."""
RETURN_S = 1.0
"""What the bound leaves for the connection and the proof that comes over it."""
LONGEST_S = 0.9 * SESSION_S - proof_interval_s(SESSION_S) - RETURN_S
PAUSE_S = 0.1
Answer = tuple[str, int]
"""What was asked, and the code of the answer."""


@dataclass(frozen=True)
class Stall:
    """ZooKeeper stands still from this question of this node on."""

    node: int
    question: int
    seconds: float


def stalls(count: int) -> list[Stall]:
    """From the first and from the second half of every node's proof on.

    Some are over before a connection is given up, some just after: a proof has failed then, and
    the next one is all that is left.
    """
    return [
        Stall(node, question, seconds)
        for node in range(1, count + 1)
        for question in (1, 2)
        for seconds in (5.0, 12.1, 13.1, LONGEST_S)
    ]


async def ask_all_the_time(cluster: Cluster, group: str, nodes: int, seen: Counter[Answer]) -> None:
    """Every answer counts, and no request is sent again."""
    offset = 0
    while True:
        await asyncio.sleep(PAUSE_S)
        asked = 1 + offset % nodes
        found = await cluster.ask(asked, find_coordinator.FindCoordinatorRequest(key=group), 2)
        seen["find", found.error_code] += 1
        if found.error_code:
            continue
        offset += 1
        partition = offset_commit.Partition(partition_index=0, committed_offset=offset)
        topic = offset_commit.Topic(name=TOPIC, partitions=[partition])
        committed = await cluster.ask(
            found.node_id, offset_commit.OffsetCommitRequest(group_id=group, topics=[topic]), 7
        )
        seen["commit", committed.topics[0].partitions[0].error_code] += 1
        wanted = offset_fetch.Topic(name=TOPIC, partition_indexes=[0])
        fetched = await cluster.ask(
            found.node_id, offset_fetch.OffsetFetchRequest(group_id=group, topics=[wanted]), 6
        )
        seen["fetch", fetched.error_code] += 1


async def strike(cluster: Cluster, stall: Stall) -> None:
    """Stand still from that question on, for so long, and let all come to rest."""
    session = cluster.machines[stall.node].session
    left, begun = stall.question, asyncio.Event()

    def asked() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            session.on_ask = None
            cluster.ensemble.stall()
            begun.set()

    session.on_ask = asked
    await begun.wait()
    await asyncio.sleep(stall.seconds)
    cluster.ensemble.go_on(RECONNECT_S)
    await asyncio.sleep(SESSION_S / 3)


async def scenario(cluster: Cluster, count: int) -> Counter[Answer]:
    for node in range(1, count + 1):
        await cluster.machines[node].start()
    await created(cluster, count)
    seen: Counter[Answer] = Counter()

    async def has_begun() -> bool | None:
        codes: Counter[Answer] = Counter()
        tasks = [
            asyncio.create_task(ask_all_the_time(cluster, group, count, codes)) for group in GROUPS
        ]
        await asyncio.sleep(20 * PAUSE_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return True if all(code == ErrorCode.NONE for _, code in codes) else None

    await eventually(has_begun)
    tasks = [asyncio.create_task(ask_all_the_time(cluster, group, count, seen)) for group in GROUPS]
    for stall in stalls(count):
        await strike(cluster, stall)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await cluster.stop()
    return seen


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_stall_below_the_bound_is_never_noticed(count: int) -> None:
    with simulated_cluster(
        count,
        zookeeper_session_timeout_ms=str(round(1000 * SESSION_S)),
        offsets_topic_replication_factor=str(count),
    ) as (runner, cluster):
        seen = runner.run(scenario(cluster, count))
    assert {api for api, _ in seen} == {"find", "commit", "fetch"}
    assert {code for _, code in seen} == {ErrorCode.NONE}, seen
