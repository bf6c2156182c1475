"""Sequence numbers through every failure: what is acknowledged is in the log, once, in order.

The scripted leaders judge producers as a node does, and as Kafka does: who is not known to a
partition may begin with any sequence. Source: docs/spec/log.md §7.2; KIP-360.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from random import Random
from typing import Any

import pytest

from barnabas.broker.storage.producers.producer_state import ProducerStateManager
from barnabas.broker.storage.segment.batch_headers import header_at
from barnabas.client.cluster import TopicPartition
from barnabas.client.errors import KafkaError
from barnabas.client.producer.producer import Producer
from barnabas.client.producer.producer_config import ProducerConfig
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.messages import produce
from barnabas.protocol.records import batch
from barnabas.protocol.records.header import sequence_after
from tests.client.producer.conftest import CLIENT
from tests.client.scripted_cluster import ScriptedCluster, scripted_cluster

QUICK = ProducerConfig(retry_backoff_ms=1, batch_bytes=200)
TURNED_AWAY = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS)
UNTOLD = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
)
"""What a leader says of records that are in its log when it lost its followers or its place."""


class SequenceCheckingBrokers:
    """Lets the brokers of a small cluster judge producers, and fail as ``random`` says."""

    def __init__(self, cluster: ScriptedCluster, random: Random, faults: float) -> None:
        self.faults = faults
        self.random = random
        self.cluster = cluster
        self.producers: dict[TopicPartition, ProducerStateManager] = defaultdict(
            ProducerStateManager
        )
        for number, broker in cluster.brokers.items():
            broker.answers = {
                **broker.answers,
                ApiKey.PRODUCE: cluster._at(number, self.answer),
            }

    def answer(
        self, number: int, request: produce.ProduceRequest, version: int
    ) -> produce.ProduceResponse:
        results = [
            produce.TopicResult(
                name=topic.name,
                partition_responses=[
                    self.check_batch(number, TopicPartition(topic.name, partition.index), partition)
                    for partition in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
        if self.draws_fault():
            for writer in self.cluster.brokers[number].writers:
                writer.close()
            raise ConnectionResetError
        return produce.ProduceResponse(responses=results)

    def draws_fault(self) -> bool:
        return self.random.random() < self.faults

    def check_batch(
        self, number: int, topic_partition: TopicPartition, sent: produce.Partition
    ) -> produce.PartitionResult:
        assert sent.records is not None
        try:
            if self.cluster.leaders[topic_partition] != number:
                raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if self.draws_fault():
                raise Refused(self.random.choice(TURNED_AWAY))
            base = self.append(topic_partition, bytes(sent.records))
            if self.draws_fault():
                self.cluster.move(topic_partition, self.random.choice(list(self.cluster.brokers)))
            if self.draws_fault():
                raise Refused(self.random.choice(UNTOLD))
        except Refused as refusal:
            return produce.PartitionResult(index=sent.index, error_code=refusal.code)
        return produce.PartitionResult(index=sent.index, base_offset=base)

    def append(self, topic_partition: TopicPartition, data: bytes) -> int:
        head, log = batch.header(data), self.cluster.logs[topic_partition]
        repeated = self.producers[topic_partition].check(
            head.producer_id,
            head.producer_epoch,
            head.base_sequence,
            sequence_after(head.base_sequence, head.record_count - 1),
            is_transactional=False,
            is_client=True,
        )
        if repeated is not None:
            return repeated.base_offset
        base = log.append(data)
        self.producers[topic_partition].note(header_at(log.batches[-1]), log.batches[-1])
        return base


async def test_a_node_that_becomes_leader_between_two_batches_gets_them_in_order() -> None:
    async with (
        scripted_cluster(1) as cluster,
        Producer(cluster.bootstrap, QUICK, client=CLIENT) as producer,
    ):
        (topic_partition,) = cluster.topic("t")
        await producer.partitions_for("t")
        checking = SequenceCheckingBrokers(cluster, Random(0), 0)
        cluster.leaders[topic_partition] = 2

        def turn_away(number: int, request: Any, version: int) -> produce.ProduceResponse:
            turned_away = checking.answer(number, request, version)
            cluster.leaders[topic_partition] = 1  # as a node that hears late of a new topic
            return turned_away

        cluster.brokers[1].answers = {
            **cluster.brokers[1].answers,
            ApiKey.PRODUCE: cluster._at(1, turn_away),
        }
        deliveries = []
        for number in range(40):
            deliveries.append(producer.send_soon("t", b"value %d" % number))
            await asyncio.sleep(0)
        for delivery in deliveries:
            await delivery
        assert cluster.logs[topic_partition].values() == [
            b"value %d" % number for number in range(40)
        ]


async def test_the_numbers_of_what_may_be_in_the_log_are_not_used_again() -> None:
    config = ProducerConfig(retry_backoff_ms=1, retries=0)
    async with (
        scripted_cluster(1) as cluster,
        Producer(cluster.bootstrap, config, client=CLIENT) as producer,
    ):
        (topic_partition,) = cluster.topic("t")
        checking = SequenceCheckingBrokers(cluster, Random(0), 0)
        await producer.send("t", b"first")

        def lose_leadership(number: int, request: Any, version: int) -> produce.ProduceResponse:
            answer = checking.answer(number, request, version)
            answer.responses[0].partition_responses[0].error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            cluster.brokers[1].answers = {
                **cluster.brokers[1].answers,
                ApiKey.PRODUCE: cluster._at(1, checking.answer),
            }
            return answer

        cluster.brokers[1].answers = {
            **cluster.brokers[1].answers,
            ApiKey.PRODUCE: cluster._at(1, lose_leadership),
        }
        with pytest.raises(KafkaError):
            await producer.send("t", b"in doubt")
        await producer.send("t", b"acknowledged")
        assert cluster.logs[topic_partition].values() == [b"first", b"in doubt", b"acknowledged"]


async def test_records_may_come_while_a_partition_gets_another_identity() -> None:
    async with (
        scripted_cluster(1) as cluster,
        Producer(cluster.bootstrap, QUICK, client=CLIENT) as producer,
    ):
        one, other = cluster.topic("t", 2)
        await producer.send("t", b"first", partition=0)
        cluster.logs[one].codes = [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
        with pytest.raises(KafkaError):
            await producer.send("t", b"refused", partition=0)
        asked, answered = asyncio.Event(), asyncio.Event()

        async def late(request: Any, version: int) -> Any:
            asked.set()
            await answered.wait()
            return cluster.answer_init_producer_id(request, version)

        cluster.brokers[1].answers = {**cluster.brokers[1].answers, ApiKey.INIT_PRODUCER_ID: late}
        waiting = producer.send_soon("t", b"second", partition=0)
        await asked.wait()
        beside = producer.send_soon("t", b"beside", partition=1)
        answered.set()
        await waiting
        await beside
        assert (cluster.logs[one].values(), cluster.logs[other].values()) == (
            [b"first", b"second"],
            [b"beside"],
        )


@pytest.mark.parametrize("retries", [None, 1], ids=["patient", "one-retry"])
@pytest.mark.parametrize("seed", range(25))
async def test_what_is_acknowledged_is_in_the_log_once_and_in_order(
    seed: int, retries: int | None
) -> None:
    random = Random(seed)
    config = ProducerConfig(retry_backoff_ms=1, batch_bytes=200, retries=retries)
    async with scripted_cluster(2) as cluster:
        topic_partitions = cluster.topic("t", 2)
        checking = SequenceCheckingBrokers(cluster, random, 0.1)
        acknowledged: dict[TopicPartition, list[bytes]] = defaultdict(list)
        failed: list[KafkaError] = []
        async with Producer(cluster.bootstrap, config, client=CLIENT) as producer:
            sent = []
            for number in range(150):
                value, topic_partition = b"value %d" % number, random.choice(topic_partitions)
                delivery = producer.send_soon("t", value, partition=topic_partition.partition)
                sent.append((topic_partition, value, delivery))
                await asyncio.sleep(random.choice((0, 0, 0.0005)))
            for topic_partition, value, delivery in sent:
                try:
                    await delivery
                    acknowledged[topic_partition].append(value)
                except KafkaError as error:
                    failed.append(error)
            checking.faults = 0
            for topic_partition in topic_partitions:  # whatever came before, the producer goes on
                await producer.send("t", b"last", partition=topic_partition.partition)
                acknowledged[topic_partition].append(b"last")
        for topic_partition in topic_partitions:
            found = cluster.logs[topic_partition].values()
            assert len(set(found)) == len(found), "a record is there twice"
            assert [
                outcome for outcome in found if outcome in set(acknowledged[topic_partition])
            ] == acknowledged[topic_partition]
        if retries is None:
            assert not failed
