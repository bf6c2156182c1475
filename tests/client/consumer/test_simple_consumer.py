"""The low-level consumer: each call one request, its buffer grows, its connection comes back."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from barnabas.client.consumer.simple_consumer import (
    EARLIEST_TIME,
    LATEST_TIME,
    Fetch,
    SimpleConsumer,
)
from barnabas.client.errors import DecodingFailed, Disconnected, KafkaError
from barnabas.client.group_metadata import CommittedOffset
from barnabas.client.topology import TopicPartition
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode
from tests.client.scripted_cluster import ScriptedCluster, scripted_cluster


@pytest.fixture
async def cluster() -> AsyncIterator[ScriptedCluster]:
    async with scripted_cluster(1) as cluster:
        yield cluster


@pytest.fixture
async def consumer(cluster: ScriptedCluster) -> AsyncIterator[SimpleConsumer]:
    async with SimpleConsumer("127.0.0.1", cluster.brokers[1].port) as consumer:
        yield consumer


async def test_a_fetch_begins_at_the_offset_asked_for(
    cluster: ScriptedCluster, consumer: SimpleConsumer
) -> None:
    (topic_partition,) = cluster.topic("t")
    cluster.logs[topic_partition].add(b"0", b"1", b"2")
    chunk = await consumer.fetch("t", 0, 1)
    assert chunk.values() == [b"1", b"2"]
    assert (chunk.next_offset, chunk.high_watermark) == (3, 3)


async def test_a_fetch_at_the_end_gives_nothing(
    cluster: ScriptedCluster, consumer: SimpleConsumer
) -> None:
    (topic_partition,) = cluster.topic("t")
    cluster.logs[topic_partition].add(b"0")
    chunk = await consumer.fetch("t", 0, 1)
    assert (len(chunk), chunk.values(), chunk.next_offset) == (0, [], 1)


async def test_a_buffer_too_small_for_one_message_is_doubled_until_it_fits(
    cluster: ScriptedCluster, consumer: SimpleConsumer
) -> None:
    (topic_partition,) = cluster.topic("t")
    cluster.logs[topic_partition].add(b"x" * 5_000)
    chunk = await consumer.fetch("t", 0, 0, max_bytes=10)
    assert chunk.values() == [b"x" * 5_000]
    sizes = [
        request.topics[0].partitions[0].partition_max_bytes
        for request in cluster.asked(ApiKey.FETCH)
    ]
    assert sizes[0] == 10
    assert sizes == sorted(sizes)


async def test_a_fetch_off_the_log_raises_its_code(
    cluster: ScriptedCluster, consumer: SimpleConsumer
) -> None:
    cluster.topic("t")
    with pytest.raises(KafkaError) as failure:
        await consumer.fetch("t", 0, 9)
    assert failure.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_an_answer_that_a_quota_held_back_is_a_retriable_error(
    cluster: ScriptedCluster, consumer: SimpleConsumer
) -> None:
    (topic_partition,) = cluster.topic("t")
    cluster.logs[topic_partition].add(b"0")
    cluster.fetches_throttled = 1
    with pytest.raises(KafkaError) as failure:
        await consumer.fetch("t", 0, 0)
    assert failure.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert failure.value.retriable
    assert (await consumer.fetch("t", 0, 0)).values() == [b"0"]


async def test_corrupt_records_raise_with_partition_and_offset(
    cluster: ScriptedCluster, consumer: SimpleConsumer
) -> None:
    (topic_partition,) = cluster.topic("t")
    cluster.logs[topic_partition].add(b"v")
    cluster.logs[topic_partition].batches[0] = cluster.logs[topic_partition].batches[0][:-1] + b"\7"
    with pytest.raises(DecodingFailed, match="t-0 at offset 0"):
        await consumer.fetch("t", 0, 0)


async def test_a_multifetch_answers_in_the_order_of_its_questions(
    cluster: ScriptedCluster, consumer: SimpleConsumer
) -> None:
    for topic_partition in cluster.topic("t", 3):
        cluster.logs[topic_partition].add(b"%d" % topic_partition.partition)
    asked = [Fetch("t", 2, 0), Fetch("t", 0, 0), Fetch("t", 9, 0), Fetch("t", 2, 1)]
    results = await consumer.multifetch(asked)
    assert [
        chunk if isinstance(chunk, KafkaError) else chunk.values() for chunk in results[:2]
    ] == [
        [b"2"],
        [b"0"],
    ]
    assert isinstance(results[2], KafkaError)
    assert results[2].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not isinstance(results[3], KafkaError)
    assert results[3].values() == []


async def test_offsets_before_a_time_come_newest_first(
    cluster: ScriptedCluster, consumer: SimpleConsumer
) -> None:
    (topic_partition,) = cluster.topic("t")
    cluster.logs[topic_partition].add(b"0", b"1")
    assert await consumer.get_offsets_before("t", 0, LATEST_TIME, 2) == [2, 0]
    assert await consumer.get_offsets_before("t", 0, EARLIEST_TIME, 1) == [0]
    assert await consumer.earliest_or_latest_offset("t", 0, LATEST_TIME) == 2


@pytest.mark.parametrize("version", [0, 1, 8])
async def test_offsets_are_committed_and_fetched_in_the_version_asked_for(
    cluster: ScriptedCluster, consumer: SimpleConsumer, version: int
) -> None:
    (topic_partition,) = cluster.topic("t")
    codes = await consumer.commit_offsets(
        "g", {topic_partition: CommittedOffset(7, "m")}, version=version
    )
    assert codes == {topic_partition: ErrorCode.NONE}
    found = await consumer.fetch_offsets("g", [topic_partition], version=min(version, 7))
    assert found == {topic_partition: CommittedOffset(7, "m")}
    (header,) = [
        header for header, _ in cluster.brokers[1].seen if header.key == ApiKey.OFFSET_COMMIT
    ]
    assert header.version == version


async def test_a_broken_connection_is_replaced_once(
    cluster: ScriptedCluster, consumer: SimpleConsumer
) -> None:
    cluster.topic("t")
    await consumer.metadata(["t"])
    broker = cluster.brokers[1]
    broker.writers[0].close()
    answer = await consumer.metadata(["t"])
    assert [topic.name for topic in answer.topics] == ["t"]
    assert broker.connections == 2


async def test_a_connection_that_breaks_twice_is_reported(
    cluster: ScriptedCluster, consumer: SimpleConsumer
) -> None:
    broker = cluster.brokers[1]

    def hang_up(request: object, version: int) -> None:
        broker.writers[-1].close()

    broker.answers = {ApiKey.METADATA: hang_up}
    with pytest.raises(Disconnected):
        await consumer.metadata()
    assert broker.connections == 2


async def test_the_coordinator_of_a_group_is_found(
    cluster: ScriptedCluster, consumer: SimpleConsumer
) -> None:
    node = await consumer.find_coordinator("g")
    assert (node.id, node.port) == (1, cluster.brokers[1].port)


async def test_unknown_offsets_of_zookeeper_are_an_error_by_partition(
    cluster: ScriptedCluster, consumer: SimpleConsumer
) -> None:
    topic_partition = TopicPartition("t", 0)
    cluster.coordinator_codes = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    found = await consumer.fetch_offsets("g", [topic_partition], version=0)
    assert isinstance(found[topic_partition], KafkaError)
