"""Transactions of the producer: what is sent when, and what becomes of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from barnabas.client.cluster import TopicPartition
from barnabas.client.errors import (
    AbortableTransactionError,
    KafkaError,
    TransactionAborted,
)
from barnabas.client.group_metadata import CommittedOffset, GroupMetadata
from barnabas.client.producer.producer import Producer
from barnabas.client.producer.producer_config import ProducerConfig
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records import batch
from tests.client.producer.conftest import CLIENT
from tests.client.scripted_transactions import ScriptedTransactions, scripted_transactions, until

CONFIG = ProducerConfig(retry_backoff_ms=2, transactional_id="x")
MEMBER = GroupMetadata("g", 3, "member", "instance")
IN = TopicPartition("in", 0)


@pytest.fixture
async def cluster() -> AsyncIterator[ScriptedTransactions]:
    async with scripted_transactions(2) as cluster:
        cluster.topic("t", 4)
        yield cluster


@pytest.fixture
async def producer(cluster: ScriptedTransactions) -> AsyncIterator[Producer]:
    async with Producer(cluster.bootstrap, CONFIG, client=CLIENT) as producer:
        cluster.served.clear()
        yield producer


# What is sent when.


@pytest.mark.parametrize("is_commit", [True, False])
async def test_nothing_is_sent_for_an_empty_transaction(
    cluster: ScriptedTransactions, producer: Producer, is_commit: bool
) -> None:
    """Checks T7.2 and T9.1."""
    for _ in range(2):
        producer.begin()
        await (producer.commit() if is_commit else producer.abort())
    assert cluster.served == []


async def test_records_and_offsets_are_committed_together(
    cluster: ScriptedTransactions, producer: Producer
) -> None:
    async with producer.transaction() as transaction:
        placed = await transaction.send("t", b"one", partition=1, key=b"k")
        await transaction.send_all("t", [b"two", b"three"])
        delivery = transaction.send_soon("t", b"four", partition=2)
        await transaction.send_offsets(MEMBER, {IN: 7, TopicPartition("in", 1): 8})
        assert cluster.committed_values == []
        assert IN not in cluster.committed
    assert placed.partition == 1
    assert (await delivery).partition == 2
    assert sorted(cluster.committed_values) == [b"four", b"one", b"three", b"two"]
    assert cluster.committed[IN] == (7, "", -1)
    assert set(cluster.members) == {(3, "member", "instance")}
    assert cluster.served[-1] is ApiKey.END_TXN


async def test_offsets_alone_make_a_transaction(
    cluster: ScriptedTransactions, producer: Producer
) -> None:
    """Check T9.2."""
    async with producer.transaction() as transaction:
        await transaction.send_offsets(MEMBER, {IN: CommittedOffset(7, "words", 2)})
    assert cluster.committed[IN] == (7, "words", 2)
    assert cluster.served == [
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.FIND_COORDINATOR,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.END_TXN,
    ]


async def test_no_offsets_are_no_request(cluster: ScriptedTransactions, producer: Producer) -> None:
    async with producer.transaction() as transaction:
        await transaction.send_offsets(MEMBER, {})
    assert cluster.served == []


async def test_partitions_are_added_together_and_once(
    cluster: ScriptedTransactions, producer: Producer
) -> None:
    await producer.partitions_for("t")
    async with producer.transaction() as transaction:
        for _ in range(3):
            for partition in range(4):
                transaction.send_soon("t", b"v", partition=partition)
            await producer.flush()
    assert cluster.served == [ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.END_TXN]
    assert len(cluster.committed_values) == 12


async def test_one_transactional_request_is_in_flight_at_a_time(
    cluster: ScriptedTransactions, producer: Producer
) -> None:
    """Also where partitions, offsets and the end all wait."""
    await producer.partitions_for("t")
    release = cluster.hold(1, ApiKey.ADD_PARTITIONS_TO_TXN)

    def judge(node: int, key: ApiKey, request: Any) -> None:
        assert release.is_set() or key is ApiKey.FIND_COORDINATOR

    cluster.before = judge
    producer.begin()
    producer.send_soon("t", b"a", partition=0)
    await until(lambda: cluster.asked(ApiKey.ADD_PARTITIONS_TO_TXN))
    producer.send_soon("t", b"b", partition=1)
    offsets = asyncio.ensure_future(producer.send_offsets(MEMBER, {IN: 7}))
    await asyncio.sleep(0)
    commit = asyncio.ensure_future(producer.commit())
    await asyncio.sleep(0)
    release.set()
    await asyncio.gather(offsets, commit)
    assert cluster.served.count(ApiKey.ADD_PARTITIONS_TO_TXN) == 2
    assert sorted(cluster.committed_values) == [b"a", b"b"]
    assert cluster.committed[IN][0] == 7


async def test_a_batch_waits_until_its_partition_is_added(
    cluster: ScriptedTransactions, producer: Producer
) -> None:
    """Check T8.15: KAFKA-13782, 12870, 5364. A partition that is drained when another is added."""
    await producer.partitions_for("t")
    async with producer.transaction() as transaction:
        await transaction.send("t", b"first", partition=0)
        release = cluster.hold(1, ApiKey.ADD_PARTITIONS_TO_TXN)
        late = transaction.send_soon("t", b"late", partition=1)
        for number in range(20):  # drained beside it, meanwhile
            await transaction.send("t", b"%d" % number, partition=0)
        assert not late.is_done
        assert not cluster.logs[TopicPartition("t", 1)].batches
        release.set()
    assert len(cluster.committed_values) == 22


async def test_a_partition_of_the_last_transaction_is_added_to_the_next(
    cluster: ScriptedTransactions, producer: Producer
) -> None:
    """The scripted leader refuses what was not added; five in a row on one partition."""
    for number in range(5):
        async with producer.transaction() as transaction:
            transaction.send_soon("t", b"%d" % number, partition=0)
    assert cluster.committed_values == [b"%d" % number for number in range(5)]
    assert _sequences(cluster, TopicPartition("t", 0)) == [0, 1, 2, 3, 4]


# How it ends.


async def test_an_exception_aborts(cluster: ScriptedTransactions, producer: Producer) -> None:
    async def fail() -> None:
        async with producer.transaction() as transaction:
            await transaction.send("t", b"gone")
            await transaction.send_offsets(MEMBER, {IN: 7})
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        await fail()
    assert cluster.aborted_values == [b"gone"]
    assert IN not in cluster.committed
    async with producer.transaction() as transaction:
        await transaction.send("t", b"kept")
    assert cluster.committed_values == [b"kept"]


async def test_an_abort_drops_what_was_not_sent(
    cluster: ScriptedTransactions, producer: Producer
) -> None:
    """Check T9: abort before a batch was sent, then commit."""
    await producer.partitions_for("t")
    producer.begin()
    deliveries = [producer.send_soon("t", b"gone", partition=0) for _ in range(3)]
    unknown = producer.send_soon("elsewhere", b"gone")
    await producer.abort()
    for delivery in (*deliveries, unknown):
        with pytest.raises(TransactionAborted):
            await delivery
    cluster.topic("elsewhere")
    async with producer.transaction() as transaction:
        await transaction.send("t", b"kept", partition=0)
        await transaction.send("elsewhere", b"kept too")
    assert cluster.committed_values == [b"kept", b"kept too"]
    assert cluster.aborted_values == []


async def test_an_abort_waits_for_what_was_sent(
    cluster: ScriptedTransactions, producer: Producer
) -> None:
    await producer.partitions_for("t")
    place = TopicPartition("t", 0)
    producer.begin()
    cluster.logs[place].codes = [ErrorCode.NOT_ENOUGH_REPLICAS] * 3
    delivery = producer.send_soon("t", b"sent", partition=0)
    await until(lambda: len(cluster.logs[place].codes) < 3)
    await producer.abort()
    assert (await delivery).offset == 0
    assert cluster.aborted_values == [b"sent"]
    assert cluster.epoch == 0


async def test_a_record_that_is_lost_makes_the_transaction_abortable(
    cluster: ScriptedTransactions, producer: Producer
) -> None:
    await producer.partitions_for("t")
    place = TopicPartition("t", 0)
    producer.begin()
    cluster.logs[place].codes = [ErrorCode.INVALID_RECORD]
    for partition in (0, 1):
        producer.send_soon("t", b"v", partition=partition)
    with pytest.raises(AbortableTransactionError) as failure:
        await producer.commit()
    await producer.abort()
    assert failure.value.code is ErrorCode.INVALID_RECORD
    assert cluster.committed_values == []
    assert cluster.epoch == 1, "the sequence of the lost batch is mended by another epoch"
    async with producer.transaction() as transaction:
        await transaction.send("t", b"next", partition=0)
    assert cluster.committed_values == [b"next"]
    assert _sequences(cluster, place)[-1] == 0


@pytest.mark.parametrize("value", [b"x" * 2_000_000, 17.5])
async def test_a_record_that_cannot_be_sent_keeps_the_transaction_from_being_committed(
    cluster: ScriptedTransactions, producer: Producer, value: Any
) -> None:
    """Also when its failure is told only to who awaits the delivery."""
    producer.begin()
    delivery = producer.send_soon("t", value)  # the topic is not known yet
    with pytest.raises((KafkaError, TypeError)):
        await delivery
    with pytest.raises(AbortableTransactionError):
        await producer.commit()
    await producer.abort()
    await producer.partitions_for("t")
    producer.begin()
    if isinstance(value, bytes):
        with pytest.raises(KafkaError):
            producer.send_soon("t", value)
        with pytest.raises(AbortableTransactionError):
            producer.send_soon("t", b"small")
    await producer.abort()


async def test_a_topic_that_does_not_exist_makes_the_transaction_abortable(
    cluster: ScriptedTransactions, producer: Producer
) -> None:
    with pytest.raises(AbortableTransactionError):
        async with producer.transaction() as transaction:
            transaction.send_soon("nowhere", b"v")
    async with producer.transaction() as transaction:
        await transaction.send("t", b"next")
    assert cluster.committed_values == [b"next"]


async def test_out_of_order_behind_a_failure_is_sent_again(
    cluster: ScriptedTransactions, producer: Producer
) -> None:
    """Check T7.1: 45 of a batch that is not the next in line."""
    await producer.partitions_for("t")
    place = TopicPartition("t", 0)
    async with producer.transaction() as transaction:
        await transaction.send("t", b"0", partition=0)
        assert producer._accumulator is not None
        in_flight = producer._accumulator.queues[place].in_flight
        release = cluster.hold(1, ApiKey.PRODUCE)
        for number in (1, 2):
            transaction.send_soon("t", b"%d" % number, partition=0)
            await until(lambda count=number: len(in_flight) == count)
        cluster.logs[place].codes = [
            ErrorCode.NOT_ENOUGH_REPLICAS,
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ]
        release.set()
    assert cluster.committed_values == [b"0", b"1", b"2"]
    assert cluster.epoch == 0


async def test_an_unknown_producer_is_mended_by_another_epoch(
    cluster: ScriptedTransactions, producer: Producer
) -> None:
    """Check T8.17: KAFKA-7190, 8710. Retention removed the producer's last batch."""
    place = TopicPartition("t", 0)
    async with producer.transaction() as transaction:
        await transaction.send("t", b"old", partition=0)
    cluster.logs[place].codes = [ErrorCode.UNKNOWN_PRODUCER_ID]
    with pytest.raises(AbortableTransactionError):
        async with producer.transaction() as transaction:
            await transaction.send("t", b"refused", partition=0)
    async with producer.transaction() as transaction:
        await transaction.send("t", b"new", partition=0)
    assert cluster.committed_values == [b"old", b"new"]
    assert _sequences(cluster, place)[-1] == 0


