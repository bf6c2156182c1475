"""Quotas on shipped nodes in simulated time: rates are exact, and nothing depends on the machine.

Source: docs/spec/security.md §4, its checks; KIP-13, KIP-73, KIP-219.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import pytest

from barnabas.broker.handlers.config_edits import DELETE, SET
from barnabas.broker.handlers.describe_configs import NODE
from barnabas.broker.handlers.describe_configs import TOPIC as TOPIC_RESOURCE
from barnabas.client.connection.connection import Connection
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    alter_client_quotas,
    alter_partition_reassignments,
    create_topics,
    fetch,
    incremental_alter_configs,
    produce,
)
from barnabas.protocol.records import batch
from barnabas.protocol.zookeeper import znodes
from tests.harness.seeds import seeds
from tests.sim.cluster import NODES, PORT, Cluster, eventually, simulated_cluster
from tests.sim.test_replication import TOPIC, leader

BOUND: Final = 100_000
SIZE: Final = 10_000
PATIENCE_MS: Final = 600_000
RECORDS: Final = 250
COPIED: Final = 3_000_000

Story = Callable[[Cluster], Awaitable[None]]


def told(seed: int, story: Story, **settings: str) -> None:
    """Tell a story on three nodes, from their start to their end."""

    async def whole(cluster: Cluster) -> None:
        await cluster.start()
        await story(cluster)
        await cluster.stop()

    with simulated_cluster(seed, **settings) as (runner, cluster):
        runner.run(whole(cluster))


async def created(cluster: Cluster, replicas: tuple[int, ...]) -> None:
    topic = create_topics.Topic(
        name=TOPIC,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[create_topics.Assignment(partition_index=0, broker_ids=replicas)],
    )
    request = create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=5000)
    await accepted(cluster, request, 5, lambda answer: answer.topics[0].error_code)
    await eventually(partial(leader, cluster))


async def accepted(
    cluster: Cluster, request: Any, version: int, code_of: Callable[[Any], int]
) -> None:
    """Have a request done by whichever node may do it."""

    async def ask() -> bool | None:
        for node in NODES:
            answer = await cluster.ask(node, request, version)
            if answer is not None and code_of(answer) == ErrorCode.NONE:
                return True
        return None

    await eventually(ask)


async def bind(cluster: Cluster, node: int, client_id: str, key: str, bound: float | None) -> None:
    request = alter_client_quotas.AlterClientQuotasRequest(
        entries=[
            alter_client_quotas.Entry(
                entity=[alter_client_quotas.Entity(entity_type="client-id", entity_name=client_id)],
                ops=[alter_client_quotas.Op(key=key, value=bound or 0.0, remove=bound is None)],
            )
        ],
        validate_only=False,
    )
    answer = await cluster.ask(node, request, 1)
    assert [entry.error_code for entry in answer.entries] == [0]


async def configured(
    cluster: Cluster, node: int, kind: int, name: str, **values: str | None
) -> None:
    configs = [
        incremental_alter_configs.Config(
            name=key.replace("_", "."),
            config_operation=DELETE if value is None else SET,
            value=value,
        )
        for key, value in values.items()
    ]
    resource = incremental_alter_configs.Resource(
        resource_type=kind, resource_name=name, configs=configs
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource])
    answer = await cluster.ask(node, request, 1)
    assert [result.error_code for result in answer.responses] == [0], answer


def records(value: bytes) -> bytes:
    return bytes(batch.build_batch([(b"k", value)], timestamp_ms=1_795_219_200_000))


async def write(link: Connection, value: bytes, acks: int = -1) -> Any:
    data = produce.Partition(index=0, records=records(value))
    request = produce.ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=PATIENCE_MS,
        topic_data=[produce.Topic(name=TOPIC, partition_data=[data])],
    )
    answer = await link.request(request, 8, PATIENCE_MS)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    return answer


async def flood(link: Connection, until: float) -> int:
    """Send as fast as answers come, whatever they say; how many bytes were taken."""
    loop, count = asyncio.get_running_loop(), 0
    while loop.time() < until:
        # Five times the quota: what goes faster is the same to the node.
        await write(link, bytes(SIZE))
        count += SIZE
        await asyncio.sleep(SIZE / (5 * BOUND))
    return count


async def stroll(link: Connection, until: float) -> list[float]:
    """Another client's latencies."""
    loop, latencies = asyncio.get_running_loop(), []
    while loop.time() < until:
        began = loop.time()
        answer = await write(link, b"v")
        assert answer.throttle_time_ms == 0
        latencies.append(loop.time() - began)
        await asyncio.sleep(0.05)
    return latencies


