"""``producer.type=async``: batches by count and by time, callbacks in their order, a full queue."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from barnabas.client.errors import QueueFull
from barnabas.client.producer.producer import Producer
from barnabas.client.producer.producer_config import ProducerConfig
from barnabas.client.producer.producer_queue import CallbackHandler, Item, Sending
from barnabas.client.topology import TopicPartition
from tests.client.producer.conftest import CLIENT
from tests.client.scripted_cluster import ScriptedCluster

LONG_MS = 3_600_000
TOPIC_PARTITION = TopicPartition("t", 0)


class Noting(CallbackHandler):
    """Notes what it is shown."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any]] = []

    def before_enqueue(self, item: Item) -> Item:
        self.seen.append(("before enqueue", item.value))
        return item

    def after_enqueue(self, item: Item, added: bool) -> None:
        self.seen.append(("after enqueue", added))

    def after_dequeuing_existing_data(self, item: Item | None) -> Sequence[Item]:
        self.seen.append(("dequeued", item and item.value))
        return super().after_dequeuing_existing_data(item)

    def before_sending_data(self, items: Sequence[Item]) -> Sequence[Item]:
        self.seen.append(("sending", len(items)))
        return items

    def last_batch_before_close(self) -> Sequence[Item]:
        self.seen.append(("last batch", None))
        return [Item("t", b"last")]

    def close(self) -> None:
        self.seen.append(("close", None))


