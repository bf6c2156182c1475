"""Transactions of our client on Apache Kafka, with librdkafka as the other side.

Checks T7.4, and the sequences of docs/spec/transactions.md §9 that a client alone can bring about.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any

import confluent_kafka
import pytest

from barnabas.client import (
    AbortableTransactionError,
    Admin,
    Consumer,
    FatalTransactionError,
    GroupMetadata,
    KafkaError,
    NewTopic,
    Producer,
    ProducerConfig,
    ProducerFenced,
    SimpleConsumer,
    SyncConsumer,
    SyncProducer,
    TopicPartition,
)
from barnabas.client.consumer.list_offsets import LATEST, offsets_for
from tests.harness.committed_readers import confluent
from tests.harness.deployments import Deployment
from tests.harness.transactional_clusters import transactional
from tests.harness.waiting import eventually

__all__ = ["transactional"]


WAIT_S = 180.0
COMMITTED = {
    "isolation.level": "read_committed",
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
}
TOO_LONG_MS = 5_000
"""Long enough for a first record to be written, on a busy machine too."""
UNCOMMITTED = {"auto.offset.reset": "earliest", "enable.auto.commit": False}


@pytest.fixture
def bootstrap(transactional: Deployment) -> str:
    return transactional.bootstrap


@pytest.fixture
async def topic(bootstrap: str) -> str:
    name = f"txn-{uuid.uuid4().hex[:12]}"
    async with Admin.of(bootstrap) as admin:
        await admin.create_topics([NewTopic(name=name, partitions=1)])
    return name


@pytest.fixture
def name() -> str:
    """A transactional id."""
    return f"id-{uuid.uuid4().hex[:12]}"


@pytest.fixture
async def producer(bootstrap: str, name: str) -> AsyncIterator[Producer]:
    config = ProducerConfig(transactional_id=name, transaction_timeout_ms=600_000)
    async with Producer(bootstrap, config) as producer:
        yield producer


async def commit(producer: Producer, topic: str, *values: str) -> None:
    async with producer.transaction() as transaction:
        await transaction.send_all(topic, values)


async def abort(producer: Producer, topic: str, *values: str) -> None:
    producer.begin()
    await producer.send_all(topic, values)
    await producer.abort()


async def end_of(bootstrap: str, topic: str, partition: int = 0, *, read_committed: bool) -> int:
    """Where readers of this level find the end: the last stable offset, or the high watermark."""
    place = TopicPartition(topic, partition)
    async with Admin.of(bootstrap) as admin:
        found = await offsets_for(admin.cluster, {place: LATEST}, read_committed=read_committed)
    return found[place]


async def await_end(bootstrap: str, topic: str, end: int, partition: int = 0) -> None:
    """A transaction is over for the client before its marker is in the log."""
    async with asyncio.timeout(WAIT_S):
        while True:
            if await end_of(bootstrap, topic, partition, read_committed=True) == end:
                return
            await asyncio.sleep(0.02)


async def settled_end(bootstrap: str, topic: str) -> int:
    """Where the log ends once every transaction in it has its marker."""
    async with asyncio.timeout(WAIT_S):
        while True:
            end = await end_of(bootstrap, topic, read_committed=False)
            if await end_of(bootstrap, topic, read_committed=True) == end:
                return end
            await asyncio.sleep(0.02)


async def read(
    bootstrap: str, topic: str, end: int, settings: dict[str, Any], start: int = 0
) -> list[str]:
    """The values from ``start`` until the position is at ``end``."""
    place = TopicPartition(topic, 0)
    found: list[str] = []
    async with Consumer(bootstrap, config=settings) as consumer, asyncio.timeout(WAIT_S):
        await consumer.assign({place: start})
        while consumer.position(place) != end:
            batch = await consumer.next_batch(timeout_s=0.1)
            if batch is not None:
                found += [value.decode() for value in batch.values()]
    return found


def librdkafkas(bootstrap: str, name: str) -> Any:
    """librdkafka's producer of the same id; fences whoever has it."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 0}
    )
    producer.init_transactions(WAIT_S)
    return producer