def percentile_99(latencies: list[float]) -> float:
    return sorted(latencies)[int(len(latencies) * 0.99)]


async def a_producer_at_five_times_its_quota(cluster: Cluster) -> None:
    loop = cluster.loop
    await created(cluster, (2,))
    other = await Connection.open("n2", PORT, client_id="other")
    alone = percentile_99(await stroll(other, loop.time() + 30))
    await bind(cluster, 2, "flood", "producer_byte_rate", BOUND)
    flooding = await Connection.open("n2", PORT, client_id="flood")
    sent, latencies = await asyncio.gather(
        flood(flooding, loop.time() + 36), stroll(other, loop.time() + 36)
    )
    # Whole periods of its own making: a burst, and then nothing until it has left the windows.
    assert abs(sent / 36 - BOUND) <= BOUND * 0.1
    assert percentile_99(latencies) <= alone * 1.5
    await bind(cluster, 2, "flood", "producer_byte_rate", None)
    sent = await flood(flooding, loop.time() + 10)
    assert sent / 10 > 3 * BOUND
    for link in (flooding, other):
        await link.close()


async def a_quota_acts_on_other_nodes_within_a_second(cluster: Cluster) -> None:
    await created(cluster, (2,))
    link = await Connection.open("n2", PORT, client_id="app")
    big = bytes(BOUND * 9)
    for _ in range(3):
        assert (await write(link, big)).throttle_time_ms == 0
    await bind(cluster, 3, "app", "producer_byte_rate", BOUND)
    await asyncio.sleep(1)
    assert (await write(link, big)).throttle_time_ms == 0
    assert (await write(link, big)).throttle_time_ms > 0
    await bind(cluster, 1, "app", "producer_byte_rate", None)
    await asyncio.sleep(1)
    for _ in range(3):
        assert (await write(link, big)).throttle_time_ms == 0
    await link.close()


class Reader:
    """A consumer that keeps an incremental session, as Java's does."""

    def __init__(self, link: Connection) -> None:
        self._link = link
        self.values: list[bytes] = []
        self.throttles = 0
        self._offset = self._session_id = self._epoch = 0

    async def read(self) -> None:
        partition = fetch.Partition(
            partition=0, fetch_offset=self._offset, partition_max_bytes=1 << 20
        )
        request = fetch.FetchRequest(
            max_wait_ms=200,
            min_bytes=1,
            session_id=self._session_id,
            session_epoch=self._epoch,
            topics=[fetch.Topic(topic=TOPIC, partitions=[partition])],
        )
        answer = await self._link.request(request, 11, PATIENCE_MS)
        assert answer.error_code == ErrorCode.NONE
        self._session_id = answer.session_id
        self._epoch = self._epoch + 1 if answer.session_id else 0
        self.throttles += bool(answer.throttle_time_ms)
        assert not (answer.throttle_time_ms and answer.responses)
        for topic in answer.responses:
            self._take(bytes(topic.partitions[0].records or b""))

    def _take(self, data: bytes) -> None:
        for position, _ in batch.iterate(data):
            self._offset = batch.next_offset(data, position)
            self.values += [bytes(record.value or b"") for record in batch.records(data, position)]


