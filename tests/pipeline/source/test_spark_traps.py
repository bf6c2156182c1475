"""Every trap of Spark's Python data sources that docs/spec/pipeline.md §1.3 lists, by its
number.
"""

from __future__ import annotations

import itertools
import json
import pickle
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, In, LessThan
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import NewTopic
from barnabas.client.cluster import TopicPartition
from barnabas.console.development.cluster import Cluster
from barnabas.pipeline.blocking_client import BlockingClient
from barnabas.pipeline.frames import stream_topic
from barnabas.pipeline.session import default_conf
from barnabas.pipeline.source.checkpoint import Checkpoint
from barnabas.pipeline.source.errors import ProgressLost
from barnabas.pipeline.source.layout import (
    COMMITS,
    GROUPS,
    RECORDS,
    RECORDS_WITH_HEADERS,
    ZOOKEEPER_OFFSETS,
    Layout,
)
from barnabas.pipeline.source.options import topic_options
from barnabas.pipeline.source.rows import RecordRows
from barnabas.pipeline.source.task_planning import OffsetRange
from barnabas.pipeline.source.topic_batch import FilteringTopicReader, TopicReader
from barnabas.pipeline.source.topic_stream import TopicStreamReader
from tests.harness.waiting import eventually
from tests.pipeline.conftest import Fill
from tests.pipeline.slow_machine import available_now, patiently

Read = Callable[..., DataFrame]


def stream_reader(cluster: Cluster, topic: str, **options: Any) -> TopicStreamReader:
    told = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic}
    told |= {name: str(value) for name, value in options.items()}
    return TopicStreamReader(topic_options(told, is_stream=True), RecordRows(RECORDS))


def planned(reader: TopicReader) -> Sequence[OffsetRange]:
    return [task.value for task in reader.partitions()]


def test_1_workers_run_the_interpreter_that_has_the_package(spark: SparkSession) -> None:
    def interpreter(_: Any) -> str:
        return sys.executable

    found = spark.sparkContext.parallelize([0], 1).map(interpreter).collect()

    assert found == [sys.executable]


@pytest.mark.parametrize(
    "layout", [RECORDS, RECORDS_WITH_HEADERS, COMMITS, GROUPS, ZOOKEEPER_OFFSETS]
)
def test_2_arrow_batches_have_exactly_the_schema_that_spark_makes_of_ours(layout: Layout) -> None:
    kind = StructType.fromDDL(layout.spark)
    assert isinstance(kind, StructType)
    wanted = to_arrow_schema(kind, timezone="UTC")

    assert layout.arrow.equals(wanted)
    assert all(field.nullable for field in layout.arrow)
    assert not any(pa.types.is_large_binary(field.type) for field in layout.arrow)


def test_2_every_batch_of_a_task_has_the_same_schema(cluster: Cluster, filled: Fill) -> None:
    told = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": filled(50, count=1)}
    options = topic_options(told | {"kafka.max.partition.fetch.bytes": "300"}, is_stream=False)
    reader = TopicReader(options, RecordRows(RECORDS_WITH_HEADERS))
    filled(50)

    (task,) = reader.partitions()
    batches = list(reader.read(task))

    assert len(batches) > 1
    assert sum(batch.num_rows for batch in batches) == 100
    assert {str(batch.schema) for batch in batches} == {str(RECORDS_WITH_HEADERS.arrow)}


def test_3_columns_that_nobody_asked_for_are_not_made(read: Read, filled: Fill) -> None:
    frame = read(subscribe=filled(10), columns="offset")

    assert frame.columns == ["offset"]
    assert frame.count() == 10


