"""Rows written into topics: once, where they belong, and again only what is missing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from barnabas.client.errors import KafkaError
from barnabas.console.development.cluster import Cluster
from barnabas.pipeline.blocking_client import BlockingClient
from barnabas.pipeline.frames import (
    read_topic,
    stream_to_topic,
    stream_topic,
    write_topic,
)
from barnabas.pipeline.sink import idempotent_sender as produce
from barnabas.pipeline.sink.idempotent_sender import IdempotentSender, new_identity
from barnabas.pipeline.sink.ledger import Ledger
from barnabas.pipeline.source.errors import ProgressLost
from barnabas.pipeline.source.layout import RECORDS
from barnabas.pipeline.source.options import topic_options
from barnabas.pipeline.source.rows import RecordRows
from barnabas.pipeline.source.topic_batch import TopicReader
from barnabas.protocol.hashing import keyed_partition
from tests.pipeline.conftest import Fill
from tests.pipeline.slow_machine import available_now

CODECS = [
    pytest.param(codec, marks=() if codec == "zstd" else pytest.mark.nightly)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd")
]


def values(spark: SparkSession, cluster: Cluster, topic: str) -> list[bytes]:
    frame = read_topic(spark, topic, cluster.bootstrap).orderBy("partition", "offset")
    return [bytes(row["value"]) for row in frame.collect()]


def test_rows_go_where_their_keys_or_their_partitions_say(
    spark: SparkSession, cluster: Cluster, filled: Fill
) -> None:
    name = filled(count=3)
    rows = [(f"k{n}", f"v{n}", None) for n in range(20)] + [("other", "here", 2)]
    frame = spark.createDataFrame(rows, "key STRING, value STRING, partition INT")

    write_topic(frame, cluster.bootstrap, name)

    found = read_topic(spark, name, cluster.bootstrap).collect()
    placed = {bytes(row["value"]): (bytes(row["key"]), row["partition"]) for row in found}
    assert len(found) == 21
    assert placed.pop(b"here") == (b"other", 2)
    assert all(keyed_partition(key, 3) == partition for key, partition in placed.values())


@pytest.mark.parametrize("codec", CODECS)
def test_nulls_headers_and_bytes_survive_in_every_codec(
    spark: SparkSession, cluster: Cluster, filled: Fill, codec: str
) -> None:
    name = filled(count=1)
    frame = spark.createDataFrame(
        [(b"\x00\xff", b"", [("h", b"1"), ("h", None)]), (None, None, None)],
        "key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>",
    ).coalesce(1)

    write_topic(frame, cluster.bootstrap, name, options={"kafka.compression.type": codec})

    told = {"includeHeaders": "true"}
    rows = read_topic(spark, name, cluster.bootstrap, options=told).orderBy("offset").collect()
    first, second = rows
    assert (bytes(first["key"]), bytes(first["value"])) == (b"\x00\xff", b"")
    assert [(header["key"], header["value"]) for header in first["headers"]] == [
        ("h", bytearray(b"1")),
        ("h", None),
    ]
    assert (second["key"], second["value"], second["headers"]) == (None, None, None)


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ("key STRING", "value"),
        ("value INT", "must be STRING or BINARY"),
        ("value STRING, partition STRING", "must be INT"),
        ("value STRING, headers ARRAY<STRING>", "headers"),
    ],
)
def test_a_frame_that_cannot_become_records_is_refused(
    spark: SparkSession, cluster: Cluster, schema: str, problem: str
) -> None:
    with pytest.raises(PySparkException, match=problem):
        write_topic(spark.createDataFrame([], schema), cluster.bootstrap, "any")


def test_a_topic_cannot_be_overwritten(spark: SparkSession, cluster: Cluster) -> None:
    frame = spark.createDataFrame([("v",)], "value STRING")
    writer = frame.write.format("barnabas").option("kafka.bootstrap.servers", cluster.bootstrap)

    with pytest.raises(PySparkException, match="cannot be overwritten"):
        writer.option("topic", "any").mode("overwrite").save()


def test_a_stream_copies_a_topic_batch_by_batch(
    spark: SparkSession, cluster: Cluster, filled: Fill, topic: str, tmp_path: Path
) -> None:
    source, target = filled(60), f"{topic}-copy"
    checkpoint = str(tmp_path / "checkpoint")
    copied(spark, cluster, source, target, checkpoint)
    filled(10)
    copied(spark, cluster, source, target, checkpoint)

    assert sorted(values(spark, cluster, target)) == sorted(values(spark, cluster, source))


def test_a_batch_that_spark_runs_again_writes_nothing_twice(
    spark: SparkSession, cluster: Cluster, filled: Fill, topic: str, tmp_path: Path
) -> None:
    source, target = filled(60), f"{topic}-copy"
    checkpoint = tmp_path / "checkpoint"
    copied(spark, cluster, source, target, str(checkpoint))
    newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    for path in (newest, newest.with_name(f".{newest.name}.crc")):
        path.unlink(missing_ok=True)  # as if the driver had died before Spark noted the batch
    copied(spark, cluster, source, target, str(checkpoint))

    assert sorted(values(spark, cluster, target)) == sorted(values(spark, cluster, source))


def test_a_stream_without_its_checkpoint_as_an_option_is_refused(
    spark: SparkSession, cluster: Cluster, filled: Fill, tmp_path: Path
) -> None:
    name = filled(4)
    frame = stream_topic(spark, name, cluster.bootstrap, checkpoint=str(tmp_path / "c"))
    writer = frame.writeStream.format("barnabas").option("topic", name)
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "elsewhere"))
    try:
        writer = writer.option("kafka.bootstrap.servers", cluster.bootstrap)
        with pytest.raises(PySparkException, match="must be an option of the stream"):
            available_now(writer)
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")


@pytest.mark.parametrize("stops_after", range(5))
def test_a_task_that_died_goes_on_behind_what_was_acknowledged(
    client: BlockingClient, filled: Fill, monkeypatch: pytest.MonkeyPatch, stops_after: int
) -> None:
    """The first run sends some of its four batches; of the last one it hears no answer."""
    name = filled(count=1)
    identity = client.run(new_identity(client.cluster))
    rows = [b"%d" % number for number in range(40)]
    sent = 0
    send = produce.send

    async def dying(*arguments: Any) -> None:
        nonlocal sent
        if sent >= stops_after:
            raise KafkaError(-1, "the task is dead")
        await send(*arguments)
        sent += 1

    def run(*, is_second_run: bool) -> None:
        sender = IdempotentSender(
            client,
            identity,
            is_second_run=is_second_run,
            codec=0,
            batch_bytes=250,
            timeout_ms=30_000,
            task=0,
        )
        for row in rows:
            sender.add(name, None, None, row)
        sender.finish()

    monkeypatch.setattr(produce, "send", dying)
    if stops_after < 4:
        with pytest.raises(KafkaError, match="dead"):
            run(is_second_run=False)
    else:
        run(is_second_run=False)
    monkeypatch.setattr(produce, "send", send)
    run(is_second_run=True)

    assert stored(client, name) == rows


def stored(client: BlockingClient, topic: str) -> list[bytes]:
    bootstrap = ",".join(f"{host}:{port}" for host, port in client.cluster._bootstrap)
    told = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    reader = TopicReader(topic_options(told, is_stream=False), RecordRows(RECORDS))
    batches: Iterator[pa.RecordBatch] = (
        batch for task in reader.partitions() for batch in reader.read(task)
    )
    return [value for batch in batches for value in batch.column("value").to_pylist()]


def test_a_producer_that_brokers_have_forgotten_is_not_guessed_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(str(tmp_path))
    ledger.note(3, 0, produce.ProducerIdentity(17, 0))
    assert ledger.identity(3, 0) == (17, 0)
    later = time.time_ns() // 1_000_000 + 21 * 3_600_000
    monkeypatch.setattr("barnabas.pipeline.sink.ledger._now_ms", lambda: later)

    with pytest.raises(ProgressLost, match="21 hours ago"):
        ledger.identity(3, 0)


def test_a_ledger_forgets_who_sent_what_is_done(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path))
    ledger.note(3, 0, produce.ProducerIdentity(17, 0))

    ledger.note_done(3)

    assert [ledger.is_done(batch) for batch in (2, 3, 4)] == [True, True, False]
    assert ledger.identity(3, 0) is None


def copied(
    spark: SparkSession, cluster: Cluster, source: str, target: str, checkpoint: str
) -> None:
    frame: DataFrame = stream_topic(
        spark,
        source,
        cluster.bootstrap,
        checkpoint=checkpoint,
        start="earliest",
        options={"maxOffsetsPerTrigger": 40},
    )
    writer = stream_to_topic(
        frame.select("key", "value"), cluster.bootstrap, target, checkpoint=checkpoint
    )
    available_now(writer)
