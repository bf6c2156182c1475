"""The fetcher reads on through moved leaders, lost offsets, large messages and bad bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.client_config import ClientConfig
from barnabas.client.cluster import Cluster, TopicPartition
from barnabas.client.consumer.fetch_config import FetchConfig
from barnabas.client.consumer.fetcher import Fetcher
from barnabas.client.errors import DecodingFailed, KafkaError, OffsetOutOfRange
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import fetch, metadata
from barnabas.protocol.messages.fetch import AbortedTransaction
from barnabas.protocol.records.batch import build_batch
from barnabas.protocol.records.control import Marker, encode_marker
from tests.client.scripted_cluster import ScriptedCluster, scripted_cluster

CLIENT = ClientConfig(retry_backoff_ms=1, retry_backoff_ms_max=5, api_timeout_ms=60_000)
QUICK = FetchConfig(max_wait_ms=50, refresh_leader_backoff_ms=5, reset="earliest")
SOON_S = 90.0


@pytest.fixture
async def brokers() -> AsyncIterator[ScriptedCluster]:
    async with scripted_cluster(2) as brokers:
        yield brokers


@pytest.fixture
async def cluster(brokers: ScriptedCluster) -> AsyncIterator[Cluster]:
    async with Cluster(brokers.bootstrap, CLIENT) as cluster:
        yield cluster


async def values(fetcher: Fetcher, count: int) -> list[bytes | None]:
    """The next ``count`` values, of whatever partitions."""
    found: list[bytes | None] = []
    while len(found) < count:
        chunk = await fetcher.take(timeout_s=SOON_S)
        assert chunk is not None, f"only {found} came"
        found += [record.value for record in chunk.records()]
    return found


async def test_records_come_in_order_from_where_one_asks(
    brokers: ScriptedCluster, cluster: Cluster
) -> None:
    (topic_partition,) = brokers.topic("t")
    brokers.logs[topic_partition].add(b"0", b"1", b"2")
    brokers.logs[topic_partition].add(b"3")
    async with Fetcher(cluster, QUICK) as fetcher:
        fetcher.add({topic_partition: 1})
        chunk = await fetcher.take(timeout_s=SOON_S)
        assert chunk is not None
        assert [(record.offset, record.value) for record in chunk] == [
            (1, b"1"),
            (2, b"2"),
            (3, b"3"),
        ]
        assert (chunk.next_offset, fetcher.position(topic_partition)) == (4, 4)


async def test_partitions_of_two_leaders_are_read_at_once(
    brokers: ScriptedCluster, cluster: Cluster
) -> None:
    topic_partitions = brokers.topic("t", 4)
    for topic_partition in topic_partitions:
        brokers.logs[topic_partition].add(b"%d" % topic_partition.partition)
    async with Fetcher(cluster, QUICK) as fetcher:
        fetcher.add(dict.fromkeys(topic_partitions, 0))
        assert sorted(await values(fetcher, 4)) == [b"0", b"1", b"2", b"3"]  # type: ignore[type-var]
    first = brokers.brokers[1].seen
    (request,) = [batch for header, batch in first if header.key == ApiKey.FETCH][:1]
    assert [partition.partition for partition in request.topics[0].partitions] == [0, 2]


async def test_a_moved_leader_is_found_again(brokers: ScriptedCluster, cluster: Cluster) -> None:
    (topic_partition,) = brokers.topic("t")
    brokers.logs[topic_partition].add(b"before")
    async with Fetcher(cluster, QUICK) as fetcher:
        fetcher.add({topic_partition: 0})
        assert await values(fetcher, 1) == [b"before"]
        brokers.move(topic_partition, 2)
        brokers.logs[topic_partition].add(b"after")
        brokers.grown.set()
        assert await values(fetcher, 1) == [b"after"]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.CORRUPT_MESSAGE,
    ],
)
async def test_a_partition_that_refuses_for_now_is_asked_again(
    brokers: ScriptedCluster, cluster: Cluster, code: ErrorCode
) -> None:
    (topic_partition,) = brokers.topic("t")
    brokers.logs[topic_partition].add(b"v")
    brokers.logs[topic_partition].codes = [code, code]
    async with Fetcher(cluster, QUICK) as fetcher:
        fetcher.add({topic_partition: 0})
        assert await values(fetcher, 1) == [b"v"]


async def test_a_partition_that_refuses_for_good_is_reported_once_and_hinders_no_other(
    brokers: ScriptedCluster, cluster: Cluster
) -> None:
    closed, opened = brokers.topic("t", 2)
    brokers.logs[closed].codes = [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 99
    brokers.logs[opened].add(b"v")
    async with Fetcher(cluster, QUICK) as fetcher:
        fetcher.add({closed: 0})
        with pytest.raises(KafkaError) as failure:
            await fetcher.take(timeout_s=SOON_S)
        assert failure.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        fetcher.add({opened: 0})
        assert await values(fetcher, 1) == [b"v"]


@pytest.mark.parametrize(("reset", "expected"), [("earliest", b"old"), ("latest", b"new")])
async def test_an_offset_off_the_log_is_replaced_by_the_policy(
    brokers: ScriptedCluster, cluster: Cluster, reset: str, expected: bytes
) -> None:
    (topic_partition,) = brokers.topic("t")
    brokers.logs[topic_partition].add(b"old")
    async with Fetcher(cluster, FetchConfig(max_wait_ms=50, reset=reset)) as fetcher:
        fetcher.add({topic_partition: 77})
        while fetcher.position(topic_partition) == 77:
            await fetcher.take([], timeout_s=0.01)
        brokers.logs[topic_partition].add(b"new")
        brokers.grown.set()
        assert (await values(fetcher, 1))[0] == expected


@pytest.mark.parametrize("offset", [77, None])
async def test_without_a_policy_an_offset_off_the_log_is_the_callers_to_act_on(
    brokers: ScriptedCluster, cluster: Cluster, offset: int | None
) -> None:
    (topic_partition,) = brokers.topic("t")
    brokers.logs[topic_partition].add(b"v")
    async with Fetcher(cluster, FetchConfig(max_wait_ms=50, reset="none")) as fetcher:
        fetcher.add({topic_partition: offset})
        with pytest.raises(OffsetOutOfRange) as failure:
            await fetcher.take(timeout_s=SOON_S)
        assert failure.value.offset == offset
        fetcher.seek(topic_partition, 0)
        assert await values(fetcher, 1) == [b"v"]


async def test_the_read_buffer_grows_for_a_larger_message(
    brokers: ScriptedCluster, cluster: Cluster
) -> None:
    (topic_partition,) = brokers.topic("t")
    brokers.logs[topic_partition].add(b"x" * 10_000)
    small = FetchConfig(max_wait_ms=50, partition_max_bytes=100)
    async with Fetcher(cluster, small) as fetcher:
        fetcher.add({topic_partition: 0})
        assert await values(fetcher, 1) == [b"x" * 10_000]


async def test_a_message_beyond_every_buffer_stops_the_partition(
    brokers: ScriptedCluster, cluster: Cluster
) -> None:
    (topic_partition,) = brokers.topic("t")
    brokers.logs[topic_partition].add(b"x" * 10_000)
    small = FetchConfig(max_wait_ms=50, partition_max_bytes=100, partition_max_bytes_limit=1_000)
    async with Fetcher(cluster, small) as fetcher:
        fetcher.add({topic_partition: 0})
        with pytest.raises(KafkaError, match=r"fetch\.growth\.max\.bytes=1000") as failure:
            await fetcher.take(timeout_s=SOON_S)
        assert failure.value.code is ErrorCode.MESSAGE_TOO_LARGE


async def test_where_compaction_left_nothing_the_next_record_is_waited_for(
    brokers: ScriptedCluster, cluster: Cluster
) -> None:
    (place,) = brokers.topic("t")
    log = brokers.logs[place]
    log.end = 5  # and no batch below it
    serve, asked = brokers.brokers[1].answers[ApiKey.FETCH], Counter[str]()

    def answer(request: Any, version: int) -> Any:
        asked["fetch"] += 1
        if asked["fetch"] == 8:
            log.add(b"v")
        return serve(request, version)

    broker = brokers.brokers[1]
    broker.answers = {**broker.answers, ApiKey.FETCH: answer}
    small = FetchConfig(
        max_wait_ms=1,
        partition_max_bytes=100,
        partition_max_bytes_limit=1_000,
        refresh_leader_backoff_ms=1,
    )
    async with Fetcher(cluster, small) as fetcher:
        fetcher.add({place: 0})
        assert await values(fetcher, 1) == [b"v"]
        assert fetcher.position(place) == 6
    sizes = {
        partition.partition_max_bytes
        for request in brokers.asked(ApiKey.FETCH)
        for partition in request.topics[0].partitions
    }
    assert sizes == {100}


async def test_a_broker_of_before_kip_74_is_asked_for_more_when_it_gives_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with scripted_cluster(1, ranges={ApiKey.FETCH: (0, 2)}) as brokers:
        (place,) = brokers.topic("t")
        log = brokers.logs[place]
        log.add(b"x" * 10_000)
        (stored,) = log.batches
        monkeypatch.setattr(
            log, "read", lambda offset, most: stored if len(stored) <= most else b""
        )
        small = FetchConfig(max_wait_ms=1, partition_max_bytes=100)
        async with (
            Cluster(brokers.bootstrap, CLIENT) as cluster,
            Fetcher(cluster, small) as fetcher,
        ):
            fetcher.add({place: 0})
            assert await values(fetcher, 1) == [b"x" * 10_000]


async def test_corrupt_records_are_reported_with_partition_and_offset(
    brokers: ScriptedCluster, cluster: Cluster
) -> None:
    (topic_partition,) = brokers.topic("t")
    brokers.logs[topic_partition].add(b"v")
    brokers.logs[topic_partition].batches[0] = brokers.logs[topic_partition].batches[0][:-1] + b"\7"
    async with Fetcher(cluster, QUICK) as fetcher:
        fetcher.add({topic_partition: 0})
        with pytest.raises(DecodingFailed, match="t-0 at offset 0: checksum"):
            await fetcher.take(timeout_s=SOON_S)


async def test_no_more_is_kept_ready_than_was_asked_for(
    brokers: ScriptedCluster, cluster: Cluster
) -> None:
    (topic_partition,) = brokers.topic("t")
    for number in range(20):
        brokers.logs[topic_partition].add(b"%d" % number * 100)
    one_batch = FetchConfig(max_wait_ms=50, partition_max_bytes=200, queued_chunks_max=3)
    async with Fetcher(cluster, one_batch) as fetcher:
        fetcher.add({topic_partition: 0})
        await values(fetcher, 1)
        while await fetcher.take([], timeout_s=0.1):
            raise AssertionError("nothing was asked for")
        assert len(brokers.asked(ApiKey.FETCH)) <= 5
        assert len(await values(fetcher, 19)) == 19


async def test_what_was_read_before_a_seek_is_not_handed_out_after_it(
    brokers: ScriptedCluster, cluster: Cluster
) -> None:
    (topic_partition,) = brokers.topic("t")
    brokers.logs[topic_partition].add(b"0", b"1", b"2")
    async with Fetcher(cluster, QUICK) as fetcher:
        fetcher.add({topic_partition: 0})
        await values(fetcher, 3)
        fetcher.seek(topic_partition, 1)
        assert await values(fetcher, 2) == [b"1", b"2"]


async def test_a_paused_partition_gives_nothing_until_it_is_resumed(
    brokers: ScriptedCluster, cluster: Cluster
) -> None:
    (topic_partition,) = brokers.topic("t")
    brokers.logs[topic_partition].add(b"v")
    async with Fetcher(cluster, QUICK) as fetcher:
        fetcher.add({topic_partition: 0})
        fetcher.pause([topic_partition])
        assert await fetcher.take(timeout_s=0.2) is None
        assert fetcher.paused == {topic_partition}
        fetcher.resume([topic_partition])
        assert await values(fetcher, 1) == [b"v"]


async def test_a_partition_that_comes_back_is_not_given_old_answers(
    brokers: ScriptedCluster, cluster: Cluster
) -> None:
    (topic_partition,) = brokers.topic("t")
    brokers.logs[topic_partition].add(b"0", b"1")
    async with Fetcher(cluster, QUICK) as fetcher:
        fetcher.add({topic_partition: 0})
        await fetcher.take([], timeout_s=0.05)
        fetcher.remove([topic_partition])
        fetcher.add({topic_partition: 1})
        assert await values(fetcher, 1) == [b"1"]


async def test_a_reader_of_committed_records_sees_no_aborted_ones(
    brokers: ScriptedCluster, cluster: Cluster
) -> None:
    (topic_partition,) = brokers.topic("t")
    log = brokers.logs[topic_partition]
    mine: dict[str, Any] = {
        "producer_id": 7,
        "producer_epoch": 0,
        "base_sequence": 0,
        "is_transactional": True,
    }
    log.add(b"aborted", **mine)
    log.append(
        build_batch(
            [encode_marker(Marker.ABORT, 0)],
            timestamp_ms=0,
            is_control=True,
            producer_id=7,
            producer_epoch=0,
            is_transactional=True,
        )
    )
    log.add(b"kept", **mine)
    log.aborted = [AbortedTransaction(producer_id=7, first_offset=0)]
    for level, expected in (
        ("read_committed", [b"kept"]),
        ("read_uncommitted", [b"aborted", b"kept"]),
    ):
        config = FetchConfig(max_wait_ms=50, isolation_level=level)
        async with Fetcher(cluster, config) as fetcher:
            fetcher.add({topic_partition: 0})
            assert await values(fetcher, len(expected)) == expected


async def test_takers_of_different_partitions_wait_side_by_side(
    brokers: ScriptedCluster, cluster: Cluster
) -> None:
    first, second = brokers.topic("t", 2)
    brokers.logs[first].add(b"first")
    async with Fetcher(cluster, QUICK) as fetcher:
        fetcher.add({first: 0, second: 0})
        assert await fetcher.take([second], timeout_s=0.1) is None
        chunk = await fetcher.take([first], timeout_s=SOON_S)
        assert chunk is not None
        assert chunk.values() == [b"first"]


async def test_a_topic_that_is_made_later_is_read_then(
    brokers: ScriptedCluster, cluster: Cluster
) -> None:
    topic_partition = TopicPartition("later", 0)
    async with Fetcher(cluster, QUICK) as fetcher:
        fetcher.add({topic_partition: None})
        assert await fetcher.take(timeout_s=0.05) is None
        brokers.topic("later")
        brokers.logs[topic_partition].add(b"v")
        assert await values(fetcher, 1) == [b"v"]


async def test_a_seek_need_not_wait_for_the_end_of_a_poll(
    brokers: ScriptedCluster, cluster: Cluster
) -> None:
    (topic_partition,) = brokers.topic("t")
    brokers.logs[topic_partition].add(b"0", b"1")
    for_ever = FetchConfig(max_wait_ms=3_600_000)
    async with Fetcher(cluster, for_ever) as fetcher:
        fetcher.add({topic_partition: 0})
        assert await values(fetcher, 2) == [b"0", b"1"]
        assert await fetcher.take(timeout_s=0.05) is None
        fetcher.seek(topic_partition, 1)
        assert await values(fetcher, 1) == [b"1"]


async def test_a_partition_with_room_again_need_not_wait_for_another_that_is_idle(
    brokers: ScriptedCluster, cluster: Cluster
) -> None:
    busy, _, idle = brokers.topic("t", 3)
    for number in range(20):
        brokers.logs[busy].add(b"%02d" % number * 50)
    config = FetchConfig(max_wait_ms=3_600_000, partition_max_bytes=200, queued_chunks_max=1)
    async with Fetcher(cluster, config) as fetcher:
        fetcher.add({busy: 0, idle: 0})
        assert len(await values(fetcher, 20)) == 20


async def test_a_partition_that_moves_to_a_leader_with_nothing_to_fetch_is_read_there(
    brokers: ScriptedCluster, cluster: Cluster
) -> None:
    moved, paused = brokers.topic("t", 2)
    brokers.logs[moved].add(b"before")
    async with Fetcher(cluster, QUICK) as fetcher:
        fetcher.add({moved: 0, paused: 0})
        fetcher.pause([paused])
        assert await values(fetcher, 1) == [b"before"]
        brokers.move(moved, 2)
        brokers.logs[moved].add(b"after")
        brokers.grown.set()
        assert await values(fetcher, 1) == [b"after"]


async def test_a_back_off_that_ends_during_a_poll_need_not_wait_for_the_end_of_it(
    brokers: ScriptedCluster, cluster: Cluster
) -> None:
    idle, moved = brokers.topic("t", 2)
    brokers.logs[moved].add(b"v")

    def refuse(request: Any, version: int) -> fetch.FetchResponse:
        brokers.move(moved, 1)
        return fetch.FetchResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)

    broker = brokers.brokers[2]
    broker.answers = {**broker.answers, ApiKey.FETCH: refuse}
    # Long enough for its new leader to be known before the back-off ends.
    config = FetchConfig(max_wait_ms=3_600_000, refresh_leader_backoff_ms=300)
    async with Fetcher(cluster, config) as fetcher:
        fetcher.add({idle: 0, moved: 0})
        assert await values(fetcher, 1) == [b"v"]


async def test_what_one_leader_sends_has_only_its_own_tasks_look_again(
    brokers: ScriptedCluster, cluster: Cluster
) -> None:
    busy, paused = brokers.topic("t", 2)
    for number in range(20):
        brokers.logs[busy].add(b"%02d" % number * 50)
    looked: Counter[int] = Counter()

    class Counting(Fetcher):
        def _led_by(self, leader: int) -> Any:
            looked[leader] += 1
            return super()._led_by(leader)

    config = FetchConfig(max_wait_ms=50, partition_max_bytes=200, queued_chunks_max=1)
    async with Counting(cluster, config) as fetcher:
        fetcher.add({busy: 0, paused: 0})
        fetcher.pause([paused])
        assert len(await values(fetcher, 2)) == 2
        before = looked.copy()
        assert len(await values(fetcher, 18)) == 18
        assert looked[1] >= before[1] + 18
        assert looked[2] == before[2]


PLACES = [TopicPartition("t", number) for number in range(4)]
STEPS = st.tuples(
    st.sampled_from(["add", "remove", "forget", "learn 1", "learn 2", "answer"]),
    st.sampled_from(PLACES),
    st.booleans(),
)


def learn(cluster: Cluster, place: TopicPartition, leader: int) -> None:
    told = metadata.Partition(partition_index=place.partition, leader_id=leader)
    cluster.topology.learn_topics([metadata.TopicResult(name=place.topic, partitions=[told])])


@given(st.lists(STEPS, min_size=3, max_size=40))
def test_each_leader_is_asked_for_what_it_leads_in_the_order_of_all(
    steps: list[tuple[str, TopicPartition, bool]],
) -> None:
    cluster = Cluster("127.0.0.1:1", CLIENT)
    fetcher = Fetcher(cluster, QUICK)
    for place in PLACES:
        learn(cluster, place, 1)
        fetcher.add({place: 0})
    records = build_batch([(None, b"v")], timestamp_ms=1)
    for step, place, looks in [*steps, ("look", PLACES[0], True)]:
        if step == "add":
            fetcher.add({place: 0})
        elif step == "remove":
            fetcher.remove([place])
        elif step == "forget":
            cluster.forget_leaders([place])
        elif step.startswith("learn"):
            learn(cluster, place, int(step[-1]))
        elif step == "answer":
            result = fetch.PartitionResult(
                partition_index=place.partition, high_watermark=1, records=records
            )
            topic = fetch.TopicResult(topic=place.topic, partitions=[result])
            seek_ids = {one: state.seek_id for one, state in fetcher._states.items()}
            fetcher._accept(fetch.FetchResponse(responses=[topic]), seek_ids, 12)
        if looks:
            leaders = cluster.topology.leaders
            for node in (1, 2):
                assert fetcher._led_by(node) == [
                    state for one, state in fetcher._states.items() if leaders.get(one) == node
                ]
