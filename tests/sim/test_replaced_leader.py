"""A leader that was cut off from all but a consumer never makes that consumer begin anew.

Its successor wrote what it does not have; the consumer has read that, and comes back to it by an
old word of who leads. Source: docs/spec/reliability.md §3.1 (a); docs/spec/cluster.md §1.10.
"""

from __future__ import annotations

import asyncio

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import fetch, offset_for_leader_epoch, produce
from barnabas.protocol.records import batch
from tests.harness.seeds import seeds
from tests.sim.cluster import Cluster, eventually, simulated_cluster
from tests.sim.test_replication import TOPIC, created, in_sync, leader

RECORDS = 3
PATIENCE_S = 2.0
"""Long enough to register anew and to hear who leads."""


async def produced(cluster: Cluster, former: int | None = None) -> int | None:
    """Who leads and acknowledged a record, another node than ``former``."""
    node = await leader(cluster)
    if node is None or node == former:
        return None
    records = batch.build_batch([(b"k", b"v")], timestamp_ms=cluster.loop.wall_ms())
    data = produce.Partition(index=0, records=bytes(records))
    topic = produce.Topic(name=TOPIC, partition_data=[data])
    request = produce.ProduceRequest(acks=1, timeout_ms=2000, topic_data=[topic])
    answer = await cluster.ask(node, request, 7)
    is_done = answer is not None and not answer.responses[0].partition_responses[0].error_code
    return node if is_done else None


async def told(cluster: Cluster, node: int, offset: int, epoch: int) -> set[int]:
    """Codes for a consumer whose next record is ``offset`` and whose last one is of ``epoch``."""
    codes = set()
    for last in (epoch, -1):
        partition = fetch.Partition(
            partition=0,
            fetch_offset=offset,
            last_fetched_epoch=last,
            partition_max_bytes=1 << 20,
        )
        topic = fetch.Topic(topic=TOPIC, partitions=[partition])
        request = fetch.FetchRequest(max_wait_ms=0, min_bytes=0, topics=[topic])
        answer = await cluster.ask(node, request, 12)
        if answer is not None:
            codes.add(int(answer.responses[0].partitions[0].error_code))
    asked = offset_for_leader_epoch.Partition(partition=0, leader_epoch=epoch)
    where = offset_for_leader_epoch.Topic(topic=TOPIC, partitions=[asked])
    looking = offset_for_leader_epoch.OffsetForLeaderEpochRequest(replica_id=-1, topics=[where])
    answer = await cluster.ask(node, looking, 4)
    if answer is not None:
        result = answer.topics[0].partitions[0]
        is_unknown = not result.error_code and result.end_offset < 0
        codes.add(ErrorCode.OFFSET_OUT_OF_RANGE if is_unknown else int(result.error_code))
    return codes


async def scenario(cluster: Cluster) -> set[int]:
    """What the former leader told the consumer until it had heard of its successor, and of both."""
    await cluster.start()
    await created(cluster)
    former = await eventually(lambda: produced(cluster))
    await eventually(lambda: in_sync(cluster))
    machine = cluster.machines[former]
    machine.isolate(from_clients=False)
    successor = await eventually(lambda: produced(cluster, former))
    for _ in range(RECORDS):
        await eventually(lambda: produced(cluster, former))
    partition = cluster.machines[successor].partition(TOPIC)
    assert partition is not None
    position = partition.log.end_offset, partition.leader_epoch
    codes = await told(cluster, former, *position)
    machine.rejoin()
    until = cluster.loop.time() + PATIENCE_S
    while cluster.loop.time() < until:
        codes |= await told(cluster, former, *position)
        await asyncio.sleep(0.0005)
    await cluster.stop()
    return codes


@pytest.mark.parametrize("seed", seeds(range(1, 6)))
def test_a_replaced_leader_never_makes_a_consumer_begin_anew(seed: int) -> None:
    with simulated_cluster(seed) as (runner, cluster):
        codes = runner.run(scenario(cluster))
    assert ErrorCode.OFFSET_OUT_OF_RANGE not in codes
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER in codes
