"""A loop over a consumer that is left and begun again: nothing is lost, nothing is skipped."""

from __future__ import annotations

from barnabas.client import Consumer, SyncConsumer, SyncProducer, TopicPartition
from barnabas.testing import Cluster

FIRST = {"auto.offset.reset": "earliest"}
VALUES = [str(number).encode() for number in range(10)]


def _filled(bootstrap: str, topic: str) -> TopicPartition:
    with SyncProducer(bootstrap) as producer:
        producer.send_all(topic, VALUES)
    return TopicPartition(topic, 0)


async def test_a_loop_goes_on_where_the_one_before_was_left(
    kafka_cluster: Cluster, kafka_topic: str, kafka_group: str
) -> None:
    place = _filled(kafka_cluster.bootstrap, kafka_topic)
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
        assert consumer.position(place) == 2
        batch = await consumer.next_batch(3, timeout_s=None)
        assert batch is not None
        seen += batch.values()
    assert seen == VALUES[:5]
    assert kafka_cluster.committed(kafka_group) == {place: 5}


async def test_an_older_iterator_goes_on_behind_what_others_were_given(
    kafka_cluster: Cluster, kafka_topic: str
) -> None:
    _filled(kafka_cluster.bootstrap, kafka_topic)
    async with Consumer(kafka_cluster.bootstrap, kafka_topic, config=FIRST) as consumer:
        older, younger = aiter(consumer), aiter(consumer)
        seen = [(await anext(each)).value for each in (older, younger, older, younger)]
    assert seen == VALUES[:4]


def test_the_blocking_loop_commits_what_it_gave_out_and_no_more(
    kafka_cluster: Cluster, kafka_topic: str, kafka_group: str
) -> None:
    place = _filled(kafka_cluster.bootstrap, kafka_topic)
    seen: list[bytes] = []
    with SyncConsumer(
        kafka_cluster.bootstrap, kafka_topic, group=kafka_group, config=FIRST
    ) as consumer:
        for record in consumer:
            seen.append(record.value)
            if len(seen) == 3:
                break
        consumer.commit()
        assert kafka_cluster.committed(kafka_group) == {place: 3}
        for record in consumer:
            seen.append(record.value)
            if len(seen) == 5:
                break
        batch = consumer.next_batch(2, timeout_s=None)
        assert batch is not None
        seen += [record.value for record in batch]
    assert seen == VALUES[:7]
    assert kafka_cluster.committed(kafka_group) == {place: 7}


def test_a_record_that_was_in_hand_when_the_loop_failed_is_not_committed(
    kafka_cluster: Cluster, kafka_topic: str, kafka_group: str
) -> None:
    place = _filled(kafka_cluster.bootstrap, kafka_topic)
    try:
        with SyncConsumer(
            kafka_cluster.bootstrap, kafka_topic, group=kafka_group, config=FIRST
        ) as consumer:
            for record in consumer:
                assert record.value != VALUES[4], "this one cannot be worked on"
    except AssertionError:
        pass
    assert kafka_cluster.committed(kafka_group) == {place: 4}


def test_a_seek_inside_of_the_blocking_loop_is_heard_at_once(
    kafka_cluster: Cluster, kafka_topic: str
) -> None:
    place = _filled(kafka_cluster.bootstrap, kafka_topic)
    seen: list[bytes] = []
    with SyncConsumer(kafka_cluster.bootstrap, kafka_topic, config=FIRST) as consumer:
        for record in consumer:
            seen.append(record.value)
            if len(seen) == 2:
                consumer.seek(place, 8)
            if len(seen) == 4:
                break
    assert seen == [VALUES[0], VALUES[1], VALUES[8], VALUES[9]]
