"""Three shipped nodes: whoever takes over the coordinator's part has it in memory already.

Source: docs/spec/coordinator.md §3.4.2.
"""

from __future__ import annotations

import asyncio

import pytest

from barnabas.broker.replication.state_replica import StateReplica
from barnabas.coordinator.ports import OFFSETS_TOPIC
from barnabas.protocol.messages import offset_commit
from tests.sim.cluster import NODES, Cluster, eventually, simulated_cluster
from tests.sim.test_replicated_commits import coordinator, fetched, in_sync
from tests.sim.test_replication import TOPIC, created


async def commit(cluster: Cluster, node: int, offset: int) -> None:
    partition = offset_commit.Partition(partition_index=0, committed_offset=offset)
    request = offset_commit.OffsetCommitRequest(
        group_id="a", topics=[offset_commit.Topic(name=TOPIC, partitions=[partition])]
    )
    answer = await cluster.ask(node, request, 7)
    assert answer is not None
    assert answer.topics[0].partitions[0].error_code == 0


async def scenario(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> int:
    """Commit, kill the coordinator, fetch from the next; how often a log was read for that."""
    await cluster.start()
    await created(cluster)
    await eventually(lambda: coordinator(cluster, "a"))
    await eventually(lambda: in_sync(cluster))
    assert await eventually(lambda: fetched(cluster, "a")) == -1
    node = await eventually(lambda: coordinator(cluster, "a"))
    for offset in range(200):
        await commit(cluster, node, offset)
    await asyncio.sleep(1)
    reads = 0
    shipped = StateReplica.read

    def counted(replica: StateReplica, offset: int, bytes_max: int) -> bytes:
        nonlocal reads
        reads += 1
        return shipped(replica, offset, bytes_max)

    monkeypatch.setattr(StateReplica, "read", counted)
    await cluster.machines[node].kill()
    assert await eventually(lambda: fetched(cluster, "a")) == 199
    assert len(cluster.up()) == len(NODES) - 1
    for machine in cluster.up():
        assert machine.node is not None
        standbys = machine.node._coordinator_host.groups.standbys
        followed = [
            replica.index
            for replica in machine.node._replicas
            if replica.topic == OFFSETS_TOPIC and not replica.is_leader
        ]
        assert len(standbys) == len(followed), "one shadow for each partition followed"
    for_failover = reads
    await cluster.stop()
    return for_failover


def test_after_a_failover_nobody_reads_the_log_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with simulated_cluster(5, offsets_topic_replication_factor="3") as (runner, cluster):
        assert runner.run(scenario(cluster, monkeypatch)) == 0
