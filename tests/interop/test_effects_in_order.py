"""Clients that ask before they were answered read what they wrote: found by their users."""

from __future__ import annotations

import warnings

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from tests.harness.deployments import Deployment, create_topic
from tests.harness.fixtures import LIBRARIES
from tests.harness.records import numbered

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "(open|read)_text is deprecated", DeprecationWarning)
    from kafka import KafkaConsumer
    from kafka import TopicPartition as PythonTopicPartition
    from kafka.structs import OffsetAndMetadata

TRIES = 30


def test_kafka_python_reads_the_offset_that_it_has_just_committed_without_waiting(
    cluster: Deployment, topic: str, group: str
) -> None:
    create_topic(cluster, LIBRARIES[0], topic, 1)
    place = PythonTopicPartition(topic, 0)
    consumer = KafkaConsumer(
        bootstrap_servers=cluster.bootstrap, group_id=group, enable_auto_commit=False
    )
    consumer.assign([place])
    consumer.committed(place)  # the coordinator is known
    found = []
    for offset in range(TRIES):
        consumer.commit_async({place: OffsetAndMetadata(offset, "", -1)})
        found.append(consumer.committed(place))
    consumer.close()
    assert found == list(range(TRIES))


def test_librdkafka_lists_the_start_that_it_has_just_moved_without_waiting(
    cluster: Deployment, topic: str
) -> None:
    create_topic(cluster, LIBRARIES[0], topic, 1)
    LIBRARIES[0].produce(cluster.bootstrap, topic, numbered(0, TRIES + 1))
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    place = TopicPartition(topic, 0)
    earliest = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
    # The first of each waits for its own look for the leader, and so for no order of theirs.
    [deleted] = admin.delete_records([TopicPartition(topic, 0, 0)]).values()
    assert deleted.result(90).low_watermark == 0
    [listed] = admin.list_offsets({place: earliest}).values()
    assert listed.result(90).offset == 0
    found = []
    for start in range(1, TRIES + 1):
        [deleted] = admin.delete_records([TopicPartition(topic, 0, start)]).values()
        [listed] = admin.list_offsets({place: earliest}).values()
        assert deleted.result(90).low_watermark == start
        found.append(listed.result(90).offset)
    assert found == list(range(1, TRIES + 1))
