"""What is done to offsets by hand is in the history, whatever befalls the nodes that keep it.

Source: docs/spec/coordinator.md §3.8. Three shipped nodes, seeded. Of the coordinator's own end
only what it had not answered may be missing, as docs/groups.md says.
"""

from __future__ import annotations

import asyncio

import pytest

from barnabas.client.connection.connection import Connection
from barnabas.client.errors import KafkaError
from barnabas.protocol.audit_topic import AUDIT_TOPIC, AuditRecord, parse_audit_value
from barnabas.protocol.audit_topic import tool_client_id as client_id
from barnabas.protocol.messages import fetch, metadata, offset_commit
from barnabas.protocol.records import batch
from barnabas.protocol.zookeeper import znodes
from tests.harness.seeds import seeds
from tests.sim.cluster import NODES, PORT, REQUEST_MS, Cluster, eventually, simulated_cluster
from tests.sim.test_replicated_commits import coordinator, in_sync
from tests.sim.test_replication import TOPIC, created

GROUP = "a"
ROUNDS = 4
SEEDS = range(1, 4)


async def commit_by_hand(cluster: Cluster, node: int, acknowledged: list[int]) -> None:
    """Grow the offset of one partition, as a tool of ours says."""
    said = client_id("change", "why")
    link = await Connection.open(f"n{node}", PORT, client_id=said, timeout_ms=REQUEST_MS)
    offset = 0
    while not link.is_closed:
        await asyncio.sleep(cluster.loop.random.uniform(0, 0.1))
        offset += 1
        partition = offset_commit.Partition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        request = offset_commit.OffsetCommitRequest(
            group_id=GROUP, topics=[offset_commit.Topic(name=TOPIC, partitions=[partition])]
        )
        try:
            answer = await link.request(request, 7, 60_000)
        except KafkaError:
            continue
        if not answer.topics[0].partitions[0].error_code:
            acknowledged.append(offset)


async def leaders(cluster: Cluster) -> dict[int, int] | None:
    """Who leads each partition of the audit topic, once somebody leads all of them."""
    request = metadata.MetadataRequest(topics=[metadata.Topic(name=AUDIT_TOPIC)])
    answer = await cluster.ask(cluster.loop.random.choice(NODES), request, 8)
    if answer is None or answer.topics[0].error_code:
        return None
    found = {
        partition.partition_index: partition.leader_id for partition in answer.topics[0].partitions
    }
    return None if -1 in found.values() else found


async def recorded(cluster: Cluster) -> list[AuditRecord] | None:
    """Everything that the audit topic holds, in the order of its partitions."""
    records: list[AuditRecord] = []
    for index, leader in (await leaders(cluster) or {}).items():
        offset = 0
        while True:
            asked = fetch.Partition(
                partition=index, fetch_offset=offset, partition_max_bytes=1 << 20
            )
            topics = [fetch.Topic(topic=AUDIT_TOPIC, partitions=[asked])]
            request = fetch.FetchRequest(max_bytes=1 << 20, topics=topics)
            answer = await cluster.ask(leader, request, 11)
            if answer is None:
                return None
            found = answer.responses[0].partitions[0]
            if found.error_code:
                return None
            if not found.records:
                break
            for position, _ in batch.iterate(bytes(found.records)):
                for record in batch.records(bytes(found.records), position):
                    records.append(parse_audit_value(bytes(record.value or b"")))
                    offset = record.offset + 1
    return records


async def has_all(cluster: Cluster, acknowledged: list[int]) -> list[AuditRecord] | None:
    records = await recorded(cluster)
    if records is None or not set(acknowledged) <= {record.new_offset for record in records}:
        return None
    return records


async def audit_in_sync(cluster: Cluster) -> bool | None:
    for index in range(3):
        path = znodes.partition_state_path(AUDIT_TOPIC, index)
        if path not in cluster.ensemble.tree.nodes:
            return None
        data, _ = cluster.ensemble.tree.get(path, None)
        if len(znodes.PartitionState.from_json(data).isr) < len(NODES):
            return None
    return await in_sync(cluster)


async def scenario(cluster: Cluster) -> list[AuditRecord]:
    await cluster.start()
    await created(cluster)
    node = await eventually(lambda: coordinator(cluster, GROUP))
    others = [other for other in NODES if other != node]
    acknowledged: list[int] = []
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(commit_by_hand(cluster, node, acknowledged))
        for _ in range(ROUNDS):
            await asyncio.sleep(cluster.loop.random.uniform(0.1, 1.5))
            machine = cluster.machines[cluster.loop.random.choice(others)]
            await machine.kill(with_power_cut=cluster.loop.random.random() < 0.5)
            await asyncio.sleep(cluster.loop.random.choice((0.0, 2.0, 9.0)))
            await machine.start()
            await eventually(lambda: audit_in_sync(cluster))
        running.cancel()
    assert len(acknowledged) > 20
    records = await eventually(lambda: has_all(cluster, acknowledged))
    await cluster.stop()
    return records


async def changed(cluster: Cluster, offset: int) -> int | None:
    """One change by hand; the node that acknowledged it."""
    node = await coordinator(cluster, GROUP)
    if node is None:
        return None
    partition = offset_commit.Partition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    request = offset_commit.OffsetCommitRequest(
        group_id=GROUP, topics=[offset_commit.Topic(name=TOPIC, partitions=[partition])]
    )
    said = client_id("change", "why")
    try:
        link = await Connection.open(f"n{node}", PORT, client_id=said, timeout_ms=REQUEST_MS)
    except KafkaError:
        return None
    try:
        answer = await link.request(request, 7, 60_000)
    except KafkaError:
        return None
    finally:
        await link.close()
    return None if answer.topics[0].partitions[0].error_code else node


async def killed(cluster: Cluster) -> None:
    """Each coordinator dies in the moment in which a change by hand is acknowledged."""
    await cluster.start()
    await created(cluster)
    rng = cluster.loop.random
    acknowledged = [0]
    node = 0
    for _ in range(ROUNDS):
        for _ in range(rng.randint(1, 4)):
            offset = acknowledged[-1] + 1
            node = await eventually(lambda offset=offset: changed(cluster, offset))  # type: ignore[misc]
            acknowledged.append(offset)
        machine = cluster.machines[node]
        await machine.kill(with_power_cut=rng.random() < 0.5)
        await eventually(lambda: coordinator(cluster, GROUP))
        await machine.start()
        await eventually(lambda: audit_in_sync(cluster))
    await eventually(lambda: has_all(cluster, acknowledged[1:]))
    await cluster.stop()


@pytest.mark.parametrize("seed", seeds(SEEDS, range(4, 200)))
def test_a_coordinator_that_is_killed_has_recorded_every_change_it_acknowledged(seed: int) -> None:
    with simulated_cluster(seed, offsets_topic_replication_factor="3") as (runner, cluster):
        runner.run(killed(cluster))


@pytest.mark.parametrize("seed", seeds(SEEDS, range(4, 500)))
def test_every_change_by_hand_is_in_the_history_in_its_order(seed: int) -> None:
    with simulated_cluster(seed, offsets_topic_replication_factor="3") as (runner, cluster):
        records = runner.run(scenario(cluster))
    once = list(dict.fromkeys(records))
    offsets = [record.new_offset for record in once]
    assert offsets == sorted(offsets, key=lambda offset: offset or 0)
    assert [record.old_offset for record in once[1:]] == offsets[:-1]
    assert {(record.change, record.reason) for record in once} == {("change", "why")}