def test_4_filters_narrow_the_plan(cluster: Cluster, filled: Fill) -> None:
    name = filled(40)
    told = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": name}
    reader = FilteringTopicReader(topic_options(told, is_stream=False), RecordRows(RECORDS))
    topic, partition = In(("topic",), (name, "other")), EqualTo(("partition",), 1)
    bounds = [GreaterThanOrEqual(("offset",), 3), LessThan(("offset",), 9)]

    left = list(reader.pushFilters([topic, partition, *bounds]))

    assert left == [topic, *bounds]
    assert planned(reader) == [OffsetRange(TopicPartition(name, 1), 3, 9)]


def test_4_filters_give_the_same_rows_pushed_or_not(
    spark: SparkSession, read: Read, filled: Fill
) -> None:
    name = filled(40)
    condition = (
        f"topic = '{name}' and partition in (1, 5) and offset >= 7 and offset < 12 "
        "and timestamp >= timestamp'2001-01-01' and value is not null"
    )
    key = "spark.sql.python.filterPushdown.enabled"

    pushed = read(subscribe=name).where(condition).select("partition", "offset").collect()
    spark.conf.set(key, "false")
    try:
        plain = read(subscribe=name).where(condition).select("partition", "offset").collect()
    finally:
        spark.conf.set(key, "true")

    assert sorted(pushed) == sorted(plain) == [(1, offset) for offset in range(7, 12)]


def test_5_equal_offsets_are_equal_text_whatever_order_they_come_in(
    cluster: Cluster, filled: Fill
) -> None:
    name = filled(24, count=12)
    reader = stream_reader(cluster, name)
    numbers = [str(number) for number in range(12)]

    ends = [
        json.dumps(reader.latestOffset({name: dict.fromkeys(order, 2)}, ReadAllAvailable()))
        for order in (numbers, numbers[::-1], sorted(numbers))
    ]

    assert ends == [json.dumps({name: dict.fromkeys(numbers, 2)})] * 3


def test_6_the_start_is_the_same_however_often_it_is_asked(
    cluster: Cluster, filled: Fill, tmp_path: Path
) -> None:
    name = filled(10)
    told = {"startingOffsets": "latest", "checkpointLocation": tmp_path / "checkpoint"}
    before_a_crash = stream_reader(cluster, name, **told)
    first = before_a_crash.initialOffset()
    filled(10)

    assert before_a_crash.initialOffset() == first == {name: {"0": 5, "1": 5}}
    assert stream_reader(cluster, name, **told).initialOffset() == first


def test_6_a_batch_that_ends_before_it_starts_is_an_error(cluster: Cluster, filled: Fill) -> None:
    name = filled(10, count=1)
    reader = stream_reader(cluster, name)

    with pytest.raises(ProgressLost, match="from 8 up to 5"):
        reader.partitions({name: {"0": 8}}, {name: {"0": 5}})


def begun(writer: DataStreamWriter, entered: threading.Event) -> StreamingQuery:
    """A query whose first batch has begun; raises what it failed of before."""
    query = writer.start()
    eventually(lambda: entered.is_set() or not query.isActive, within_s=300)
    if failure := query.exception():
        raise failure
    assert entered.is_set()
    return query


def test_8_a_query_stopped_in_the_middle_of_a_batch_does_not_overflow_the_stack(
    spark: SparkSession, cluster: Cluster, filled: Fill, tmp_path: Path
) -> None:
    entered, may_go = threading.Event(), threading.Event()

    def slow(frame: DataFrame, batch: int) -> None:
        entered.set()
        may_go.wait(180)
        frame.count()

    checkpoint = str(tmp_path / "checkpoint")
    frame = stream_topic(
        spark, filled(10), cluster.bootstrap, checkpoint=checkpoint, start="earliest"
    )
    writer = frame.writeStream.foreachBatch(slow).option("checkpointLocation", checkpoint)
    query = patiently(lambda: begun(writer, entered))
    stopper = threading.Thread(target=query.stop)
    stopper.start()
    may_go.set()
    stopper.join(300)

    assert not stopper.is_alive()
    assert "StackOverflow" not in str(query.exception())
    assert "-Xss16m" in default_conf()["spark.driver.extraJavaOptions"]


