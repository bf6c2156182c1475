"""What the producer does about each failure: order, sequences and promises are kept."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from barnabas.client.cluster import TopicPartition
from barnabas.client.errors import KafkaError
from barnabas.client.producer.producer import Producer
from barnabas.client.producer.producer_config import ProducerConfig
from barnabas.client.producer.sender import Sender
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import produce
from barnabas.protocol.records import batch
from tests.client.producer.conftest import CLIENT
from tests.client.scripted_cluster import ScriptedCluster
from tests.client.scripted_transactions import until


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CORRUPT_MESSAGE,
    ],
)
async def test_what_may_pass_is_tried_again(
    cluster: ScriptedCluster, producer: Producer, code: ErrorCode
) -> None:
    (topic_partition,) = cluster.topic("t")
    cluster.logs[topic_partition].codes = [code, code]
    assert (await producer.send("t", b"v")).offset == 0


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_REQUIRED_ACKS,
    ],
)
async def test_what_cannot_pass_is_reported_at_once(
    cluster: ScriptedCluster, producer: Producer, code: ErrorCode
) -> None:
    (topic_partition,) = cluster.topic("t")
    cluster.logs[topic_partition].codes = [code]
    with pytest.raises(KafkaError) as failure:
        await producer.send("t", b"bad")
    assert failure.value.code is code
    assert not failure.value.retriable
    assert (await producer.send("t", b"good")).offset == 0


async def test_after_a_moved_leader_only_the_moved_partition_is_sent_again(
    cluster: ScriptedCluster, producer: Producer
) -> None:
    stays, moves = cluster.topic("t", 2)
    await producer.partitions_for("t")
    cluster.move(moves, 1)
    deliveries = [
        producer.send_soon("t", b"v", partition=topic_partition.partition)
        for topic_partition in (stays, moves)
    ]
    for delivery in deliveries:
        await delivery
    sent = [
        partition.index
        for request in cluster.asked(ApiKey.PRODUCE)
        for topic in request.topic_data
        for partition in topic.partition_data
    ]
    assert sorted(sent) == [0, 1, 1]
    assert cluster.logs[stays].values() == cluster.logs[moves].values() == [b"v"]


async def test_order_is_kept_through_failures_of_batches_under_way(
    cluster: ScriptedCluster, producer: Producer
) -> None:
    (topic_partition,) = cluster.topic("t")
    await producer.partitions_for("t")
    sequences = _check_sequences(cluster)
    cluster.logs[topic_partition].codes = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    deliveries = []
    for number in range(40):
        deliveries.append(producer.send_soon("t", b"%d" % number))
        await asyncio.sleep(0)
    for delivery in deliveries:
        await delivery
    assert cluster.logs[topic_partition].values() == [b"%d" % number for number in range(40)]
    assert sequences[topic_partition][1] == 40


async def test_a_refused_batch_leaves_no_gap_in_the_sequence(
    cluster: ScriptedCluster, producer: Producer
) -> None:
    (topic_partition,) = cluster.topic("t")
    await producer.send("t", b"first")
    _check_sequences(cluster, {topic_partition: (4_001, 1)})
    cluster.logs[topic_partition].codes = [ErrorCode.INVALID_RECORD]
    refused = producer.send_soon("t", b"refused")
    for _ in range(3):
        await asyncio.sleep(0)
    behind = producer.send_soon("t", b"behind")
    with pytest.raises(KafkaError):
        await refused
    assert (await behind).offset == 1
    assert cluster.logs[topic_partition].values() == [b"first", b"behind"]


def _check_sequences(
    cluster: ScriptedCluster, known: dict[TopicPartition, tuple[int, int]] | None = None
) -> dict[TopicPartition, tuple[int, int]]:
    """Let the scripted brokers refuse what Kafka refuses; producer and next sequence by place."""
    expected = known or {}
    plain = cluster._refusal

    def refusal(number: int, topic_partition: TopicPartition) -> int:
        code = plain(number, topic_partition)
        if code or topic_partition not in sent:
            return code
        producer_id, sequence, count = sent.pop(topic_partition)
        known_id, due = expected.get(topic_partition, (producer_id, 0))
        if sequence != (due if known_id == producer_id else 0):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        expected[topic_partition] = (producer_id, sequence + count)
        return 0

    sent: dict[TopicPartition, tuple[int, int, int]] = {}

    def note(number: int, request: produce.ProduceRequest) -> None:
        for topic in request.topic_data:
            for partition in topic.partition_data:
                assert partition.records is not None
                head = batch.header(partition.records)
                topic_partition = TopicPartition(topic.name, partition.index)
                sent[topic_partition] = (head.producer_id, head.base_sequence, head.record_count)

    cluster._refusal = refusal  # type: ignore[method-assign]
    cluster.on_produce = note
    return expected


async def test_a_sequence_the_leader_does_not_know_leads_to_a_new_identity(
    cluster: ScriptedCluster, producer: Producer
) -> None:
    (topic_partition,) = cluster.topic("t")
    await producer.send("t", b"first")
    _check_sequences(cluster, {topic_partition: (4_001, 99)})
    with pytest.raises(KafkaError) as failure:
        await producer.send("t", b"lost")
    assert failure.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (await producer.send("t", b"goes on")).offset == 1
    assert cluster.producers == 2


async def test_a_producer_goes_on_after_an_error_that_nobody_expected(
    cluster: ScriptedCluster, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What sends ended with it, and the next record waited for ever."""
    (topic_partition,) = cluster.topic("t")
    await producer.partitions_for("t")
    dispatch, errors = Sender._dispatch, [OSError("too many open files")]

    async def fails_once(sender: Sender, now: float) -> float | None:
        if errors and sender._accumulator.active:
            raise errors.pop()
        return await dispatch(sender, now)

    monkeypatch.setattr(Sender, "_dispatch", fails_once)
    with pytest.raises(KafkaError, match="too many open files"):
        await producer.send("t", b"lost")
    assert (await producer.send("t", b"goes on")).offset == 0
    assert cluster.logs[topic_partition].values() == [b"goes on"]


