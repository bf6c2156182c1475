"""Committed offsets as frames: out of the offsets topic, out of its files, out of ZooKeeper."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import EqualTo

from barnabas.client.cluster import TopicPartition
from barnabas.client.zookeeper.kazoo_session import connect
from barnabas.console.development.cluster import Cluster
from barnabas.pipeline import cluster_requests
from barnabas.pipeline.blocking_client import BlockingClient
from barnabas.pipeline.frames import (
    read_commits,
    read_segments,
    read_zookeeper_offsets,
    stream_commits,
)
from barnabas.pipeline.source.layout import RECORDS
from barnabas.pipeline.source.rows import RecordRows
from barnabas.pipeline.source.segment_reader import FilteringSegmentReader, segment_options
from barnabas.protocol.zookeeper import znodes
from tests.harness.confluent_client import Confluent
from tests.harness.waiting import eventually
from tests.pipeline.conftest import Fill
from tests.pipeline.slow_machine import available_now

Read = Callable[..., DataFrame]

COLUMNS = ["group", "topic", "partition", "offset", "metadata"]


def commit(client: BlockingClient, group: str, topic: str, offset: int, note: str = "") -> None:
    topic_partition = {TopicPartition(topic, 0): offset}
    client.run(cluster_requests.commit(client.cluster, group, topic_partition, note))


def log_directories(cluster: Cluster) -> str:
    return ",".join(str(node.directory / "data") for node in cluster.nodes)


def test_every_commit_of_a_group_is_a_row(
    spark: SparkSession, cluster: Cluster, filled: Fill, client: BlockingClient, group: str
) -> None:
    name = filled()
    for offset, note in ((3, ""), (5, "nöte"), (4, "")):
        commit(client, group, name, offset, note)

    frame = read_commits(spark, cluster.bootstrap).where(f"group = '{group}'")
    rows = frame.orderBy("source_offset").collect()

    assert [tuple(row[name] for name in COLUMNS) for row in rows] == [
        (group, name, 0, 3, ""),
        (group, name, 0, 5, "nöte"),
        (group, name, 0, 4, ""),
    ]
    assert {row["is_tombstone"] for row in rows} == {False}
    assert {row["expire_ts"] for row in rows} == {None}
    age = datetime.now(UTC) - rows[0]["commit_ts"].astimezone(UTC)
    assert timedelta(0) <= age < timedelta(minutes=10)
    assert len({row["source_partition"] for row in rows}) == 1


def test_deleted_offsets_are_tombstones_without_an_offset(
    spark: SparkSession, cluster: Cluster, filled: Fill, client: BlockingClient, group: str
) -> None:
    name = filled(4)
    member = Confluent().join(cluster.bootstrap, group, name)
    try:
        eventually(member.poll, within_s=120, what="records of the group")
        member.commit()
    finally:
        member.close()
    delete_group(cluster.bootstrap, group)

    frame = read_commits(spark, cluster.bootstrap).where(f"group = '{group}'")
    groups = read_commits(spark, cluster.bootstrap, kind="groups").where(f"group = '{group}'")

    tombstones = frame.where("is_tombstone").collect()
    assert tombstones
    assert {(row["topic"], row["offset"], row["commit_ts"]) for row in tombstones} == {
        (name, None, None)
    }
    history = groups.orderBy("source_offset").collect()
    assert history[-1]["is_tombstone"]
    stable = [row for row in history if row["members"]]
    assert stable[0]["protocol_type"] == "consumer"
    assert stable[0]["members"][0]["client_id"] == "rdkafka"


def test_commits_are_streamed_as_they_are_made(
    spark: SparkSession,
    cluster: Cluster,
    filled: Fill,
    client: BlockingClient,
    group: str,
    tmp_path: Path,
) -> None:
    name, checkpoint = filled(), str(tmp_path / "checkpoint")

    def run() -> None:
        frame = stream_commits(spark, cluster.bootstrap, checkpoint=checkpoint)
        writer = frame.writeStream.format("parquet").option("path", str(tmp_path / "out"))
        available_now(writer.option("checkpointLocation", checkpoint))

    commit(client, group, name, 1)
    run()
    commit(client, group, name, 2)
    run()

    frame = spark.read.parquet(str(tmp_path / "out")).where(f"group = '{group}'")
    assert [row["offset"] for row in frame.orderBy("source_offset").collect()] == [1, 2]


def test_segment_files_hold_the_records_that_the_broker_serves(
    spark: SparkSession, cluster: Cluster, read: Read, filled: Fill
) -> None:
    name = filled(60, codec="zstd")
    filled(10)

    served = read(subscribe=name)
    stored = read_segments(spark, log_directories(cluster), topic=name)

    assert stored.schema == served.schema
    assert stored.count() == 70
    assert stored.exceptAll(served).count() == 0
    assert stored.where("partition = 1 and offset >= 5").count() == 30
    assert (
        read_segments(spark, log_directories(cluster), topic=name, columns=["offset"]).count() == 70
    )


def test_commits_are_read_from_files_with_no_broker(
    spark: SparkSession, cluster: Cluster, filled: Fill, client: BlockingClient, group: str
) -> None:
    name = filled()
    commit(client, group, name, 7)

    frame = read_commits(spark, path=log_directories(cluster)).where(f"group = '{group}'")

    assert [row["offset"] for row in frame.collect()] == [7]


def test_a_damaged_segment_is_an_error_unless_what_is_before_it_will_do(
    spark: SparkSession, cluster: Cluster, filled: Fill, tmp_path: Path
) -> None:
    name = filled(10, count=1)
    filled(10)
    (log,) = [
        path
        for node in cluster.nodes
        for path in (node.directory / "data" / f"{name}-0").glob("*.log")
    ]
    data = bytearray(log.read_bytes())
    data[-3] ^= 1
    copy = tmp_path / f"{name}-0" / log.name
    copy.parent.mkdir()
    copy.write_bytes(data)

    with pytest.raises(PySparkException, match="checksum at byte"):
        read_segments(spark, str(tmp_path)).count()
    lenient = read_segments(spark, str(tmp_path), options={"failOnDataLoss": "false"})
    assert lenient.count() == 10


def test_segments_that_filters_rule_out_are_not_opened(tmp_path: Path) -> None:
    for partition, base in ((0, 0), (0, 50), (0, 80), (1, 0)):
        path = tmp_path / f"t-{partition}" / f"{base:020}.log"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
    options = segment_options({"mode": "segments", "path": str(tmp_path)})
    reader = FilteringSegmentReader(options, RecordRows(RECORDS))
    offset = EqualTo(("offset",), 60)

    left = list(reader.pushFilters([EqualTo(("partition",), 0), offset]))

    assert left == [offset]
    files = [segment for task in reader.partitions() for segment in task.value]
    assert [(file.topic_partition.partition, file.base_offset) for file in files] == [(0, 50)]


def test_copies_of_a_log_in_two_directories_are_both_read(tmp_path: Path) -> None:
    for node in ("a", "b"):
        path = tmp_path / node / "t-0" / f"{0:020}.log"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x")
    options = segment_options({"mode": "segments", "path": f"{tmp_path}/*"})

    tasks = FilteringSegmentReader(options, RecordRows(RECORDS)).partitions()

    assert [len(task.value) for task in tasks] == [2]


def test_a_segment_that_is_being_written_ends_before_the_cut_entry(
    spark: SparkSession, cluster: Cluster, filled: Fill, tmp_path: Path
) -> None:
    name = filled(10, count=1)
    filled(10)
    (log,) = [
        path
        for node in cluster.nodes
        for path in (node.directory / "data" / f"{name}-0").glob("*.log")
    ]
    copy = tmp_path / f"{name}-0" / log.name
    copy.parent.mkdir()
    copy.write_bytes(log.read_bytes()[:-5])

    assert read_segments(spark, f"{tmp_path}/*").count() == 10


def test_the_offsets_of_classic_consumers_are_read_from_zookeeper(
    spark: SparkSession, cluster: Cluster, group: str
) -> None:
    topic = f"{group}-topic"
    offsets = {0: b"12", 1: b"34", 10: b"none"}
    asyncio.run(put_offsets(cluster.zookeeper, group, topic, offsets))

    frame = read_zookeeper_offsets(spark, cluster.zookeeper, groups=f"^{group}$")

    rows = frame.orderBy("partition").collect()
    assert [(row["group"], row["topic"], row["partition"], row["offset"]) for row in rows] == [
        (group, topic, 0, 12),
        (group, topic, 1, 34),
        (group, topic, 10, None),
    ]
    assert [row["owner"] for row in rows] == ["me-0", None, None]
    assert {row["version"] for row in rows} == {0}
    assert rows[0]["modified"].astimezone(UTC) > datetime(2020, 1, 1, tzinfo=UTC)


async def put_offsets(hosts: str, group: str, topic: str, offsets: dict[int, bytes]) -> None:
    session = await connect(hosts)
    try:
        for partition, data in offsets.items():
            path = znodes.consumer_offset_path(group, topic, partition)
            await session.create(path, data, parents=True)
        await session.create(znodes.consumer_owner_path(group, topic, 0), b"me-0", parents=True)
    finally:
        await session.close()


def delete_group(bootstrap: str, group: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.delete_consumer_groups([group]).values():
        done.result(60)