class Keeping:
    """An event handler that keeps batches instead of sending them."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.arrived = asyncio.Event()
        self.is_closed = False

    async def handle(self, items: Sequence[Item], sending: Sending) -> None:
        self.batches.append([item.value for item in items])
        self.arrived.set()

    async def close(self) -> None:
        self.is_closed = True


def config(**changes: Any) -> ProducerConfig:
    settings = {"producer_type": "async", "queue_time_ms": LONG_MS, "batch_size": 3, **changes}
    return ProducerConfig(**settings)


async def test_a_full_batch_goes_at_once_and_one_short_waits_for_its_time(
    cluster: ScriptedCluster,
) -> None:
    handler = Keeping()
    async with Producer(cluster.bootstrap, config(), event_handler=handler) as producer:
        for number in range(5):
            producer.send_soon("t", number)
        await handler.arrived.wait()
        assert handler.batches == [[0, 1, 2]]
    assert handler.batches == [[0, 1, 2], [3, 4]]
    assert handler.is_closed


async def test_time_hands_over_what_there_is(cluster: ScriptedCluster) -> None:
    handler = Keeping()
    late = config(batch_size=100, queue_time_ms=20)
    async with Producer(cluster.bootstrap, late, event_handler=handler) as producer:
        producer.send_soon("t", 1)
        await handler.arrived.wait()
        assert handler.batches == [[1]]


async def test_a_full_queue_refuses_and_tells_the_callback(cluster: ScriptedCluster) -> None:
    callbacks = Noting()
    full = config(queue_size=3, enqueue_timeout_ms=0)
    async with Producer(
        cluster.bootstrap, full, event_handler=Keeping(), callback_handler=callbacks
    ) as producer:
        for number in range(3):
            producer.send_soon("t", number)
        with pytest.raises(QueueFull, match=r"queue\.size=3"):
            producer.send_soon("t", 3)
        assert callbacks.seen[-1] == ("after enqueue", False)
        with pytest.raises(QueueFull):
            await producer.send("t", 4)


async def test_a_full_queue_waits_where_it_is_told_to(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with Producer(cluster.bootstrap, config(queue_size=3), client=CLIENT) as producer:
        sent = await producer.send_all("t", [b"%d" % number for number in range(20)])
    assert [record.offset for record in sent] == list(range(20))


async def test_a_flush_waits_for_records_that_wait_for_the_queue(cluster: ScriptedCluster) -> None:
    (topic_partition,) = cluster.topic("t")
    values = [b"%d" % number for number in range(20)]
    async with Producer(cluster.bootstrap, config(queue_size=3), client=CLIENT) as producer:
        sending = [asyncio.create_task(producer.send("t", value)) for value in values]
        await producer.flush()
        assert cluster.logs[topic_partition].values() == values
        await asyncio.gather(*sending)


async def test_closing_waits_for_records_that_wait_for_the_queue(cluster: ScriptedCluster) -> None:
    (topic_partition,) = cluster.topic("t")
    values = [b"%d" % number for number in range(20)]
    async with Producer(cluster.bootstrap, config(queue_size=3), client=CLIENT) as producer:
        sending = [asyncio.create_task(producer.send("t", value)) for value in values]
        await asyncio.sleep(0)
    await asyncio.gather(*sending)
    assert cluster.logs[topic_partition].values() == values


async def test_a_callback_that_raises_fails_its_records_and_the_queue_goes_on(
    cluster: ScriptedCluster,
) -> None:
    """What it was shown, and what came later, waited for ever."""
    (topic_partition,) = cluster.topic("t")

    class Raising(CallbackHandler):
        def after_dequeuing_existing_data(self, item: Item | None) -> Sequence[Item]:
            if item is not None and item.value == b"bad":
                raise ValueError("a mistake of the application")
            return super().after_dequeuing_existing_data(item)

    async with Producer(
        cluster.bootstrap, config(), client=CLIENT, callback_handler=Raising()
    ) as producer:
        sending = [asyncio.create_task(producer.send("t", v)) for v in (b"a", b"bad", b"b")]
        for task in sending:
            with pytest.raises(ValueError, match="a mistake"):
                await task
        sending = [asyncio.create_task(producer.send("t", b"late")) for _ in range(3)]
        await asyncio.gather(*sending)
    assert cluster.logs[topic_partition].values() == [b"late"] * 3


async def test_callbacks_are_shown_every_step_and_closed_last(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    callbacks = Noting()
    async with Producer(
        cluster.bootstrap, config(batch_size=2), client=CLIENT, callback_handler=callbacks
    ) as producer:
        await asyncio.gather(producer.send("t", b"a"), producer.send("t", b"b"))
    assert callbacks.seen == [
        ("before enqueue", b"a"),
        ("after enqueue", True),
        ("before enqueue", b"b"),
        ("after enqueue", True),
        ("dequeued", b"a"),
        ("dequeued", b"b"),
        ("sending", 2),
        ("last batch", None),
        ("sending", 1),
        ("close", None),
    ]
    assert cluster.logs[TOPIC_PARTITION].values() == [b"a", b"b", b"last"]


async def test_close_delivers_everything_queued(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with Producer(cluster.bootstrap, config(batch_size=1_000), client=CLIENT) as producer:
        for number in range(100):
            producer.send_soon("t", b"%d" % number)
    assert cluster.logs[TOPIC_PARTITION].values() == [b"%d" % number for number in range(100)]


async def test_what_cannot_be_encoded_is_dropped_and_the_others_go(
    cluster: ScriptedCluster,
) -> None:
    cluster.topic("t")
    async with Producer(cluster.bootstrap, config(), client=CLIENT) as producer:
        bad = producer.send_soon("t", 7)
        good = producer.send_soon("t", b"good")
        await producer.flush()
        with pytest.raises(TypeError):
            await bad
        assert (await good).offset == 0


async def test_a_record_the_handler_does_not_send_fails(cluster: ScriptedCluster) -> None:
    async with Producer(cluster.bootstrap, config(), event_handler=Keeping()) as producer:
        kept = producer.send_soon("t", b"v")
        await producer.flush()
        with pytest.raises(QueueFull, match="did not send"):
            await kept


async def test_a_callback_may_send_something_else(cluster: ScriptedCluster) -> None:
    cluster.topic("t")

    class Doubling(CallbackHandler):
        def after_dequeuing_existing_data(self, item: Item | None) -> Sequence[Item]:
            return () if item is None else (item, item._replace(delivery=None))

    async with Producer(
        cluster.bootstrap, config(), client=CLIENT, callback_handler=Doubling()
    ) as producer:
        producer.send_soon("t", b"v")
    assert cluster.logs[TOPIC_PARTITION].values() == [b"v", b"v"]
