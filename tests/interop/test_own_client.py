"""Our client against our cluster and against Apache Kafka 3.9: it is a Kafka client."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from barnabas.client import (
    Admin,
    ClientConfig,
    CommitFailed,
    CommittedOffset,
    Consumer,
    ConsumerConfig,
    Fetch,
    NewTopic,
    Producer,
    ProducerConfig,
    RebalanceListener,
    SimpleConsumer,
    SyncConsumer,
    SyncProducer,
    TopicPartition,
)
from barnabas.client.consumer.list_offsets import EARLIEST, LATEST, offsets_for
from barnabas.client.consumer.rebalance_listener import PartitionSet
from barnabas.protocol.errors import ErrorCode
from tests.harness.deployments import KafkaCluster
from tests.harness.steady_settings import STEADY

PARTITIONS = 3
SOON_S = 240.0
FROM_START = ConsumerConfig(
    auto_offset_reset="earliest", heartbeat_interval_ms=200, session_timeout_ms=30_000
)
BY_HAND = ConsumerConfig(
    auto_offset_reset="earliest",
    heartbeat_interval_ms=200,
    session_timeout_ms=30_000,
    auto_commit=False,
)


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaCluster]:
    settings = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.replication.factor": "1"}
    running = KafkaCluster(1, {**STEADY, **settings})
    yield running
    running.stop()


@pytest.fixture(
    params=[
        "barnabas",
        pytest.param("kafka", marks=pytest.mark.kafka),
    ]
)
def bootstrap(request: pytest.FixtureRequest) -> str:
    name = "cluster" if request.param == "barnabas" else "kafka"
    address: str = request.getfixturevalue(name).bootstrap
    return address


@pytest.fixture
async def topic(bootstrap: str) -> AsyncIterator[str]:
    name = f"own-{uuid.uuid4().hex[:12]}"
    async with Admin.of(bootstrap) as admin:
        await admin.create_topics([NewTopic(name=name, partitions=PARTITIONS)])
        # Answered by leaders that know that they are: without acknowledgements none is sent twice.
        places = [TopicPartition(name, number) for number in range(PARTITIONS)]
        await offsets_for(admin.cluster, dict.fromkeys(places, LATEST))
        yield name


async def produced(bootstrap: str, topic: str, count: int, **config: Any) -> list[bytes]:
    values = [b"%06d" % number for number in range(count)]
    async with Producer(bootstrap, ProducerConfig(**config)) as producer:
        keys = [str(number) for number in range(count)]
        await producer.send_all(topic, values, keys=keys)
    return values


async def consumed(consumer: Consumer, count: int) -> list[Any]:
    found: list[Any] = []
    async with asyncio.timeout(SOON_S):
        while len(found) < count:
            batch = await consumer.next_batch(timeout_s=SOON_S)
            assert batch is not None
            found += batch.values()
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_what_was_produced_is_consumed_whatever_the_codec(
    bootstrap: str, topic: str, codec: str
) -> None:
    values = await produced(bootstrap, topic, 2_000, compression=codec)
    async with Consumer(bootstrap, topic, config=FROM_START) as consumer:
        assert sorted(await consumed(consumer, 2_000)) == values


@pytest.mark.parametrize("acks", [0, 1, -1])
async def test_records_arrive_with_any_acknowledgement(
    bootstrap: str, topic: str, acks: int
) -> None:
    values = await produced(bootstrap, topic, 100, required_acks=acks)
    async with Consumer(bootstrap, topic, config=FROM_START) as consumer:
        assert sorted(await consumed(consumer, 100)) == values


async def test_a_record_keeps_its_key_headers_and_time(bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap) as producer:
        sent = await producer.send(
            topic, "value", key="key", headers=[("a", b"1"), ("b", None)], timestamp_ms=1_700_000
        )
    async with Consumer(bootstrap, topic, config=FROM_START) as consumer:
        async for record in consumer:
            assert (record.topic, record.partition, record.offset) == sent[:3]
            assert (record.key, record.value, record.timestamp) == (b"key", b"value", 1_700_000)
            assert record.headers == (("a", b"1"), ("b", None))
            break


async def test_a_batch_is_committed_when_its_block_ends_well(
    bootstrap: str, topic: str, group: str
) -> None:
    await produced(bootstrap, topic, 90)
    async with Consumer(bootstrap, topic, group=group, config=BY_HAND) as consumer:
        done, expected = 0, dict[TopicPartition, CommittedOffset]()
        async for batch in consumer.batches(max_records=10, timeout_s=0.05):
            if done >= 50:
                break
            async with batch:
                expected = batch.offsets
            done += len(batch)  # which is less than ten at the end of what a node sent
        committed = await consumer.committed()
        assert expected.items() <= committed.items()
        assert sum(offset.offset for offset in committed.values()) == done
    async with Consumer(bootstrap, topic, group=group, config=BY_HAND) as consumer:
        assert len(await consumed(consumer, 90 - done)) == 90 - done


async def test_a_batch_whose_block_raises_comes_again(
    bootstrap: str, topic: str, group: str
) -> None:
    await produced(bootstrap, topic, 10)

    async def stumble() -> None:
        async with Consumer(bootstrap, topic, group=group, config=FROM_START) as consumer:
            async for batch in consumer.batches():
                async with batch:
                    raise RuntimeError

    with pytest.raises(RuntimeError):
        await stumble()
    async with Consumer(bootstrap, topic, group=group, config=FROM_START) as consumer:
        assert len(await consumed(consumer, 10)) == 10


async def test_what_was_handed_out_is_committed_at_the_end(
    bootstrap: str, topic: str, group: str
) -> None:
    await produced(bootstrap, topic, 30)
    async with Consumer(bootstrap, topic, group=group, config=FROM_START) as consumer:
        seen = 0
        async for _ in consumer:
            seen += 1
            if seen == 20:
                break
    async with Admin.of(bootstrap) as admin:
        committed = await admin.committed_offsets(group)
    assert sum(offset.offset for offset in committed.values()) == 20
    assert {offset.leader_epoch for offset in committed.values()} == {0}


async def test_two_members_share_the_partitions_and_one_takes_over(
    bootstrap: str, topic: str, group: str
) -> None:
    both: dict[str, list[Any]] = {"first": [], "second": []}

    async def pump(name: str, consumer: Consumer) -> None:
        async for batch in consumer.batches(timeout_s=0.02):
            async with batch:
                both[name] += batch.values()

    async with Consumer(bootstrap, topic, group=group, config=FROM_START) as first:
        pumping = asyncio.create_task(pump("first", first))
        await until(lambda: len(first.assignment) == PARTITIONS)
        async with Consumer(bootstrap, topic, group=group, config=FROM_START) as second:
            helping = asyncio.create_task(pump("second", second))
            await until(lambda: bool(second.assignment) and bool(first.assignment))
            await until(lambda: not first.assignment & second.assignment)
            values = await produced(bootstrap, topic, 600)
            await until(lambda: len(both["first"]) + len(both["second"]) >= 600)
            assert sorted(both["first"] + both["second"]) == values
            assert both["first"]
            assert both["second"]
            helping.cancel()
            await asyncio.wait([helping])
        await until(lambda: len(first.assignment) == PARTITIONS)
        pumping.cancel()
        await asyncio.wait([pumping])


async def test_cooperative_members_keep_what_stays_theirs(
    bootstrap: str, topic: str, group: str
) -> None:
    class Noting(RebalanceListener):
        def __init__(self) -> None:
            self.revoked: list[PartitionSet] = []

        async def on_revoked(self, places: PartitionSet) -> None:
            self.revoked.append(places)

    config = ConsumerConfig(
        assignors=("cooperative-sticky",), heartbeat_interval_ms=200, session_timeout_ms=30_000
    )
    noting = Noting()
    async with Consumer(bootstrap, topic, group=group, config=config, listener=noting) as first:
        await until(lambda: len(first.assignment) == PARTITIONS)
        async with Consumer(bootstrap, topic, group=group, config=config) as second:
            await until(lambda: len(first.assignment) + len(second.assignment) == PARTITIONS)
            await until(lambda: bool(second.assignment))
            assert [len(places) for places in noting.revoked] == [1]


async def test_a_static_member_finds_its_partitions_again(
    bootstrap: str, topic: str, group: str
) -> None:
    config = ConsumerConfig(
        group_instance_id="me", heartbeat_interval_ms=200, session_timeout_ms=60_000
    )
    async with Admin.of(bootstrap) as admin:
        for _ in range(2):
            async with Consumer(bootstrap, topic, group=group, config=config) as consumer:
                await until(lambda: len(consumer.assignment) == PARTITIONS)
            described = await admin.describe_group(group)
            assert [member.instance_id for member in described.members] == ["me"]


async def test_a_commit_of_a_member_the_group_left_behind_says_who_and_when(
    bootstrap: str, topic: str, group: str
) -> None:
    await produced(bootstrap, topic, 10)
    config = ConsumerConfig(
        auto_offset_reset="earliest",
        auto_commit=False,
        heartbeat_interval_ms=100,
        session_timeout_ms=30_000,
        max_poll_interval_ms=1_000,
    )
    async with Consumer(bootstrap, topic, group=group, config=config) as slow:
        batch = await slow.next_batch(timeout_s=SOON_S)
        assert batch is not None
        async with Consumer(bootstrap, topic, group=group, config=FROM_START) as other:
            await until(lambda: len(other.assignment) == PARTITIONS)
            with pytest.raises(CommitFailed, match=r"max\.poll\.interval\.ms=1000") as failure:
                await batch.commit()
    assert not failure.value.retriable
    assert failure.value.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
    assert failure.value.held_s >= 1


async def test_a_pattern_finds_topics_that_are_made_later(
    bootstrap: str, topic: str, group: str
) -> None:
    config = ConsumerConfig(
        auto_offset_reset="earliest",
        heartbeat_interval_ms=200,
        session_timeout_ms=30_000,
        metadata_max_age_ms=300,
    )
    async with Consumer(bootstrap, pattern=f"{topic}.*", group=group, config=config) as consumer:
        await until(lambda: len(consumer.assignment) == PARTITIONS)
        async with Admin.of(bootstrap) as admin:
            await admin.create_topics([NewTopic(name=f"{topic}-later", partitions=1)])
        await until(lambda: TopicPartition(f"{topic}-later", 0) in consumer.assignment)


async def test_positions_seek_and_pause(bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap) as producer:
        for number in range(10):
            await producer.send(topic, str(number), partition=0)
    place = TopicPartition(topic, 0)
    async with Consumer(bootstrap, config=FROM_START) as consumer:
        await consumer.assign({place: 4})
        assert (await consumed(consumer, 6))[0] == b"4"
        assert consumer.position(place) == 10
        consumer.seek(place, 8)
        assert await consumed(consumer, 2) == [b"8", b"9"]
        await consumer.seek_to_beginning()
        consumer.pause(place)
        assert await consumer.next_batch(timeout_s=0.1) is None
        consumer.resume(place)
        batch = await consumer.next_batch(3, timeout_s=SOON_S, gather_s=SOON_S)
        assert batch is not None
        assert batch.values() == [b"0", b"1", b"2"]
        assert consumer.position(place) == 3


async def test_offsets_are_found_by_time(bootstrap: str, topic: str) -> None:
    place = TopicPartition(topic, 1)
    async with Producer(bootstrap) as producer:
        for number in range(5):
            await producer.send(topic, b"v", partition=1, timestamp_ms=1_000 * (number + 1))
    async with Admin.of(bootstrap) as admin:
        for time, offset in ((2_500, 2), (EARLIEST, 0), (LATEST, 5), (9_000, -1)):
            assert await offsets_for(admin.cluster, {place: time}) == {place: offset}


async def test_frames_hold_every_column(bootstrap: str, topic: str) -> None:
    await produced(bootstrap, topic, 20)
    async with Consumer(bootstrap, topic, config=FROM_START) as consumer:
        table = await consumer.to_arrow(20, timeout_s=SOON_S)
        assert table.num_rows == 20
        assert table.column_names[:3] == ["topic", "partition", "offset"]
        await consumer.seek_to_beginning()
        frame = await consumer.to_pandas(20, timeout_s=SOON_S)
        assert sorted(frame["value"]) == sorted(table["value"].to_pylist())


async def test_the_simple_consumer_reads_what_its_broker_leads(
    bootstrap: str, topic: str, group: str
) -> None:
    await produced(bootstrap, topic, 300)
    place = TopicPartition(topic, 0)
    async with Admin.of(bootstrap) as admin:
        leader = (await admin.cluster.leaders([place]))[place]
        node = admin.cluster.topology.nodes[leader]
        async with SimpleConsumer(node.host, node.port) as simple:
            chunk = await simple.fetch(topic, 0, 5, max_bytes=50)
            assert chunk.records()[0].offset == 5
            (same,) = await simple.multifetch([Fetch(topic, 0, 5)])
            end = await simple.earliest_or_latest_offset(topic, 0, -1)
            assert await simple.get_offsets_before(topic, 0, -1, 1) == [end]
            assert not isinstance(same, Exception)
            assert len(same) == end - 5
            offset = {place: CommittedOffset(7, "mine")}
            assert await simple.commit_offsets(group, offset, version=0) == {place: ErrorCode.NONE}
            (found,) = (await simple.fetch_offsets(group, [place], version=0)).values()
            assert isinstance(found, CommittedOffset)
            assert found.offset == 7


async def test_the_facade_works_beside_a_running_loop(
    bootstrap: str, topic: str, group: str
) -> None:
    """As in a notebook, where a loop runs and nothing is awaited."""
    with SyncProducer(bootstrap) as producer:
        producer.send_all(topic, [b"%d" % number for number in range(10)])
        assert producer.send_soon(topic, b"late").result(SOON_S).topic == topic
    with SyncConsumer(bootstrap, topic, group=group, config=FROM_START) as consumer:
        seen = 0
        for batch in consumer.batches():
            with batch:
                seen += len(batch)
            if seen == 11:
                break
        assert sum(offset.offset for offset in consumer.committed().values()) == 11


async def test_a_large_message_passes_small_buffers(bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap) as producer:
        await producer.send(topic, b"x" * 900_000)
    config = {"max.partition.fetch.bytes": 1_000, "auto.offset.reset": "earliest"}
    async with Consumer(bootstrap, topic, config=config) as consumer:
        assert [len(value) for value in await consumed(consumer, 1)] == [900_000]


async def test_another_account_of_the_same_records(bootstrap: str, topic: str) -> None:
    """The client names itself to the broker."""
    config = ClientConfig(client_id="somebody")
    async with Consumer(bootstrap, topic, group=f"{topic}-g", client=config) as consumer:
        await until(lambda: bool(consumer.assignment))
        async with Admin.of(bootstrap) as admin:
            (member,) = (await admin.describe_group(f"{topic}-g")).members
    assert member.client_id == "somebody"


async def until(holds: Any) -> None:
    """Return once the condition holds."""
    async with asyncio.timeout(SOON_S):
        while not holds():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.02)