async def test_commits_and_aborts_are_read_as_both_clients_read_them(
    bootstrap: str, topic: str, producer: Producer
) -> None:
    """Five transactions in a row on one partition, mixed with plain records."""
    for number in range(5):
        await (commit if number % 2 == 0 else abort)(producer, topic, f"{number} a", f"{number} b")
        async with Producer(bootstrap) as plain:
            await plain.send(topic, f"plain {number}")
    await await_end(bootstrap, topic, 20)
    kept = ["0 a", "0 b", "plain 0", "plain 1", "2 a", "2 b", "plain 2", "plain 3"]
    kept += ["4 a", "4 b", "plain 4"]
    assert await read(bootstrap, topic, 20, COMMITTED) == kept
    assert len(await read(bootstrap, topic, 20, UNCOMMITTED)) == 15
    small = {**COMMITTED, "max.partition.fetch.bytes": 1}
    assert await read(bootstrap, topic, 20, small) == kept
    rows = await asyncio.to_thread(confluent, bootstrap, topic, 0, "read_committed", 20)
    assert [value.decode() for _, value in rows] == kept
    for start in range(20):  # into an aborted range, onto a marker
        behind = [value.decode() for offset, value in rows if offset >= start]
        assert await read(bootstrap, topic, 20, COMMITTED, start) == behind


async def test_transactions_of_librdkafka_are_read_by_ours(
    bootstrap: str, topic: str, name: str
) -> None:
    def write() -> None:
        theirs = librdkafkas(bootstrap, name)
        for number in range(4):
            theirs.begin_transaction()
            theirs.produce(topic, f"{number}".encode())
            assert theirs.flush(WAIT_S) == 0
            if number % 2:
                theirs.abort_transaction(WAIT_S)
            else:
                theirs.commit_transaction(WAIT_S)

    await asyncio.to_thread(write)
    await await_end(bootstrap, topic, 8)
    assert await read(bootstrap, topic, 8, COMMITTED) == ["0", "2"]


async def test_an_empty_transaction_leaves_nothing(
    bootstrap: str, topic: str, producer: Producer
) -> None:
    """Check T7.2: Kafka would refuse to end what it does not know of (48)."""
    for end in (producer.commit, producer.abort, producer.commit):
        producer.begin()
        await end()
    await commit(producer, topic, "kept")
    await await_end(bootstrap, topic, 2)
    assert await read(bootstrap, topic, 2, COMMITTED) == ["kept"]


async def test_an_abort_before_a_batch_was_sent_and_then_a_commit(
    bootstrap: str, topic: str, producer: Producer
) -> None:
    await producer.partitions_for(topic)
    producer.begin()
    producer.send_soon(topic, "gone")
    await producer.abort()
    await commit(producer, topic, "kept")
    end = await settled_end(bootstrap, topic)
    assert await read(bootstrap, topic, end, COMMITTED) == ["kept"]


async def test_ends_of_both_levels_during_a_transaction(
    bootstrap: str, topic: str, producer: Producer
) -> None:
    await commit(producer, topic, "before")
    await await_end(bootstrap, topic, 2)
    producer.begin()
    await producer.send(topic, "open")
    assert await end_of(bootstrap, topic, read_committed=True) == 2
    assert await end_of(bootstrap, topic, read_committed=False) == 3
    host, port = bootstrap.split(":")
    async with (
        SimpleConsumer(host, int(port), isolation_level="read_committed") as careful,
        SimpleConsumer(host, int(port)) as careless,
    ):
        assert [r.value for r in (await careful.fetch(topic, 0, 0)).records()] == [b"before"]
        assert not (await careful.fetch(topic, 0, 2)).records()
        assert [r.value for r in (await careless.fetch(topic, 0, 2)).records()] == [b"open"]
        assert await careful.earliest_or_latest_offset(topic, 0, -1) == 2
        assert await careless.earliest_or_latest_offset(topic, 0, -1) == 3
        await producer.abort()
        await await_end(bootstrap, topic, 4)
        after = await careful.fetch(topic, 0, 2)
        assert not after.records()
        assert after.next_offset == 4


