"""A loop over a consumer that is left and begun again: nothing is lost, nothing is skipped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from barnabas.client import (
    Admin,
    Committed,
    CommittedOffset,
    Consumer,
    SyncConsumer,
    SyncProducer,
    TopicPartition,
)
from barnabas.client.blocking import LoopThread
from barnabas.client.consumer import offset_commits
from barnabas.client.errors import KafkaError
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, Member
from barnabas.testing import Cluster

FIRST = {"auto.offset.reset": "earliest"}
VALUES = [str(number).encode() for number in range(10)]


@pytest.fixture(autouse=True)
def last_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer that is closed waits for its last commit, on a busy machine, too."""
    monkeypatch.setattr(offset_commits, "_LAST_COMMIT_S", 60.0)


def _filled(bootstrap: str, topic: str) -> TopicPartition:
    with SyncProducer(bootstrap) as producer:
        producer.send_all(topic, VALUES)
    return TopicPartition(topic, 0)


async def test_a_loop_goes_on_where_the_one_before_was_left(
    kafka_cluster: Cluster, kafka_topic: str, kafka_group: str
) -> None:
    topic_partition = _filled(kafka_cluster.bootstrap, kafka_topic)
    seen: list[bytes] = []
    async with Consumer(
        kafka_cluster.bootstrap, kafka_topic, group=kafka_group, config=FIRST
    ) as consumer:
        async for record in consumer:
            seen.append(record.value)
            break
        async for record in consumer:
            seen.append(record.value)
            break
        assert consumer.position(topic_partition) == 2
        batch = await consumer.next_batch(3, timeout_s=None, gather_s=60)
        assert batch is not None
        seen += batch.values()
    assert seen == VALUES[:5]
    assert kafka_cluster.committed(kafka_group) == {topic_partition: 5}


async def test_what_was_read_of_a_lost_partition_is_never_committed_later(
    kafka_cluster: Cluster, kafka_topic: str, kafka_group: str
) -> None:
    topic_partition = _filled(kafka_cluster.bootstrap, kafka_topic)
    config = {**FIRST, "heartbeat.interval.ms": 20, "auto.commit.interval.ms": 3_600_000}
    async with (
        Consumer(
            kafka_cluster.bootstrap, kafka_topic, group=kafka_group, config=config
        ) as consumer,
        Admin.of(kafka_cluster.bootstrap) as admin,
    ):
        records = aiter(consumer)
        assert [(await anext(records)).value for _ in range(5)] == VALUES[:5]
        (member,) = (await admin.describe_group(kafka_group)).members
        leave = LeaveGroupRequest(
            group_id=kafka_group,
            member_id=member.member_id,
            members=[Member(member_id=member.member_id)],
        )
        await admin.cluster.to_coordinator(kafka_group, leave, lambda answer: [answer.error_code])
        await admin.alter_offsets(kafka_group, {topic_partition: Committed(offset=8)})
        assert consumer._member is not None
        assert consumer._committer is not None
        while not consumer._member.is_waiting:  # noqa: ASYNC110 - heartbeats tell nobody
            await asyncio.sleep(0.01)
        assert (await anext(records)).value == VALUES[8]
        await consumer._committer.try_commit(consumer._subscription.finished())
        assert await consumer.committed([topic_partition]) == {topic_partition: CommittedOffset(8)}
    assert kafka_cluster.committed(kafka_group) == {topic_partition: 9}


async def test_an_older_iterator_goes_on_behind_what_others_were_given(
    kafka_cluster: Cluster, kafka_topic: str
) -> None:
    _filled(kafka_cluster.bootstrap, kafka_topic)
    async with Consumer(kafka_cluster.bootstrap, kafka_topic, config=FIRST) as consumer:
        older, younger = aiter(consumer), aiter(consumer)
        seen = [(await anext(consumer)).value for consumer in (older, younger, older, younger)]
    assert seen == VALUES[:4]


def test_the_blocking_loop_commits_what_it_gave_out_and_no_more(
    kafka_cluster: Cluster, kafka_topic: str, kafka_group: str
) -> None:
    topic_partition = _filled(kafka_cluster.bootstrap, kafka_topic)
    seen: list[bytes] = []
    with SyncConsumer(
        kafka_cluster.bootstrap, kafka_topic, group=kafka_group, config=FIRST
    ) as consumer:
        for record in consumer:
            seen.append(record.value)
            if len(seen) == 3:
                break
        consumer.commit()
        assert kafka_cluster.committed(kafka_group) == {topic_partition: 3}
        for record in consumer:
            seen.append(record.value)
            if len(seen) == 5:
                break
        batch = consumer.next_batch(2, timeout_s=None)
        assert batch is not None
        seen += [record.value for record in batch]
    assert seen == VALUES[:7]
    assert kafka_cluster.committed(kafka_group) == {topic_partition: 7}


def test_a_record_that_was_in_hand_when_the_loop_failed_is_not_committed(
    kafka_cluster: Cluster, kafka_topic: str, kafka_group: str
) -> None:
    topic_partition = _filled(kafka_cluster.bootstrap, kafka_topic)
    try:
        with SyncConsumer(
            kafka_cluster.bootstrap, kafka_topic, group=kafka_group, config=FIRST
        ) as consumer:
            for record in consumer:
                assert record.value != VALUES[4], "this one cannot be worked on"
    except AssertionError:
        pass
    assert kafka_cluster.committed(kafka_group) == {topic_partition: 4}


def test_a_seek_inside_of_the_blocking_loop_is_heard_at_once(
    kafka_cluster: Cluster, kafka_topic: str
) -> None:
    topic_partition = _filled(kafka_cluster.bootstrap, kafka_topic)
    seen: list[bytes] = []
    with SyncConsumer(kafka_cluster.bootstrap, kafka_topic, config=FIRST) as consumer:
        for record in consumer:
            seen.append(record.value)
            if len(seen) == 2:
                consumer.seek(topic_partition, 8)
            if len(seen) == 4:
                break
    assert seen == [VALUES[0], VALUES[1], VALUES[8], VALUES[9]]


async def failing() -> None:
    raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "nobody answers")


USES: list[Callable[[LoopThread], None]] = [
    lambda thread: thread.begin(failing()),
    lambda thread: thread.end(failing),
]


@pytest.mark.parametrize("use", USES, ids=["first", "last"])
def test_a_thread_ends_even_when_its_first_or_last_work_fails(
    use: Callable[[LoopThread], None],
) -> None:
    thread = LoopThread("of a test")
    with pytest.raises(KafkaError):
        use(thread)
    assert not thread.is_alive
    thread.end(failing)  # twice is allowed, and then nothing is left to do