async def test_the_epoch_is_bumped_when_nothing_of_the_old_one_is_in_flight(
    cluster: ScriptedTransactions, producer: Producer
) -> None:
    """docs/spec/transactions.md §7; the scripted leader refuses batches of another epoch."""
    await producer.partitions_for("t")
    producer.begin()
    await producer.send("t", b"added", partition=1)
    release = cluster.hold(2, ApiKey.PRODUCE)
    slow = producer.send_soon("t", b"slow", partition=1)
    await until(lambda: cluster.asked(ApiKey.PRODUCE)[-1].topic_data and not slow.is_done)
    cluster.logs[TopicPartition("t", 0)].codes = [ErrorCode.INVALID_RECORD]
    with pytest.raises(AbortableTransactionError):
        await producer.send("t", b"bad", partition=0)
    abort = asyncio.ensure_future(producer.abort())
    for _ in range(20):
        await asyncio.sleep(0)
    assert cluster.epoch == 0
    release.set()
    await abort
    assert cluster.epoch == 1
    assert cluster.aborted_values == [b"added", b"slow"]


async def test_a_batch_that_expires_after_it_was_sent_needs_another_epoch(
    cluster: ScriptedTransactions,
) -> None:
    """docs/spec/transactions.md §7, last line of the table."""
    async with Producer(cluster.bootstrap, CONFIG, client=CLIENT) as producer:
        producer.begin()
        await producer.send("t", b"fine", partition=0)
        cluster.logs[TopicPartition("t", 0)].codes = [ErrorCode.NOT_ENOUGH_REPLICAS] * 1_000
        late = asyncio.ensure_future(producer.send("t", b"late", partition=0))
        assert producer._accumulator is not None
        queue = producer._accumulator.queues[TopicPartition("t", 0)]
        await until(lambda: bool(queue.in_flight))
        # By the clock, its time could be over before it is sent, on a busy machine.
        queue.in_flight[0].deadline = 0.0
        with pytest.raises(AbortableTransactionError) as failure:
            await late
        assert failure.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
        await producer.abort()
        assert cluster.epoch == 1