@pytest.mark.parametrize("is_after_the_commit", [False, True])
@pytest.mark.parametrize("second_is_ours", [False, True])
async def test_a_second_producer_fences_the_first(
    bootstrap: str,
    topic: str,
    name: str,
    is_after_the_commit: bool,
    second_is_ours: bool,
) -> None:
    """Before and after the first one's commit, and then the first one sends."""
    first = Producer(bootstrap, transactional_id=name)
    await first.start()
    first.begin()
    await first.send(topic, "first")
    if is_after_the_commit:
        await first.commit()
        first.begin()
    second = None
    if second_is_ours:
        second = Producer(bootstrap, transactional_id=name)
        await second.start()
    else:
        await asyncio.to_thread(librdkafkas, bootstrap, name)
    with pytest.raises((AbortableTransactionError, FatalTransactionError)):
        await first.send(topic, "zombie")
    with pytest.raises((ProducerFenced, AbortableTransactionError)):
        await first.commit()
    with pytest.raises(KafkaError):
        await first.abort()
    with pytest.raises(ProducerFenced):
        first.begin()
    await first.close()
    kept = ["first"] if is_after_the_commit else []
    if second is not None:
        await commit(second, topic, "second")
        await second.close()
        kept.append("second")
    end = await settled_end(bootstrap, topic)
    assert await read(bootstrap, topic, end, COMMITTED) == kept


async def test_librdkafkas_producer_is_fenced_by_ours(
    bootstrap: str, topic: str, name: str
) -> None:
    theirs = await asyncio.to_thread(librdkafkas, bootstrap, name)
    theirs.begin_transaction()
    theirs.produce(topic, b"theirs")
    assert await asyncio.to_thread(theirs.flush, WAIT_S) == 0
    async with Producer(bootstrap, transactional_id=name) as ours:
        with pytest.raises(confluent_kafka.KafkaException) as failure:
            await asyncio.to_thread(theirs.commit_transaction, WAIT_S)
        assert failure.value.args[0].code() == confluent_kafka.KafkaError._FENCED
        await commit(ours, topic, "ours")
    await await_end(bootstrap, topic, 4)
    assert await read(bootstrap, topic, 4, COMMITTED) == ["ours"]


async def test_the_same_id_after_a_clean_stop_has_the_same_producer_id(
    bootstrap: str, topic: str, name: str
) -> None:
    known = []
    for number in range(3):
        async with Producer(bootstrap, transactional_id=name) as producer:
            await commit(producer, topic, str(number))
            assert producer._manager is not None
            known.append(producer._manager.producer_id)
    assert len({producer_id for producer_id, _ in known}) == 1
    assert [epoch for _, epoch in known] == [0, 1, 2]


async def test_a_transaction_that_takes_too_long_is_aborted(
    bootstrap: str, topic: str, name: str
) -> None:
    """And a new producer of the id goes on."""
    config = ProducerConfig(transactional_id=name, transaction_timeout_ms=TOO_LONG_MS)
    slow = Producer(bootstrap, config)
    await slow.start()
    slow.begin()
    await slow.send(topic, "late")
    await await_end(bootstrap, topic, 2)
    with pytest.raises(ProducerFenced):
        await slow.commit()
    await slow.close()
    async with Producer(bootstrap, transactional_id=name) as heir:
        await commit(heir, topic, "kept")
    await await_end(bootstrap, topic, 4)
    assert await read(bootstrap, topic, 4, COMMITTED) == ["kept"]


async def test_offsets_alone_are_committed_or_dropped(
    bootstrap: str, topic: str, producer: Producer, name: str
) -> None:
    place, group = TopicPartition(topic, 0), f"g-{name}"
    async with Consumer(bootstrap, group=group, config=COMMITTED) as consumer:
        for number, end in enumerate((producer.commit, producer.abort), start=1):
            producer.begin()
            await producer.send_offsets(GroupMetadata(group), {place: 10 * number})
            await end()
            assert (await consumer.committed([place]))[place].offset == 10


