"""Spark's own Kafka connector on our topics, and beside our source: the same rows both ways.

Source: docs/spec/pipeline.md §3.3 and §3.4.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from barnabas.console.development.cluster import Cluster
from benchmarks.spark_connector import NoConnector
from tests.harness.needs import MAVEN, skip_without
from tests.harness.records import Sent
from tests.pipeline.conftest import Fill
from tests.pipeline.new_topics import create_topic
from tests.pipeline.slow_machine import available_now

FORMATS = ("kafka", "barnabas")


@pytest.fixture(autouse=True)
def jars(connector: list[Path] | NoConnector) -> None:
    if isinstance(connector, NoConnector):
        skip_without(f"no Kafka connector of Spark ({connector})", MAVEN)


class Both:
    """The same frame, stream or sink through either format."""

    def __init__(self, spark: SparkSession, cluster: Cluster, directory: Path) -> None:
        self._spark = spark
        self._servers = {"kafka.bootstrap.servers": cluster.bootstrap}
        self._directory = directory

    def read(self, kind: str, topic: str, **options: Any) -> DataFrame:
        told = {**self._servers, "subscribe": topic, "includeHeaders": "true", **options}
        return self._spark.read.format(kind).options(**told).load()

    def stream(self, kind: str, topic: str, most: int) -> tuple[DataFrame, list[Any]]:
        """The rows of a stream that takes what is there, and where its batches ended."""
        told = {**self._servers, "subscribe": topic, "includeHeaders": "true"}
        told |= {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(most)}
        frame = self._spark.readStream.format(kind).options(**told).load()
        output = str(self._directory / f"{kind}-rows")
        writer = frame.writeStream.format("parquet").option("path", output)
        checkpoint = str(self._directory / f"{kind}-checkpoint")
        query = available_now(writer.option("checkpointLocation", checkpoint))
        ends = [progress["sources"][0]["endOffset"] for progress in query.recentProgress]
        return self._spark.read.parquet(output), [_offsets(end) for end in ends]

    def write(self, kind: str, frame: DataFrame, topic: str) -> None:
        writer = frame.write.format(kind).mode("append").options(**self._servers)
        writer.option("topic", topic).option("includeHeaders", "true").save()

    def copy(self, source: str, sink: str, topic: str, target: str) -> None:
        """Stream a topic into another through any pair of formats."""
        told = {**self._servers, "subscribe": topic, "startingOffsets": "earliest"}
        frame = self._spark.readStream.format(source).options(**told).load()
        rows = frame.select("key", "value", "partition")
        writer = rows.writeStream.format(sink).options(**self._servers).option("topic", target)
        checkpoint = str(self._directory / f"{source}-{sink}")
        available_now(writer.option("checkpointLocation", checkpoint))


@pytest.fixture
def both(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> Both:
    return Both(spark, cluster, tmp_path)


def test_both_read_the_same_rows_of_a_topic(both: Both, filled: Fill) -> None:
    name = filled(200, codec="zstd")
    filled(
        [
            Sent(None, b"only a key", partition=0, timestamp_ms=1_700_000_000_007),
            Sent(b"", None, [("h", b"1"), ("h", None), ("ü", b"\x00")], partition=1),
        ]
    )
    part = {"startingOffsets": json.dumps({name: {"0": 90, "1": -2}})}

    for options in ({}, part):
        theirs, ours = (both.read(kind, name, **options) for kind in FORMATS)
        assert ours.schema == theirs.schema
        assert sorted(ours.collect(), key=_topic_partition) == sorted(
            theirs.collect(), key=_topic_partition
        )


def test_both_stream_the_same_rows_in_the_same_batches(both: Both, filled: Fill) -> None:
    name = filled(90)
    filled([Sent(b"more", partition=0)] * 40)

    (theirs, their_ends), (ours, our_ends) = (both.stream(kind, name, 50) for kind in FORMATS)

    assert our_ends == their_ends
    assert sorted(ours.collect(), key=_topic_partition) == sorted(
        theirs.collect(), key=_topic_partition
    )
    assert ours.count() == 130


def test_both_write_the_same_records(
    spark: SparkSession, both: Both, topic: str, filled: Fill
) -> None:
    filled()
    rows = [(b"k%d" % n, None if n % 7 == 0 else b"v%d" % n, [("h", b"%d" % n)]) for n in range(60)]
    schema = "key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    frame = spark.createDataFrame(rows, schema).coalesce(1)
    columns = ("partition", "offset", "key", "value", "headers")
    found = []

    for kind in FORMATS:
        both.write(kind, frame, f"{topic}-{kind}")
        written = both.read("kafka", f"{topic}-{kind}").select(*columns)
        found.append(sorted(written.collect(), key=_topic_partition))

    assert found[0] == found[1]
    assert len(found[0]) == 60


@pytest.mark.nightly
@pytest.mark.parametrize(("source", "sink"), [("kafka", "barnabas"), ("barnabas", "kafka")])
def test_either_sink_takes_the_stream_of_the_other(
    both: Both, cluster: Cluster, filled: Fill, source: str, sink: str
) -> None:
    name = filled(60)
    target = f"{name}-{source}-{sink}"
    create_topic(cluster.bootstrap, target, 2)

    both.copy(source, sink, name, target)

    columns = ("partition", "offset", "key", "value")
    original, copy = (
        sorted(both.read(source, topic).select(*columns).collect(), key=_topic_partition)
        for topic in (name, target)
    )
    assert copy == original


def _topic_partition(row: Any) -> tuple[int, int]:
    return row["partition"], row["offset"]


def _offsets(end: Any) -> Any:
    return json.loads(end) if isinstance(end, str) else end
