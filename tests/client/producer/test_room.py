"""A full buffer, and topics that are not known yet: what was given to the producer is sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Future, wait
from typing import Any

import pytest

from barnabas.client.blocking import SyncProducer
from barnabas.client.errors import Disconnected, QueueFull
from barnabas.client.producer.producer import Producer
from barnabas.client.producer.producer_config import ProducerConfig
from barnabas.protocol.api import ApiKey
from barnabas.protocol.messages import metadata
from tests.client.producer.conftest import CLIENT, QUICK
from tests.client.scripted_cluster import ScriptedCluster

SMALL = ProducerConfig(retry_backoff_ms=2, buffer_bytes=2_000)
VALUES = [b"%03d" % number + b"x" * 100 for number in range(200)]
"""Ten times what the buffer holds."""


@pytest.fixture
async def small(cluster: ScriptedCluster) -> AsyncIterator[Producer]:
    async with Producer(cluster.bootstrap, SMALL, client=CLIENT) as producer:
        yield producer


def holding_back_metadata(cluster: ScriptedCluster) -> tuple[asyncio.Event, asyncio.Event]:
    """Set when partitions of a topic are asked for, and to be set for the answer."""
    is_asked, may_answer = asyncio.Event(), asyncio.Event()

    async def answer(request: Any, version: int) -> metadata.MetadataResponse:
        if request.topics:
            is_asked.set()
            await may_answer.wait()
        return cluster.answer_metadata(request, version)

    for broker in cluster.brokers.values():
        broker.answers = {**broker.answers, ApiKey.METADATA: answer}
    return is_asked, may_answer


@pytest.mark.parametrize("is_known", [True, False], ids=["known-topic", "new-topic"])
async def test_a_flush_waits_for_records_that_wait_for_room(
    cluster: ScriptedCluster, small: Producer, is_known: bool
) -> None:
    """It returned when what the buffer held was acknowledged, and closing failed the others."""
    (topic_partition,) = cluster.topic("t")
    if is_known:
        await small.partitions_for("t")
    sending = [asyncio.create_task(small.send("t", value)) for value in VALUES]
    await small.flush()
    assert cluster.logs[topic_partition].values() == VALUES
    await asyncio.gather(*sending)


async def test_leaving_the_block_sends_all_that_was_sent_soon_without_await(
    cluster: ScriptedCluster,
) -> None:
    (topic_partition,) = cluster.topic("t")
    futures: list[Future[Any]] = []

    def produce() -> None:
        with SyncProducer(cluster.bootstrap, SMALL, client=CLIENT) as producer:
            futures.extend(producer.send_soon("t", value) for value in VALUES)

    await asyncio.to_thread(produce)
    assert not wait(futures, timeout=0).not_done
    assert [future.result().offset for future in futures] == list(range(len(VALUES)))
    assert cluster.logs[topic_partition].values() == VALUES


async def test_records_that_come_later_do_not_overtake_those_that_wait_for_room(
    cluster: ScriptedCluster, small: Producer
) -> None:
    (topic_partition,) = cluster.topic("t")
    await small.partitions_for("t")
    sending = []
    for value in VALUES:
        sending.append(asyncio.create_task(small.send("t", value)))
        await asyncio.sleep(0)
    await asyncio.gather(*sending)
    assert cluster.logs[topic_partition].values() == VALUES


async def test_who_gives_up_waiting_for_room_lets_the_next_one_send(
    cluster: ScriptedCluster, small: Producer
) -> None:
    (topic_partition,) = cluster.topic("t")
    await small.partitions_for("t")
    sending = [asyncio.create_task(small.send("t", value)) for value in VALUES]
    await asyncio.sleep(0)
    given_up = [sending[-1], sending[50], sending[60]]
    for task in given_up:
        task.cancel()
    await asyncio.wait(given_up)
    await small.flush()
    left = [value for value, task in zip(VALUES, sending, strict=True) if task not in given_up]
    assert cluster.logs[topic_partition].values() == left


async def test_records_of_a_new_topic_wait_for_room_once_its_partitions_are_known(
    cluster: ScriptedCluster, small: Producer
) -> None:
    """They were accepted, and refused then with QueueFull: nobody was told."""
    (topic_partition,) = cluster.topic("t")
    deliveries = [small.send_soon("t", value) for value in VALUES]
    await small.flush()
    assert [(await delivery).offset for delivery in deliveries] == list(range(len(VALUES)))
    assert cluster.logs[topic_partition].values() == VALUES


async def test_there_is_no_room_while_as_much_is_held_for_a_new_topic_as_may_be(
    cluster: ScriptedCluster,
) -> None:
    """`room()` returned at once, without a turn of the loop: who tried again hung for ever."""
    (topic_partition,) = cluster.topic("t")
    config = ProducerConfig(retry_backoff_ms=2, queue_size=10, batch_size=10)
    async with Producer(cluster.bootstrap, config, client=CLIENT) as producer:
        for value in VALUES:
            while True:
                try:
                    producer.send_soon("t", value)
                except QueueFull:
                    assert not producer.has_room
                    await producer.room()
                else:
                    break
    assert cluster.logs[topic_partition].values() == VALUES


async def test_a_flush_that_is_given_up_does_no_harm(cluster: ScriptedCluster) -> None:
    """It ended what looked for the topic's partitions: the topic could not be written any more."""
    (topic_partition,) = cluster.topic("t")
    is_asked, may_answer = holding_back_metadata(cluster)
    async with Producer(cluster.bootstrap, QUICK, client=CLIENT) as producer:
        delivery = producer.send_soon("t", b"1")
        flushing = asyncio.create_task(producer.flush())
        await is_asked.wait()
        flushing.cancel()
        await asyncio.wait([flushing])
        may_answer.set()
        await producer.flush()
        assert delivery.is_done
        await producer.send("t", b"2")
    assert cluster.logs[topic_partition].values() == [b"1", b"2"]


@pytest.mark.parametrize("has_asked", [True, False], ids=["partitions-asked-for", "at-once"])
async def test_what_is_held_for_a_new_topic_is_told_when_the_producer_ends_at_once(
    cluster: ScriptedCluster, has_asked: bool
) -> None:
    cluster.topic("t")
    is_asked, may_answer = holding_back_metadata(cluster)
    producer = Producer(cluster.bootstrap, QUICK, client=CLIENT)
    await producer.start()
    delivery = producer.send_soon("t", b"1")
    if has_asked:
        await is_asked.wait()
    cancelled = asyncio.CancelledError()
    await producer.__aexit__(type(cancelled), cancelled, None)
    may_answer.set()
    with pytest.raises(Disconnected, match="the producer was closed"):
        await delivery


async def test_an_encoder_that_raises_costs_its_own_record_alone(cluster: ScriptedCluster) -> None:
    (topic_partition,) = cluster.topic("t")

    def encode(value: int) -> bytes:
        return b"%d" % (10 // value)

    async with Producer(cluster.bootstrap, QUICK, client=CLIENT, encoder=encode) as producer:
        deliveries = [producer.send_soon("t", value) for value in (1, 0, 2)]
        await producer.flush()
        with pytest.raises(ZeroDivisionError):
            await deliveries[1]
    assert cluster.logs[topic_partition].values() == [b"10", b"5"]