async def test_committed_offsets_wait_for_a_transaction_that_is_about_to_change_them(
    bootstrap: str, topic: str, producer: Producer, name: str
) -> None:
    """88 on committed() and on assignment, then success; who does not ask for it sees the old."""
    place, group = TopicPartition(topic, 0), f"g-{name}"
    async with Producer(bootstrap) as plain:
        await plain.send_all(topic, [str(number) for number in range(10)])
    async with (
        Consumer(bootstrap, group=group, config=COMMITTED) as careful,
        Consumer(bootstrap, group=group, config=UNCOMMITTED) as careless,
    ):
        await careless.commit({place: 1})
        producer.begin()
        await producer.send_offsets(GroupMetadata(group), {place: 7})
        waiting = [
            asyncio.ensure_future(careful.committed([place])),
            asyncio.ensure_future(careful.assign([place])),
        ]
        assert (await careless.committed([place]))[place].offset == 1
        assert not any(one.done() for one in waiting)
        await producer.commit()
        await asyncio.gather(*waiting)
        assert waiting[0].result()[place].offset == 7  # type: ignore[index]
        batch = await careful.next_batch(timeout_s=WAIT_S)
        assert batch is not None
        assert batch.values() == [b"7", b"8", b"9"]


async def test_a_member_of_an_old_generation_cannot_store_offsets(
    bootstrap: str, topic: str, producer: Producer, name: str
) -> None:
    """KIP-447: the transaction is aborted, and the producer goes on."""
    place, group = TopicPartition(topic, 0), f"g-{name}"
    async with Producer(bootstrap) as plain:
        await plain.send(topic, "v")
    async with Consumer(bootstrap, topic, group=group, config=COMMITTED) as consumer:
        assert await consumer.next_batch(timeout_s=WAIT_S) is not None
        member, _ = await consumer.offsets_for_transaction()
        for stranger in (
            member._replace(generation=member.generation - 1),
            member._replace(member_id="nobody"),
        ):
            producer.begin()
            with pytest.raises(AbortableTransactionError):
                await producer.send_offsets(stranger, {place: 1})
            await producer.abort()
        async with producer.transaction() as transaction:
            await transaction.send_offsets(consumer)
        assert (await consumer.committed([place]))[place].offset == 1


async def test_the_position_and_what_is_committed_are_behind_the_marker(
    bootstrap: str, topic: str, producer: Producer, name: str
) -> None:
    """A control record at the log's end is never handed out, and not lagged behind for ever."""
    place = TopicPartition(topic, 0)
    for settings in (COMMITTED, UNCOMMITTED):
        group = f"g-{name}-{settings.get('isolation.level')}"
        async with Consumer(bootstrap, topic, group=group, config=settings) as consumer:
            end = await end_of(bootstrap, topic, read_committed=False)
            producer.begin()
            await producer.send(topic, "v")
            is_seen = settings is COMMITTED
            async with asyncio.timeout(WAIT_S):
                while not is_seen:  # before there is a marker
                    batch = await consumer.next_batch(timeout_s=0.1)
                    is_seen = batch is not None and consumer.position(place) == end + 1
                await producer.commit()
                while consumer.position(place) != end + 2:
                    await consumer.next_batch(timeout_s=0.1)
            await consumer.commit()
            stored = (await consumer.committed())[place]
            assert (stored.offset, stored.leader_epoch) == (end + 2, 0)


async def test_a_gap_in_the_sequences_is_mended_by_another_epoch(
    bootstrap: str, topic: str, producer: Producer
) -> None:
    """45, abort, next works: InitProducerId with the own id and epoch (KIP-360)."""
    await commit(producer, topic, "before")
    manager, accumulator = producer._manager, producer._accumulator
    assert manager is not None
    assert accumulator is not None
    producer_id, epoch = manager.producer_id
    accumulator.queues[topic, 0].next_sequence += 7
    producer.begin()
    with pytest.raises(AbortableTransactionError) as failure:
        await producer.send(topic, "behind a gap")
    assert failure.value.name == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    await producer.abort()
    assert manager.producer_id == (producer_id, epoch + 1)
    await commit(producer, topic, "after")
    end = await settled_end(bootstrap, topic)
    assert await read(bootstrap, topic, end, COMMITTED) == ["before", "after"]


