"""Our Spark sink with transactions beside the plain one, and beside Spark's own connector.

    python -m benchmarks.spark_transactions --records 500000 --rounds 3 --server kafka

Each sink copies the same topic, once in a few large batches and once in many small ones, in turns
in one run. Then the two of ours are called as Spark calls them, without Spark, with one record a
task: what a task's requests and files cost. The ratio is the time of a sink to that of the plain
one. Records have a key of 12 bytes and a value of 96. The server is one node, Apache Kafka 3.9 or
ours, and shares this machine.
Source: docs/spec/pipeline.md §2.1.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple
from unittest import mock

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, StructField, StructType

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import NewTopic
from barnabas.console.development.cluster import Cluster
from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from barnabas.pipeline.blocking_client import client_for, close_clients
from barnabas.pipeline.frames import available_now
from barnabas.pipeline.session import spark_session
from barnabas.pipeline.sink.modes import stream_writer
from benchmarks.apache_kafka import kafka_jars, kafka_node
from benchmarks.report import machine
from benchmarks.spark_connector import NoConnector, connector_jars

PARTITIONS: Final = 2
SMALL_BATCHES: Final = 20
LARGE_BATCHES: Final = 4
SMALL_RECORDS: Final = 2_000
"""In all the small batches together: what counts there is what a batch costs, not a record."""
CALLS: Final = 100
WARMING: Final = 10
"""Batches that do not count."""
PLAIN: Final = "plain"
SINKS: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    PLAIN: ("barnabas", {}),
    "transactions": ("barnabas", {"transactional": "true"}),
    "at least once": ("barnabas", {"idempotent": "false"}),
    "connector": ("kafka", {}),
}
"""Format and options of each sink."""


CALLED: Final = [PLAIN, "transactions"]
SCHEMA: Final = StructType([StructField("value", BinaryType())])


class CopyTask(NamedTuple):
    """A topic to copy, and in how many batches."""

    source: str
    records: int
    batches: int


class SinkComparison:
    """One server, one session, the same copy through every sink."""

    spark: SparkSession

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self._servers = {"kafka.bootstrap.servers": bootstrap}
        self._directory = directory
        self._runs = 0

    def fill(self, task: CopyTask) -> None:
        """Create the topic that is copied."""
        self._create(task.source)
        columns = [
            "lpad(cast(id AS string), 12, '0') AS key",
            "repeat(md5(string(id)), 3) AS value",
        ]
        frame = self.spark.range(0, task.records, 1, PARTITIONS).selectExpr(*columns)
        writer = frame.write.format("barnabas").mode("append").options(**self._servers)
        writer.option("topic", task.source).save()

    def copy(self, sink: str, task: CopyTask) -> float:
        """Seconds from the first batch's beginning to the last one's end."""
        self._runs += 1
        target, checkpoint = f"copy-{self._runs}", str(self._directory / str(self._runs))
        self._create(target)
        kind, options = SINKS[sink]
        told = {**self._servers, "subscribe": task.source, "startingOffsets": "earliest"}
        most = str(-(-task.records // task.batches))
        frame = self.spark.readStream.format("barnabas").options(
            **told, maxOffsetsPerTrigger=most, checkpointLocation=checkpoint
        )
        writer = frame.load().select("key", "value").writeStream.format(kind)
        writer = writer.options(**self._servers, **options, topic=target)
        query = available_now(writer.option("checkpointLocation", checkpoint))
        busy = [progress for progress in query.recentProgress if progress["numInputRows"]]
        assert sum(progress["numInputRows"] for progress in busy) == task.records
        spent_ms: int = sum(progress["durationMs"]["triggerExecution"] for progress in busy)
        return spent_ms / 1000

    def sink_options(self, sink: str) -> dict[str, str]:
        """The options of a sink of ours into a topic of its own."""
        self._create(f"called-{sink}")
        told = {"topic": f"called-{sink}", "checkpointLocation": str(self._directory / sink)}
        return {**self._servers, **SINKS[sink][1], **told}

    def note_done(self, sink: str, batch: int) -> None:
        """What Spark writes behind a batch."""
        commits = self._directory / sink / "commits"
        commits.mkdir(parents=True, exist_ok=True)
        (commits / str(batch)).touch()

    def _create(self, topic: str) -> None:
        client = client_for(self._servers["kafka.bootstrap.servers"])
        wanted = NewTopic(name=topic, partitions=PARTITIONS, replication_factor=1)
        client.run(Admin(client.cluster).create_topics([wanted]))


@contextmanager
def server(kind: str, directory: Path) -> Iterator[str]:
    """The address of one node."""
    if kind == "barnabas":
        with Cluster(1, directory / "barnabas") as cluster:
            yield cluster.bootstrap
        return
    with (
        EmbeddedZooKeeper(directory / "zookeeper") as zookeeper,
        kafka_node(kafka_jars(), directory / "kafka", zookeeper.hosts) as node,
    ):
        yield node.bootstrap


class RunningTask:
    """What Spark tells a task: its query, its batch, its number."""

    def __init__(self, query: str, batch: int) -> None:
        self._told = {"sql.streaming.queryId": query, "streaming.sql.batchId": str(batch)}

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802 - Spark's name
        """One of the properties of its job."""
        return self._told.get(name)

    def partitionId(self) -> int:  # noqa: N802 - Spark's name
        """The only task of the batch."""
        return 0


def call(comparison: SinkComparison, batches: int) -> dict[str, list[float]]:
    """Seconds of each batch of one task with one record, by either sink in turns."""
    record = pa.record_batch([pa.array([b"v" * 96])], names=["value"])
    options = {sink: comparison.sink_options(sink) for sink in CALLED}
    times: dict[str, list[float]] = {sink: [] for sink in CALLED}
    for batch in range(batches + WARMING):
        for sink in CALLED if batch % 2 else CALLED[::-1]:
            begun = time.monotonic()
            with mock.patch.object(TaskContext, "get", lambda n=batch: RunningTask("calls", n)):
                writer: Any = stream_writer(options[sink], SCHEMA)
                writer.commit([writer.write(iter([record]))], batch)
            if batch >= WARMING:
                times[sink].append(time.monotonic() - begun)
            comparison.note_done(sink, batch)
    return times


Times = dict[str, dict[str, list[float]]]


def through_spark(comparison: SinkComparison, tasks: Mapping[str, CopyTask], rounds: int) -> Times:
    """Seconds of each copy, in a session that ends with it."""
    sinks, conf = list(SINKS), {"spark.ui.enabled": "false", "spark.driver.memory": "1g"}
    try:
        conf["spark.jars"] = ",".join(map(str, connector_jars()))
    except NoConnector as missing:
        print(f"WITHOUT SPARK'S OWN CONNECTOR: {missing}", file=sys.stderr)
        sinks.remove("connector")
    comparison.spark = spark_session("spark_transactions", "local[2]", conf)
    comparison.spark.sparkContext.setLogLevel("ERROR")
    try:
        for task in tasks.values():
            comparison.fill(task)
        return measure(comparison, tasks, sinks, rounds)
    finally:
        comparison.spark.stop()


def measure(
    comparison: SinkComparison, tasks: Mapping[str, CopyTask], sinks: Sequence[str], rounds: int
) -> Times:
    """Seconds of each copy, in turns, after one round that does not count."""
    times: Times = {name: {sink: [] for sink in sinks} for name in tasks}
    for number in range(rounds + 1):
        for name, task in tasks.items():
            for sink in sinks if number % 2 else sinks[::-1]:
                begun = time.monotonic()
                seconds = comparison.copy(sink, task)
                took = time.monotonic() - begun
                print(f"{name}, {sink}: {seconds:.2f} s of {took:.1f}", file=sys.stderr)
                if number:
                    times[name][sink].append(seconds)
    return times


def report(
    times: Times,
    called: Mapping[str, Sequence[float]],
    tasks: Mapping[str, CopyTask],
    told: Mapping[str, Any],
) -> None:
    """Medians: milliseconds a batch, thousands of records a second, and time to the plain sink."""
    if told["json"]:
        print(json.dumps({"machine": machine(), **told, "seconds": times, "called": called}))
        return
    print(f"{machine()}; server {told['server']}\n")
    print("| batches | sink | ms a batch | k records/s | time to plain |\n|---|---|---|---|---|")
    for name, by_sink in times.items():
        plain = median(by_sink[PLAIN])
        for sink, found in by_sink.items():
            seconds, task = median(found), tasks[name]
            batch_ms, rate = 1000 * seconds / task.batches, task.records / seconds / 1000
            print(f"| {name} | {sink} | {batch_ms:.0f} | {rate:.1f} | {seconds / plain:.2f} |")
    plain = median(called[PLAIN])
    for sink, each in called.items():
        seconds = median(each)
        print(f"| one record, no Spark | {sink} | {1000 * seconds:.1f} | | {seconds / plain:.2f} |")


def main() -> int:
    """Measure and print a table, and with ``--json`` a document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=500_000, help="in the large batches")
    parser.add_argument("--rounds", type=int, default=3, help="0: only without Spark")
    parser.add_argument("--server", choices=("kafka", "barnabas"), default="kafka")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    tasks = {
        "large": CopyTask("large", chosen.records, LARGE_BATCHES),
        "small": CopyTask("small", SMALL_RECORDS, SMALL_BATCHES),
    }
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        with server(chosen.server, directory) as bootstrap:
            comparison = SinkComparison(bootstrap, directory / "checkpoints")
            times = through_spark(comparison, tasks, chosen.rounds) if chosen.rounds else {}
            called = call(comparison, CALLS)
            close_clients()
    report(times, called, tasks, vars(chosen))
    return 0


if __name__ == "__main__":
    sys.exit(main())
