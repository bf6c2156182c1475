"""The producer against scripted brokers: what it sends, and what it tells."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from barnabas.client.cluster import Unreachable
from barnabas.client.errors import Disconnected, KafkaError, QueueFull
from barnabas.client.producer.producer import Producer
from barnabas.client.producer.producer_config import ProducerConfig
from barnabas.console.development.ports import free_ports
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records import batch
from barnabas.protocol.settings import ConfigError
from tests.client.producer.conftest import CLIENT, QUICK
from tests.client.scripted_cluster import ScriptedCluster


async def test_send_returns_the_metadata_of_the_record(
    cluster: ScriptedCluster, producer: Producer
) -> None:
    (topic_partition,) = cluster.topic("t")
    cluster.logs[topic_partition].add(b"before")
    sent = await producer.send("t", b"v", key=b"k", headers=[("h", b"1")], timestamp_ms=1_234)
    assert sent == ("t", 0, 1, 1_234)
    record = cluster.logs[topic_partition].records()[1]
    assert record == (1, 1_234, b"k", b"v", (("h", b"1"),))


async def test_records_sent_in_one_turn_travel_together(
    cluster: ScriptedCluster, producer: Producer
) -> None:
    (topic_partition,) = cluster.topic("t")
    await producer.partitions_for("t")
    deliveries = [producer.send_soon("t", b"%d" % number) for number in range(500)]
    await producer.flush()
    assert [(await delivery).offset for delivery in deliveries] == list(range(500))
    assert len(cluster.logs[topic_partition].batches) == 1


async def test_records_sent_before_the_topic_is_known_keep_their_order(
    cluster: ScriptedCluster, producer: Producer
) -> None:
    (topic_partition,) = cluster.topic("t")
    deliveries = [producer.send_soon("t", b"%d" % number) for number in range(5)]
    assert [(await delivery).offset for delivery in deliveries] == list(range(5))
    assert cluster.logs[topic_partition].values() == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_topic_nobody_makes_is_reported(
    cluster: ScriptedCluster, producer: Producer
) -> None:
    with pytest.raises(KafkaError) as failure:
        await producer.send("nowhere", b"v")
    assert failure.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(KafkaError):
        await producer.send_soon("nowhere", b"v")


async def test_without_acknowledgements_no_offset_is_reported(cluster: ScriptedCluster) -> None:
    (topic_partition,) = cluster.topic("t")
    async with Producer(
        cluster.bootstrap, {"request.required.acks": 0, "retry.backoff.ms": 2}, client=CLIENT
    ) as producer:
        assert (await producer.send("t", b"v")).offset == -1
        await cluster.grown.wait()
    assert cluster.logs[topic_partition].values() == [b"v"]


async def test_a_full_buffer_refuses_or_waits(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    config = ProducerConfig(buffer_bytes=2_000)
    async with Producer(cluster.bootstrap, config, client=CLIENT) as producer:
        await producer.partitions_for("t")
        while producer.has_room:
            producer.send_soon("t", b"x" * 100)
        with pytest.raises(QueueFull, match=r"buffer\.memory=2000"):
            producer.send_soon("t", b"x" * 100)
        sent = await producer.send_all("t", [b"x" * 100] * 100)
        assert len({record.offset for record in sent}) == 100


async def test_a_record_beyond_the_largest_request_is_refused_before_it_is_sent(
    cluster: ScriptedCluster, producer: Producer
) -> None:
    cluster.topic("t")
    with pytest.raises(KafkaError, match=r"max\.request\.size") as failure:
        await producer.send("t", b"x" * 2_000_000)
    assert failure.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_batches_are_compressed_for_the_topics_named(
    cluster: ScriptedCluster, codec: str
) -> None:
    squeezed, plain = cluster.topic("squeezed")[0], cluster.topic("plain")[0]
    config = {"compression.codec": codec, "compressed.topics": "squeezed"}
    async with Producer(cluster.bootstrap, config, client=CLIENT) as producer:
        await producer.send("squeezed", b"x" * 1_000)
        await producer.send("plain", b"x" * 1_000)
    assert cluster.logs[squeezed].values() == cluster.logs[plain].values() == [b"x" * 1_000]
    assert batch.codec(cluster.logs[plain].batches[0]) == 0
    assert batch.codec(cluster.logs[squeezed].batches[0]) != 0


async def test_a_partitioner_outside_of_the_topic_raises(cluster: ScriptedCluster) -> None:
    cluster.topic("t", 3)

    class Beyond:
        def partition(self, key: Any, partitions: int) -> int:
            return partitions

    async with Producer(cluster.bootstrap, QUICK, client=CLIENT, partitioner=Beyond()) as producer:
        with pytest.raises(ValueError, match="partition 3 of t, which has 3"):
            await producer.send("t", b"v", key=b"k")


async def test_keys_stay_and_records_without_one_spread(
    cluster: ScriptedCluster, producer: Producer
) -> None:
    topic_partitions = cluster.topic("t", 4)
    assert len({(await producer.send("t", b"v", key="same")).partition for _ in range(8)}) == 1
    await producer.send_all("t", [b"first"])
    for _ in range(60):
        await producer.send("t", b"v")
    assert all(cluster.logs[topic_partition].values() for topic_partition in topic_partitions)


async def test_an_encoder_makes_the_bytes_and_its_error_is_the_callers(
    cluster: ScriptedCluster,
) -> None:
    (topic_partition,) = cluster.topic("t")

    class Upper:
        def to_message(self, value: str) -> bytes:
            return value.upper().encode()

    async with Producer(cluster.bootstrap, QUICK, client=CLIENT, encoder=Upper()) as producer:
        await producer.send("t", "loud")
        with pytest.raises(AttributeError):
            await producer.send("t", 3)
    assert cluster.logs[topic_partition].values() == [b"LOUD"]


async def test_values_that_are_no_bytes_ask_for_an_encoder(
    cluster: ScriptedCluster, producer: Producer
) -> None:
    cluster.topic("t")
    with pytest.raises(TypeError, match="give the producer an encoder"):
        await producer.send("t", {"a": 1})


async def test_close_sends_what_is_left_and_ends_the_producer(cluster: ScriptedCluster) -> None:
    (topic_partition,) = cluster.topic("t")
    producer = Producer(cluster.bootstrap, ProducerConfig(linger_ms=60_000), client=CLIENT)
    await producer.start()
    for number in range(10):
        producer.send_soon("t", b"%d" % number)
    await producer.close()
    await producer.close()
    assert len(cluster.logs[topic_partition].values()) == 10
    with pytest.raises(Disconnected):
        await producer.send("t", b"late")


async def test_a_wrong_address_is_reported_at_once() -> None:
    (port,) = free_ports(1)
    async with Producer(f"127.0.0.1:{port}") as producer:
        with pytest.raises(Unreachable):
            await producer.send("t", b"v")


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"producer.type": "both"}, "must be one of sync, async"),
        ({"batch.size": 300, "queue.size": 200}, "must not exceed"),
        ({"acks": 2}, "must be -1, 0 or 1"),
        ({"acks": 1, "enable.idempotence": True}, "needs request.required.acks=-1"),
        ({"queue.tyme": 1}, "did you mean queue.time"),
        ({"compression.codec": "zip"}, "must be one of"),
    ],
)
def test_settings_that_make_no_sense_are_refused(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        ProducerConfig.of(values)


def test_both_generations_of_names_mean_the_same() -> None:
    old = {"queue.time": 7, "queue.size": 9, "batch.size": 3, "num.retries": 1, "acks": "all"}
    new = {
        "queue.buffering.max.ms": 7,
        "queue.buffering.max.messages": 9,
        "batch.num.messages": 3,
        "message.send.max.retries": 1,
        "request.required.acks": -1,
    }
    assert ProducerConfig.of(old) == ProducerConfig.of(new)
    assert ProducerConfig.of({"compression.codec": 2}).compression == "snappy"


async def test_many_who_send_at_once_are_served_in_their_order(
    cluster: ScriptedCluster, producer: Producer
) -> None:
    (topic_partition,) = cluster.topic("t")
    expected = [b"%d" % number for number in range(50)]
    await asyncio.gather(*(producer.send("t", value) for value in expected))
    assert cluster.logs[topic_partition].values() == expected