async def test_partitions_are_added_one_after_the_other(
    bootstrap: str, topic: str, producer: Producer
) -> None:
    """Three AddPartitionsToTxn in a row; then a topic that metadata no longer has."""
    wide = f"{topic}-wide"
    async with Admin.of(bootstrap) as admin:
        await admin.create_topics([NewTopic(name=wide, partitions=3)])
    for number in range(2):
        async with producer.transaction() as transaction:
            for partition in range(3):
                sent = await transaction.send(wide, f"{number}", partition=partition)
                assert sent.offset == 2 * number
        await asyncio.gather(
            *(await_end(bootstrap, wide, 2 * number + 2, partition) for partition in range(3))
        )
        producer.cluster.topology.counts.pop(wide)
        producer.cluster.forget_leaders(TopicPartition(wide, index) for index in range(3))


async def test_a_topic_deleted_and_made_again_between_two_transactions(
    bootstrap: str, topic: str, producer: Producer
) -> None:
    """The new log takes sequences that go on, since it knows nothing of the producer."""
    await commit(producer, topic, "old")
    async with Admin.of(bootstrap) as admin:
        await admin.delete_topics([topic])

        async with asyncio.timeout(WAIT_S):
            while True:
                try:
                    await admin.create_topics([NewTopic(name=topic, partitions=1)])
                    break
                except KafkaError:  # the old one is not gone yet
                    await asyncio.sleep(0.1)
    await commit(producer, topic, "new")
    await await_end(bootstrap, topic, 2)
    assert await read(bootstrap, topic, 2, COMMITTED) == ["new"]


def test_without_await(bootstrap: str, name: str) -> None:
    source, target = f"in-{name}", f"out-{name}"

    async def make() -> None:
        async with Admin.of(bootstrap) as admin:
            await admin.create_topics(
                [NewTopic(name=source, partitions=1), NewTopic(name=target, partitions=1)]
            )

    asyncio.run(make())
    with SyncProducer(bootstrap) as plain:
        plain.send_all(source, [str(number) for number in range(100)])
    place = TopicPartition(source, 0)
    with (
        SyncConsumer(bootstrap, source, group=f"g-{name}", config=COMMITTED) as consumer,
        SyncProducer(bootstrap, transactional_id=name) as producer,
    ):
        copied: list[bytes] = []
        while len(copied) < 100:
            batch = consumer.next_batch(30, timeout_s=WAIT_S)
            assert batch is not None
            with producer.transaction() as transaction:
                transaction.send_all(target, [record.value for record in batch])
                transaction.send_offsets(consumer)
            copied += [record.value for record in batch]
        assert consumer.committed()[place].offset == 100

        def fail(transaction: Any) -> None:
            transaction.send_soon(target, b"gone")
            raise RuntimeError("mine")

        def failing() -> None:
            with producer.transaction() as transaction:
                fail(transaction)

        with pytest.raises(RuntimeError, match="mine"):
            failing()
        consumer.seek(place, 90)
        assert consumer.next_batch(timeout_s=WAIT_S) is not None
        producer.begin()
        producer.send_offsets(consumer)
        producer.abort()
        consumer.seek_to_committed()
        assert consumer.position(place) == 100
        producer.begin()
        producer.send(target, b"last")
        producer.commit()

    def values() -> Sequence[bytes]:
        with SyncConsumer(bootstrap, target, config=COMMITTED) as reader:
            found: list[bytes] = []
            while (batch := reader.next_batch(timeout_s=2)) is not None:
                found += [record.value for record in batch]
            return found

    assert eventually(lambda: (found := values())[-1:] == [b"last"] and found) == [
        *copied,
        b"last",
    ]
