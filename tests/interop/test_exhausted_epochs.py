"""Producers at their last epochs, on a real node with clients that others wrote and with ours.

Source: docs/spec/transactions.md §2.4: 32766 is the last epoch that is given, 32767 is kept for a
fence, then the id goes on under another producer id. T2.3 and T3.8 beside the coordinator's own
tests (tests/coordinator/transactions/test_exhausted_epochs.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol

import confluent_kafka
import kafka
import pytest
from kafka.errors import KafkaError as KafkaPythonError

from barnabas.client import (
    AbortableTransactionError,
    Admin,
    NewTopic,
    Producer,
    ProducerConfig,
    ProducerFenced,
    TopicPartition,
)
from barnabas.client.admin.transaction_descriptions import TransactionDescription
from barnabas.client.consumer.list_offsets import LATEST, offsets_for
from tests.harness.aged_producers import age
from tests.harness.committed_readers import confluent
from tests.harness.deployments import OwnCluster
from tests.harness.raw_transactions import RawTransactionalProducer
from tests.harness.steady_settings import STEADY
from tests.harness.transactional_clusters import SETTINGS

WAIT_S: Final = 120.0
TIMEOUT_MS: Final = 10_000
"""Of what is to time out, once its record is written: not while a busy machine writes it."""
LAST, FENCE = 32_766, 32_767


class Writer(Protocol):
    """One producer of an id, of whichever library; begun when it is made."""

    def write(self, topic: str, value: str) -> None:
        """One transaction of one record; raises when another producer has the id."""

    def close(self) -> None: ...


class Librdkafka:
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._producer: Any = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": transactional_id}
        )
        self._producer.init_transactions(WAIT_S)

    def write(self, topic: str, value: str) -> None:
        self._producer.begin_transaction()
        self._producer.produce(topic, value, partition=0)
        self._producer.commit_transaction(WAIT_S)

    def close(self) -> None:
        self._producer.purge()


class KafkaPython:
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._producer: Any = kafka.KafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=transactional_id
        )
        self._producer.init_transactions()

    def write(self, topic: str, value: str) -> None:
        self._producer.begin_transaction()
        self._producer.send(topic, value.encode(), partition=0)
        self._producer.commit_transaction()

    def close(self) -> None:
        self._producer.close(1)


OTHERS: Final = (Librdkafka, KafkaPython)
OURS: Final = ("timed-out", "replaced", "gap")
IDS: Final = (*(one.__name__ for one in OTHERS), *OURS)


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A node that was stopped and found each id with one epoch left, when it came back."""
    cluster = OwnCluster(1, {**STEADY, **SETTINGS})
    try:
        for name in IDS:
            RawTransactionalProducer(cluster.bootstrap, name).start()
        asyncio.run(create(cluster.bootstrap, IDS))
        cluster.stop_nodes()
        for name in IDS:
            age(cluster.nodes[0].directory / "data", name, LAST - 1)
        cluster.start_all()
        yield cluster.bootstrap
    finally:
        cluster.stop()


async def create(bootstrap: str, topics: Sequence[str]) -> None:
    async with Admin.of(bootstrap) as admin:
        await admin.create_topics(NewTopic(name=name, partitions=1) for name in topics)


async def described(bootstrap: str, name: str) -> TransactionDescription:
    async with Admin.of(bootstrap) as admin:
        return await admin.describe_transaction(name)


async def aborted(bootstrap: str, name: str) -> TransactionDescription:
    """The id, once its transaction was aborted."""
    async with asyncio.timeout(WAIT_S):
        while True:
            found = await described(bootstrap, name)
            if found.state == "CompleteAbort":
                return found
            await asyncio.sleep(0.02)


async def settled(bootstrap: str, topic: str) -> int:
    """The end of a topic in which every transaction has its marker."""
    place = TopicPartition(topic, 0)
    async with Admin.of(bootstrap) as admin, asyncio.timeout(WAIT_S):
        while True:
            ends = [
                await offsets_for(admin.cluster, {place: LATEST}, read_committed=level)
                for level in (False, True)
            ]
            if ends[0] == ends[1]:
                return ends[0][place]
            await asyncio.sleep(0.02)


