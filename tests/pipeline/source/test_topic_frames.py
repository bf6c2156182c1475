"""Topics as frames: which records, which columns, how they are divided among tasks."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from barnabas.client.cluster import TopicPartition
from barnabas.pipeline import cluster_requests
from barnabas.pipeline.blocking_client import BlockingClient
from tests.harness.records import Sent
from tests.pipeline.conftest import Fill

Read = Callable[..., DataFrame]


CODECS = [
    pytest.param(codec, marks=() if codec == "zstd" else pytest.mark.nightly)
    for codec in ("gzip", "snappy", "lz4", "zstd")
]


def topic_partitions(frame: DataFrame) -> list[tuple[int, int]]:
    return sorted((row["partition"], row["offset"]) for row in frame.collect())


def offsets(topic: str, *found: int) -> str:
    return json.dumps({topic: {str(number): offset for number, offset in enumerate(found)}})


def failure(frame: Callable[[], Any]) -> str:
    with pytest.raises(PySparkException) as raised:
        frame()
    return str(raised.value)


def test_a_frame_has_every_record_with_the_columns_of_sparks_own_connector(
    read: Read, filled: Fill
) -> None:
    name = filled(
        [
            Sent(b"one", b"k", partition=0, timestamp_ms=1_700_000_000_123),
            Sent(None, None, partition=1),
        ]
    )

    frame = read(subscribe=name)

    assert frame.schema == StructType.fromDDL(
        "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, "
        "timestamp TIMESTAMP, timestampType INT"
    )
    first, second = sorted(frame.collect(), key=lambda row: row["partition"])
    assert bytes(first["key"]) == b"k"
    assert bytes(first["value"]) == b"one"
    assert (first["topic"], first["offset"], first["timestampType"]) == (name, 0, 0)
    assert first["timestamp"].astimezone(UTC) == datetime.fromtimestamp(1_700_000_000.123, UTC)
    assert (second["key"], second["value"]) == (None, None)


def test_headers_come_when_asked_for_and_are_null_where_there_are_none(
    read: Read, filled: Fill
) -> None:
    name = filled(
        [Sent(b"a", headers=[("h", b"1"), ("h", None)], partition=0), Sent(b"b", partition=0)]
    )

    rows = read(subscribe=name, includeHeaders="true").orderBy("offset").collect()

    assert [(header["key"], header["value"]) for header in rows[0]["headers"]] == [
        ("h", bytearray(b"1")),
        ("h", None),
    ]
    assert rows[1]["headers"] is None


@pytest.mark.parametrize("codec", CODECS)
def test_compressed_batches_are_read_like_others(read: Read, filled: Fill, codec: str) -> None:
    name = filled(200, codec=codec)

    values = {bytes(row["value"]) for row in read(subscribe=name).select("value").collect()}

    assert values == {b"v%d" % number for number in range(200)}


def test_only_the_columns_asked_for_are_made(read: Read, filled: Fill) -> None:
    name = filled(20)

    frame = read(subscribe=name, columns="offset, partition")

    assert frame.columns == ["offset", "partition"]
    assert topic_partitions(frame) == [(partition, n) for partition in range(2) for n in range(10)]


def test_starts_and_ends_bound_what_is_read(read: Read, filled: Fill) -> None:
    name = filled(20)

    frame = read(
        subscribe=name, startingOffsets=offsets(name, 3, -2), endingOffsets=offsets(name, 5, -1)
    )

    assert topic_partitions(frame) == [(0, 3), (0, 4), *((1, n) for n in range(10))]


def test_a_time_starts_at_the_first_record_that_is_not_older(read: Read, filled: Fill) -> None:
    name = filled(
        [Sent(b"%d" % n, partition=0, timestamp_ms=1_700_000_000_000 + n) for n in range(10)],
        count=1,
    )

    frame = read(
        subscribe=name,
        startingTimestamp=1_700_000_000_004,
        endingOffsetsByTimestamp=offsets(name, 1_700_000_000_007),
    )

    assert topic_partitions(frame) == [(0, 4), (0, 5), (0, 6)]


def test_a_time_that_no_record_has_reached_is_an_error_unless_that_is_allowed(
    read: Read, filled: Fill
) -> None:
    name = filled(4)
    late = 4_000_000_000_000

    assert "that late" in failure(lambda: read(subscribe=name, startingTimestamp=late).count())
    allowed = read(
        subscribe=name, startingTimestamp=late, startingOffsetsByTimestampStrategy="latest"
    )
    assert allowed.count() == 0


def test_a_group_starts_where_it_has_committed_and_at_the_beginning_elsewhere(
    read: Read, filled: Fill, client: BlockingClient, group: str
) -> None:
    name = filled(20)
    client.run(cluster_requests.commit(client.cluster, group, {TopicPartition(name, 1): 8}))

    frame = read(subscribe=name, startingOffsets=f"group:{group}")

    assert topic_partitions(frame) == [*((0, n) for n in range(10)), (1, 8), (1, 9)]


def test_partitions_can_be_assigned_and_topics_found_by_pattern(read: Read, filled: Fill) -> None:
    name = filled(20)

    assert read(assign=json.dumps({name: [1]})).count() == 10
    assert read(subscribePattern=name[:-1]).count() == 20


def test_a_large_partition_is_divided_among_tasks_without_losing_a_record(
    read: Read, filled: Fill
) -> None:
    name = filled(40)

    by_size = read(subscribe=name, maxRecordsPerPartition=6)
    by_count = read(subscribe=name, minPartitions=7)

    wanted = [(partition, n) for partition in range(2) for n in range(20)]
    assert (by_size.rdd.getNumPartitions(), topic_partitions(by_size)) == (8, wanted)
    assert by_count.rdd.getNumPartitions() >= 7
    assert topic_partitions(by_count) == wanted


def test_an_empty_topic_is_an_empty_frame(read: Read, filled: Fill) -> None:
    assert read(subscribe=filled()).count() == 0


def test_internal_topics_can_be_read_by_name(
    read: Read, client: BlockingClient, group: str
) -> None:
    topic_partition = TopicPartition("__consumer_offsets", 0)
    client.run(cluster_requests.commit(client.cluster, group, {topic_partition: 5}))

    keys = [bytes(row["key"]) for row in read(subscribe="__consumer_offsets").collect()]

    assert any(group.encode() in key for key in keys)


def test_a_misspelt_option_is_refused_with_the_right_one(read: Read, filled: Fill) -> None:
    name = filled()

    said = failure(lambda: read(subscribe=name, startingOffset="latest").count())

    assert "startingOffset: unknown, did you mean startingOffsets" in said.replace(
        "startingoffset:", "startingOffset:"
    )


def test_what_retention_took_is_lost_data_unless_that_is_allowed(
    read: Read, filled: Fill, cluster: Any
) -> None:
    name = filled(20)
    delete_records(cluster.bootstrap, name, 0, 6)
    asked = {"subscribe": name, "startingOffsets": offsets(name, 2, 9)}

    assert "failOnDataLoss" in failure(lambda: read(**asked).count())
    assert topic_partitions(read(**asked, failOnDataLoss="false")) == [
        *((0, n) for n in range(6, 10)),
        (1, 9),
    ]


def delete_records(bootstrap: str, topic: str, partition: int, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic_partition = Place(topic, partition, before)
    for done in admin.delete_records([topic_partition]).values():
        done.result(120)