def test_9_the_offsets_of_a_batch_are_read_from_the_checkpoint(
    spark: SparkSession, cluster: Cluster, filled: Fill, tmp_path: Path
) -> None:
    checkpoint = str(tmp_path / "checkpoint")
    name = filled(20)
    frame = stream_topic(
        spark,
        name,
        cluster.bootstrap,
        checkpoint=checkpoint,
        start="earliest",
        options={"maxOffsetsPerTrigger": 12},
    )
    writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
    query = available_now(writer)

    kept = Checkpoint(checkpoint)

    assert kept.query_id() == query.id
    assert (kept.planned(), kept.done()) == (1, 1)
    assert [sum(kept.topic_ends(batch).values()) for batch in (0, 1)] == [12, 20]


def test_10_a_limit_is_kept_unless_spark_says_to_take_everything(
    cluster: Cluster, filled: Fill
) -> None:
    name = filled(40)
    start = {name: {"0": 0, "1": 0}}
    most = stream_reader(cluster, name, maxOffsetsPerTrigger=8)
    least = stream_reader(cluster, name, minOffsetsPerTrigger=8)

    assert most.getDefaultReadLimit() == ReadMaxRows(8)
    assert least.getDefaultReadLimit() == ReadMinRows(8)
    assert most.latestOffset(start, ReadMaxRows(8)) == {name: {"0": 4, "1": 4}}
    assert most.latestOffset(start, ReadAllAvailable()) == {name: {"0": 20, "1": 20}}


def test_10_too_little_is_waited_for_but_not_in_a_query_that_ends(
    cluster: Cluster, filled: Fill
) -> None:
    name = filled(40)
    reader = stream_reader(cluster, name, minOffsetsPerTrigger=10)
    limit = reader.getDefaultReadLimit()
    first = reader.latestOffset({name: {"0": 15, "1": 17}}, limit)
    nearly_there = {name: {"0": 18, "1": 18}}

    assert first == {name: {"0": 20, "1": 20}}, "the first batch does not wait"
    assert reader.latestOffset(nearly_there, limit) == nearly_there
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset(nearly_there, limit) == first


def test_10_a_query_that_takes_what_is_there_does_not_see_what_comes(
    cluster: Cluster, filled: Fill
) -> None:
    name = filled(20)
    reader = stream_reader(cluster, name)
    reader.prepareForTriggerAvailableNow()
    filled(20)

    assert reader.latestOffset({name: {"0": 0, "1": 0}}, ReadAllAvailable()) == {
        name: {"0": 10, "1": 10}
    }


def test_11_nothing_is_drawn_on_the_screen() -> None:
    assert default_conf()["spark.ui.showConsoleProgress"] == "false"


def test_12_a_stream_waits_for_brokers_that_are_away() -> None:
    with Cluster(1) as cluster:
        reader = stream_reader(cluster, "t")
        client = reader._lookup.client
        client.run(created(client, "t"))
        start = reader.initialOffset()
        cluster.kill(1)
        returning = threading.Thread(target=cluster.restart, args=(1,))
        returning.start()
        try:
            end = reader.latestOffset(start, ReadAllAvailable())
        finally:
            returning.join()
            client.close()

    assert end == start == {"t": {"0": 0}}


async def created(client: BlockingClient, topic: str) -> None:
    await Admin(client.cluster).create_topics([NewTopic(name=topic, partitions=1)])


def test_readers_can_be_pickled_after_they_were_used(cluster: Cluster, filled: Fill) -> None:
    name = filled(10)
    reader = stream_reader(cluster, name)
    start = reader.initialOffset()
    (first, _) = reader.partitions({name: {"0": 0, "1": 0}}, start)

    again = pickle.loads(pickle.dumps(reader))

    rows = list(itertools.chain.from_iterable(b.to_pylist() for b in again.read(first)))
    assert [row["offset"] for row in rows] == [0, 1, 2, 3, 4]