def committed(bootstrap: str, topic: str) -> list[str]:
    """What librdkafka reads of committed records."""
    end = asyncio.run(settled(bootstrap, topic))
    rows = confluent(bootstrap, topic, 0, "read_committed", end)
    return [value.decode() for _offset, value in rows]


async def commit(producer: Producer, topic: str, value: str) -> None:
    async with producer.transaction() as transaction:
        await transaction.send(topic, value)


@pytest.mark.parametrize("library", OTHERS)
def test_an_id_goes_on_under_another_producer_id_and_fences_its_last_epoch(
    bootstrap: str, library: type[Librdkafka | KafkaPython]
) -> None:
    name = library.__name__
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(contextlib.closing(library(bootstrap, name)))
        first.write(name, "at the last epoch")
        before = asyncio.run(described(bootstrap, name))
        second = stack.enter_context(contextlib.closing(library(bootstrap, name)))
        second.write(name, "under another id")
        after = asyncio.run(described(bootstrap, name))
        with pytest.raises((confluent_kafka.KafkaException, KafkaPythonError)):
            first.write(name, "of a zombie")
    assert before.producer_epoch == LAST
    assert after.producer_epoch == 0
    assert after.producer_id != before.producer_id
    assert committed(bootstrap, name) == ["at the last epoch", "under another id"]


async def left_open(bootstrap: str, name: str, timeout_ms: int) -> Producer:
    """A producer at the last epoch, one record into its transaction."""
    config = ProducerConfig(transactional_id=name, transaction_timeout_ms=timeout_ms)
    producer = Producer(bootstrap, config)
    await producer.start()
    assert (await described(bootstrap, name)).producer_epoch == LAST
    producer.begin()
    await producer.send(name, "left open")
    return producer


async def test_what_is_left_open_at_the_last_epoch_times_out_under_the_one_kept_for_fences(
    bootstrap: str,
) -> None:
    name = "timed-out"
    slow = await left_open(bootstrap, name, TIMEOUT_MS)
    assert (await aborted(bootstrap, name)).producer_epoch == FENCE
    with pytest.raises(ProducerFenced):
        await slow.commit()
    await slow.close()
    async with Producer(bootstrap, transactional_id=name) as heir:
        await commit(heir, name, "of the heir")
    assert (await described(bootstrap, name)).producer_epoch == 0
    assert await asyncio.to_thread(committed, bootstrap, name) == ["of the heir"]


async def test_a_second_producer_ends_what_the_first_left_open_at_the_last_epoch(
    bootstrap: str,
) -> None:
    name = "replaced"
    first = await left_open(bootstrap, name, 600_000)
    async with Producer(bootstrap, transactional_id=name) as second:
        await commit(second, name, "of the second")
        with pytest.raises(AbortableTransactionError, match="INVALID_PRODUCER_ID_MAPPING"):
            await first.commit()
        with pytest.raises(ProducerFenced):
            await first.abort()  # its next epoch is refused: the id is another producer's
    await first.close()
    assert await asyncio.to_thread(committed, bootstrap, name) == ["of the second"]


async def test_an_epoch_that_a_producer_asks_for_behind_the_last_one_is_another_producer_id(
    bootstrap: str,
) -> None:
    """KIP-360: it names itself at 32766, and goes on with sequences from 0."""
    name = "gap"
    async with Producer(bootstrap, transactional_id=name) as producer:
        await commit(producer, name, "before")
        manager, accumulator = producer._manager, producer._accumulator
        assert manager is not None
        assert accumulator is not None
        producer_id, epoch = manager.producer_id
        assert epoch == LAST
        accumulator.queues[name, 0].next_sequence += 7
        producer.begin()
        with pytest.raises(AbortableTransactionError):
            await producer.send(name, "behind a gap")
        await producer.abort()
        assert manager.producer_id[0] != producer_id
        assert manager.producer_id[1] == 0
        await commit(producer, name, "after")
    assert await asyncio.to_thread(committed, bootstrap, name) == ["before", "after"]