async def test_a_batch_that_expires_before_it_was_sent_needs_none(
    cluster: ScriptedTransactions,
) -> None:
    config = replace(CONFIG, delivery_timeout_ms=30)
    async with Producer(cluster.bootstrap, config, client=CLIENT) as producer:
        cluster.codes[ApiKey.ADD_PARTITIONS_TO_TXN] = [ErrorCode.CONCURRENT_TRANSACTIONS] * 1_000
        producer.begin()
        with pytest.raises(AbortableTransactionError):
            await producer.send("t", b"late", partition=0)
        await producer.abort()
        assert cluster.epoch == 0
        assert ApiKey.END_TXN not in cluster.served


async def test_offsets_that_a_rebalance_made_void_abort_the_transaction(
    cluster: ScriptedTransactions, producer: Producer
) -> None:
    """Check T9: stale generation, abort, go on."""
    cluster.codes[ApiKey.TXN_OFFSET_COMMIT] = [ErrorCode.ILLEGAL_GENERATION]

    async def copy() -> None:
        async with producer.transaction() as transaction:
            await transaction.send("t", b"copied")
            await transaction.send_offsets(MEMBER, {IN: 7})

    with pytest.raises(AbortableTransactionError) as failure:
        await copy()
    assert failure.value.code is ErrorCode.ILLEGAL_GENERATION
    assert cluster.aborted_values == [b"copied"]
    async with producer.transaction() as transaction:
        await transaction.send_offsets(MEMBER._replace(generation=4), {IN: 7})
    assert cluster.committed[IN][0] == 7


async def test_only_offsets_that_failed_are_stored_again(
    cluster: ScriptedTransactions, producer: Producer
) -> None:
    cluster.codes[ApiKey.TXN_OFFSET_COMMIT] = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    async with producer.transaction() as transaction:
        await transaction.send_offsets(MEMBER, {IN: 7, TopicPartition("in", 1): 8})
    asked = [
        [partition.partition_index for topic in request.topics for partition in topic.partitions]
        for request in cluster.asked(ApiKey.TXN_OFFSET_COMMIT)
    ]
    assert asked == [[0, 1], [0]]


def _sequences(cluster: ScriptedTransactions, place: TopicPartition) -> list[int]:
    """The base sequence of each batch in the log."""
    return [batch.header(stored, 0).base_sequence for stored in cluster.logs[place].batches]
