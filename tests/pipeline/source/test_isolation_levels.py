"""Both isolation levels beside Spark's own Kafka connector, on transactions that Kafka made.

Source: docs/spec/transactions.md §5.2; docs/spec/pipeline.md §3.1.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from barnabas.client.cluster import TopicPartition
from barnabas.console.development.cluster import Cluster
from barnabas.pipeline.blocking_client import client_for
from barnabas.pipeline.cluster_requests import offsets_at
from barnabas.pipeline.source.offsets_json import LATEST
from barnabas.pipeline.source.options import READ_COMMITTED
from benchmarks.spark_connector import NoConnector
from tests.harness.confluent_client import Confluent
from tests.harness.deployments import is_apache_kafka
from tests.harness.kafka_alone import WAIT_S, open_transaction
from tests.harness.needs import MAVEN, skip_without
from tests.harness.records import Sent
from tests.harness.steady_settings import STEADY
from tests.harness.transaction_data import LEVELS, PARTITIONS, TOPIC, Shown, end, restore, shown
from tests.harness.waiting import eventually
from tests.pipeline.new_topics import create_topic
from tests.pipeline.slow_machine import available_now, patiently

FORMATS = ("kafka", "barnabas")


@pytest.fixture(autouse=True)
def jars(connector: list[Path] | NoConnector) -> None:
    if isinstance(connector, NoConnector):
        skip_without(f"no Kafka connector of Spark ({connector})", MAVEN)


class Reads:
    """One topic through either format."""

    def __init__(self, spark: SparkSession, bootstrap: str, topic: str, directory: Path) -> None:
        self._spark = spark
        self._told = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
        self._directory = directory

    def batch(self, kind: str, level: str, **more: str) -> list[Shown]:
        """What a frame has."""
        told = {**self._told, "kafka.isolation.level": level, **more}
        frame = self._spark.read.format(kind).options(**told).load()
        return patiently(lambda: _shown(frame))

    def stream(self, kind: str, level: str, most: int) -> tuple[list[Shown], list[Any]]:
        """What a stream has written by now that takes what is there, and where its batches ended.

        Run again it goes on where it was.
        """
        told = {**self._told, "kafka.isolation.level": level}
        told |= {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(most)}
        frame = self._spark.readStream.format(kind).options(**told).load()
        place = self._directory / f"{kind}-{level}"
        writer = frame.writeStream.format("parquet").option("path", f"{place}-rows")
        query = available_now(writer.option("checkpointLocation", f"{place}-checkpoint"))
        ends = [progress["sources"][0]["endOffset"] for progress in query.recentProgress]
        rows = _shown(self._spark.read.parquet(f"{place}-rows"))
        return rows, [json.loads(found) if isinstance(found, str) else found for found in ends]


def _shown(frame: DataFrame) -> list[Shown]:
    rows = frame.select("partition", "offset", "key", "value").collect()
    return sorted(
        Shown(row["partition"], row["offset"], bytes(row["key"] or b""), bytes(row["value"]))
        for row in rows
    )


@pytest.fixture(scope="module")
def taken_over(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A node of ours on the directory of Kafka's, with a transaction that nobody ends."""
    directory = tmp_path_factory.mktemp("taken-over")
    restore(directory)
    with Cluster(1, directory, settings=STEADY) as cluster:
        yield cluster


@pytest.mark.skipif(is_apache_kafka(), reason="takes a directory over from Kafka")
@pytest.mark.parametrize("level", LEVELS)
def test_both_read_of_kafkas_transactions_what_its_consumers_were_given(
    spark: SparkSession, taken_over: Cluster, tmp_path: Path, level: str
) -> None:
    """T5.10, through Spark; a range may begin and end within a transaction that was aborted."""
    reads = Reads(spark, taken_over.bootstrap, TOPIC, tmp_path)
    for kind in FORMATS:
        assert reads.batch(kind, level) == shown(level)
    part = {TOPIC: {"0": 8, "1": 5}}, {TOPIC: {"0": 9, "1": 7}}
    edges = dict(zip(("startingOffsets", "endingOffsets"), map(json.dumps, part), strict=True))
    found = [reads.batch(kind, level, **edges) for kind in FORMATS]
    assert found[0] == found[1]


@pytest.mark.skipif(is_apache_kafka(), reason="takes a directory over from Kafka")
@pytest.mark.parametrize("level", LEVELS)
def test_both_stream_kafkas_transactions_in_the_same_batches_up_to_the_same_end(
    spark: SparkSession, taken_over: Cluster, tmp_path: Path, level: str
) -> None:
    """T5.10, in a stream: batches of nothing but gaps neither hang nor fail."""
    reads = Reads(spark, taken_over.bootstrap, TOPIC, tmp_path)

    (theirs, their_ends), (ours, our_ends) = (reads.stream(kind, level, most=9) for kind in FORMATS)

    assert ours == theirs == shown(level)
    assert our_ends == their_ends
    assert our_ends[-1] == {TOPIC: {str(number): end(level, number) for number in PARTITIONS}}


def test_committed_readers_wait_at_an_open_transaction_and_go_on_behind_it(
    spark: SparkSession, transactional: str, tmp_path: Path, topic: str
) -> None:
    client = Confluent()
    create_topic(transactional, topic, 1)
    client.produce(transactional, topic, [Sent(b"plain 0", b"")])
    gone = open_transaction(transactional, f"{topic}-a", topic, "gone 1", "gone 2")
    gone.abort_transaction(WAIT_S)
    reads = Reads(spark, transactional, topic, tmp_path)
    await_stable_end(transactional, topic, 4)
    late = open_transaction(transactional, f"{topic}-b", topic, "late 4", "late 5")
    client.produce(transactional, topic, [Sent(b"plain 6", b"")])

    for kind in FORMATS:
        assert values(reads.batch(kind, "read_uncommitted")) == EVERYTHING
        assert values(reads.batch(kind, "read_committed")) == EVERYTHING[:1]
        rows, ends = reads.stream(kind, "read_committed", most=2)
        assert values(rows) == EVERYTHING[:1]
        assert ends[-1] == {topic: {"0": 4}}
    late.commit_transaction(WAIT_S)
    await_stable_end(transactional, topic, 8)
    for kind in FORMATS:
        rows, ends = reads.stream(kind, "read_committed", most=2)
        assert values(rows) == [EVERYTHING[0], *EVERYTHING[3:]]
        assert ends[-1] == {topic: {"0": 8}}


def await_stable_end(bootstrap: str, topic: str, offset: int) -> None:
    """A transaction is over for its client before its marker is in the log."""
    client, wanted = client_for(bootstrap), {TopicPartition(topic, 0): LATEST}

    def ends() -> list[int]:
        return list(client.run(offsets_at(client.cluster, wanted, READ_COMMITTED)).values())

    eventually(lambda: ends() == [offset], what=f"{topic} is stable up to {offset}")


EVERYTHING = [b"plain 0", b"gone 1", b"gone 2", b"late 4", b"late 5", b"plain 6"]


def values(rows: list[Shown]) -> list[bytes]:
    return [row.value for row in rows]