async def test_a_duplicate_is_a_success(cluster: ScriptedCluster, producer: Producer) -> None:
    (topic_partition,) = cluster.topic("t")
    cluster.logs[topic_partition].codes = [ErrorCode.DUPLICATE_SEQUENCE_NUMBER]
    assert (await producer.send("t", b"v")).offset == -1


async def test_a_retry_carries_the_sequence_of_the_first_try(
    cluster: ScriptedCluster, producer: Producer
) -> None:
    (topic_partition,) = cluster.topic("t")
    cluster.logs[topic_partition].codes = [ErrorCode.REQUEST_TIMED_OUT]
    await producer.send("t", b"v")
    heads = [
        batch.header(request.topic_data[0].partition_data[0].records)
        for request in cluster.asked(ApiKey.PRODUCE)
    ]
    assert [(head.producer_id, head.base_sequence) for head in heads] == [(4_001, 0)] * 2


async def test_without_idempotence_one_batch_of_a_partition_is_under_way(
    cluster: ScriptedCluster,
) -> None:
    (topic_partition,) = cluster.topic("t")
    config = ProducerConfig(required_acks=1, retry_backoff_ms=2)
    async with Producer(cluster.bootstrap, config, client=CLIENT) as producer:
        cluster.logs[topic_partition].codes = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        for number in range(10):
            producer.send_soon("t", b"%d" % number)
            await asyncio.sleep(0)
        await producer.flush()
    assert cluster.logs[topic_partition].values() == [b"%d" % number for number in range(10)]
    assert not cluster.asked(ApiKey.INIT_PRODUCER_ID)


async def test_retries_end_with_their_number(cluster: ScriptedCluster) -> None:
    (topic_partition,) = cluster.topic("t")
    config = {"message.send.max.retries": 2, "retry.backoff.ms": 1}
    async with Producer(cluster.bootstrap, config, client=CLIENT) as producer:
        cluster.logs[topic_partition].codes = [ErrorCode.NOT_ENOUGH_REPLICAS] * 3
        with pytest.raises(KafkaError) as failure:
            await producer.send("t", b"v")
        assert failure.value.retriable
        assert (await producer.send("t", b"next")).offset == 0


async def test_retries_end_with_their_time(cluster: ScriptedCluster) -> None:
    (topic_partition,) = cluster.topic("t")
    config = ProducerConfig(delivery_timeout_ms=60_000, retry_backoff_ms=5)
    async with Producer(cluster.bootstrap, config, client=CLIENT) as producer:
        await producer.partitions_for("t")
        cluster.logs[topic_partition].codes = [ErrorCode.NOT_ENOUGH_REPLICAS] * 100_000
        now = asyncio.get_running_loop().time()
        late = producer.send_soon("t", b"v")
        assert producer._accumulator is not None
        queue = producer._accumulator.queues[topic_partition]
        await until(lambda: bool(queue.in_flight))
        sent = queue.in_flight[0]
        assert 59 < sent.deadline - now < 120
        # By the clock, its time could be over before it is sent, on a busy machine.
        sent.deadline = 0.0
        with pytest.raises(KafkaError) as failure:
            await late
    assert failure.value.code is ErrorCode.NOT_ENOUGH_REPLICAS


async def test_a_lost_connection_is_replaced_and_nothing_is_lost(
    cluster: ScriptedCluster, producer: Producer
) -> None:
    (topic_partition,) = cluster.topic("t")
    await producer.send("t", b"0")

    def hang_up(number: int, request: Any) -> None:
        cluster.on_produce = lambda number, request: None
        for writer in cluster.brokers[number].writers:
            writer.close()
        raise ConnectionResetError

    cluster.on_produce = hang_up
    assert (await producer.send("t", b"1")).offset == 1
    assert cluster.logs[topic_partition].values() == [b"0", b"1"]
