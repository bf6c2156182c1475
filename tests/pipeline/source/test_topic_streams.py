"""Topics as streams: batches, their limits, resumption, and a group that shows the progress."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from barnabas.client.cluster import TopicPartition
from barnabas.console.development.cluster import Cluster
from barnabas.pipeline import cluster_requests
from barnabas.pipeline.blocking_client import BlockingClient
from barnabas.pipeline.frames import stream_topic
from barnabas.pipeline.progress import commit_progress
from tests.pipeline.conftest import Fill
from tests.pipeline.slow_machine import available_now

Places = list[tuple[int, int]]


class Run:
    """Runs a stream of a topic into a Parquet directory again and again, until it has all."""

    def __init__(self, spark: SparkSession, cluster: Cluster, directory: Path) -> None:
        self._spark = spark
        self._bootstrap = cluster.bootstrap
        self.checkpoint = str(directory / "checkpoint")
        self._output = str(directory / "output")

    def __call__(self, topic: str, **options: Any) -> StreamingQuery:
        frame = stream_topic(
            self._spark,
            topic,
            self._bootstrap,
            checkpoint=self.checkpoint,
            start=options.pop("start", "earliest"),
            group=options.pop("group", None),
            options=options,
        )
        writer = frame.writeStream.format("parquet").option("path", self._output)
        return available_now(writer.option("checkpointLocation", self.checkpoint))

    def topic_partitions(self) -> Places:
        frame: DataFrame = self._spark.read.parquet(self._output)
        return sorted((row["partition"], row["offset"]) for row in frame.collect())


def everything(count: int, partitions: int = 2) -> Places:
    return [(partition, offset) for partition in range(partitions) for offset in range(count)]


def test_a_stream_takes_what_is_there_in_batches_of_the_size_asked_for(
    spark: SparkSession, cluster: Cluster, filled: Fill, tmp_path: Path
) -> None:
    run = Run(spark, cluster, tmp_path)

    query = run(filled(50), maxOffsetsPerTrigger=20)

    sizes = [
        progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]
    ]
    assert sizes == [20, 20, 10]
    assert run.topic_partitions() == everything(25)


def test_a_stream_goes_on_where_its_checkpoint_ends(
    spark: SparkSession, cluster: Cluster, filled: Fill, tmp_path: Path
) -> None:
    run = Run(spark, cluster, tmp_path)
    run(filled(20))
    filled(10)

    query = run(filled())

    assert sum(progress["numInputRows"] for progress in query.recentProgress) == 10
    assert run.topic_partitions() == everything(15)


def test_progress_shows_as_the_offsets_of_a_group_once_the_stream_has_ended(
    spark: SparkSession,
    cluster: Cluster,
    filled: Fill,
    client: BlockingClient,
    group: str,
    tmp_path: Path,
) -> None:
    run = Run(spark, cluster, tmp_path)
    name = filled(40)

    run(name, maxOffsetsPerTrigger=20, group=group)
    told = client.run(cluster_requests.committed(client.cluster, group))
    commit_progress(run.checkpoint, cluster.bootstrap, group)
    in_the_end = client.run(cluster_requests.committed(client.cluster, group))

    assert told == {TopicPartition(name, 0): 10, TopicPartition(name, 1): 10}
    assert in_the_end == {TopicPartition(name, 0): 20, TopicPartition(name, 1): 20}


def test_the_progress_of_a_query_is_told_in_offsets_that_other_tools_can_read(
    spark: SparkSession, cluster: Cluster, filled: Fill, tmp_path: Path
) -> None:
    name = filled(20)

    query = Run(spark, cluster, tmp_path)(name)

    source = query.recentProgress[0]["sources"][0]
    assert json.loads(source["endOffset"]) == {name: {"0": 10, "1": 10}}


_PLANS = """
import sys
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark_barnabas import DefaultSource

options = {"kafka.bootstrap.servers": sys.argv[1], "subscribe": sys.argv[2]}
reader = DefaultSource({**options, "startingOffsets": "earliest"}).streamReader(None)
reader.prepareForTriggerAvailableNow()
start = reader.initialOffset()
tasks = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
print(len(tasks), *sys.modules)
"""


def test_a_process_that_plans_a_stream_imports_nothing_that_only_reading_needs(
    cluster: Cluster, filled: Fill
) -> None:
    words = [sys.executable, "-c", _PLANS, cluster.bootstrap, filled(10)]
    ran = subprocess.run(words, capture_output=True, text=True, check=True, timeout=300)

    tasks, *modules = ran.stdout.split()
    assert tasks == "2"
    assert "barnabas.pipeline.source.topic_stream" in modules
    reading = ("pipeline.source.broker_read", "pipeline.source.commit_rows", "client.admin.admin")
    unwanted = {f"barnabas.{name}" for name in (*reading, "protocol.records.columns")}
    assert not {*unwanted, "pyarrow.compute"} & {*modules}