async def a_throttled_consumer_loses_nothing(cluster: Cluster) -> None:
    await created(cluster, (2,))
    link = await Connection.open("n2", PORT, client_id="reader")
    wanted = [b"%d" % number * 2000 for number in range(RECORDS)]
    for value in wanted:
        await write(link, value)
    await bind(cluster, 2, "reader", "consumer_byte_rate", BOUND)
    reader, began = Reader(link), cluster.loop.time()
    while len(reader.values) < RECORDS:
        await reader.read()
    assert reader.values == wanted
    assert reader.throttles
    took = cluster.loop.time() - began
    # What ten windows may bring comes at once, and again when that has left them.
    size = sum(map(len, wanted))
    assert took >= (size // (10 * BOUND) - 1) * 10
    await link.close()


async def throttle_all(cluster: Cluster, rate: str | None) -> None:
    for node in NODES:
        name = str(node)
        await configured(
            cluster,
            node,
            NODE,
            name,
            leader_replication_throttled_rate=rate,
            follower_replication_throttled_rate=rate,
        )


async def throttled_replicas(cluster: Cluster, words: str | None) -> None:
    await configured(
        cluster,
        1,
        TOPIC_RESOURCE,
        TOPIC,
        leader_replication_throttled_replicas=words,
        follower_replication_throttled_replicas=words,
    )


async def reassigned(cluster: Cluster, replicas: tuple[int, ...]) -> None:
    request = alter_partition_reassignments.AlterPartitionReassignmentsRequest(
        topics=[
            alter_partition_reassignments.Topic(
                name=TOPIC,
                partitions=[
                    alter_partition_reassignments.Partition(partition_index=0, replicas=replicas)
                ],
            )
        ]
    )
    await accepted(cluster, request, 0, lambda answer: answer.error_code)


def copied(cluster: Cluster, node: int) -> int:
    replica = cluster.machines[node].partition(TOPIC)
    return 0 if replica is None else replica.log.end_offset


async def a_moved_replica_is_copied_at_its_rate(cluster: Cluster) -> None:
    loop = cluster.loop
    await created(cluster, (2,))
    link = await Connection.open("n2", PORT, client_id="writer")
    count = COPIED // SIZE
    for _ in range(count):
        await write(link, bytes(SIZE))
    await throttled_replicas(cluster, "*")
    await throttle_all(cluster, str(BOUND))
    await asyncio.sleep(1)
    began = loop.time()
    await reassigned(cluster, (2, 3))

    async def is_half() -> bool | None:
        return True if copied(cluster, 3) >= count // 2 else None

    await eventually(is_half)
    # The first answer may bring as much as one does.
    rate = copied(cluster, 3) * SIZE / (loop.time() - began)
    assert rate <= BOUND * 1.1 + 1_048_576 / (loop.time() - began)
    assert rate >= BOUND * 0.5
    # Clients do not wait for a replica that is being copied.
    now = loop.time()
    await write(link, b"v")
    assert loop.time() - now < 1
    await throttle_all(cluster, None)
    await throttled_replicas(cluster, None)
    freed = loop.time()
    await eventually(partial(in_sync, cluster, (2, 3)))
    assert loop.time() - freed < COPIED / 2 / BOUND / 2
    await link.close()


async def in_sync(cluster: Cluster, nodes: tuple[int, ...]) -> bool | None:
    data, _ = cluster.ensemble.tree.get(znodes.partition_state_path(TOPIC, 0), None)
    return True if sorted(znodes.PartitionState.from_json(data).isr) == sorted(nodes) else None


async def in_sync_replicas_never_wait(cluster: Cluster) -> None:
    loop = cluster.loop
    await created(cluster, (2, 1, 3))
    await eventually(partial(in_sync, cluster, NODES))
    await throttled_replicas(cluster, "*")
    await throttle_all(cluster, "1")
    await asyncio.sleep(1)
    link = await Connection.open("n2", PORT, client_id="writer")
    for _ in range(50):
        began = loop.time()
        await write(link, bytes(SIZE))
        assert loop.time() - began < 1
    await link.close()


@pytest.mark.parametrize("seed", seeds(range(1, 3), range(3, 30)))
def test_a_producer_at_five_times_its_quota_gets_its_quota_and_others_notice_nothing(
    seed: int,
) -> None:
    told(seed, a_producer_at_five_times_its_quota)


@pytest.mark.parametrize("seed", seeds(range(1, 3), range(3, 30)))
def test_a_quota_set_at_any_node_acts_and_vanishes_within_a_second(seed: int) -> None:
    told(seed, a_quota_acts_on_other_nodes_within_a_second)


@pytest.mark.parametrize("seed", seeds(range(1, 3), range(3, 30)))
def test_a_throttled_consumer_loses_nothing(seed: int) -> None:
    told(seed, a_throttled_consumer_loses_nothing)


@pytest.mark.parametrize("seed", seeds(range(1, 3), range(3, 30)))
def test_s66_a_moved_replica_is_copied_at_its_rate_until_the_throttle_goes(seed: int) -> None:
    told(seed, a_moved_replica_is_copied_at_its_rate)


@pytest.mark.parametrize("seed", seeds(range(1, 3), range(3, 30)))
def test_s66_replicas_in_sync_never_wait_for_a_throttle(seed: int) -> None:
    told(seed, in_sync_replicas_never_wait)
