"""Our Spark source and sink beside Spark's own Kafka connector, on the same topics of our cluster.

    python -m benchmarks.spark_source --records 1000000 --rounds 3

Records have a key of 12 bytes and a value of 96. Times are by the clock of this machine, which
runs brokers, JVM and workers at once. Source: docs/spec/pipeline.md §1.4 and §3.5.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from statistics import median
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import NewTopic
from barnabas.console.development.cluster import Cluster
from barnabas.pipeline.blocking_client import client_for, close_clients
from barnabas.pipeline.frames import available_now
from barnabas.pipeline.session import spark_session
from benchmarks.report import machine
from benchmarks.spark_connector import NoConnector, connector_jars

OURS, THEIRS = "barnabas", "kafka"
PARTITIONS = 2
STREAM, SINK = "stream in 5 batches", "sink"

Times = dict[str, dict[str, list[float]]]


class FormatComparison:
    """One cluster, one session, the same work through either format."""

    def __init__(self, spark: SparkSession, bootstrap: str, records: int) -> None:
        self._spark = spark
        self._servers = {"kafka.bootstrap.servers": bootstrap}
        self._records = records
        self._runs = 0

    def fill(self, topic: str) -> None:
        """Create the topic that is read."""
        self._create(topic)
        self._write(OURS, topic)

    def frame(self, kind: str, topic: str, **options: str) -> DataFrame:
        """All records of a topic."""
        told = {**self._servers, "subscribe": topic, **options}
        return self._spark.read.format(kind).options(**told).load()

    def count(self, kind: str, topic: str) -> None:
        """How many records there are, in the way that either offers."""
        options = {"columns": "offset"} if kind == OURS else {}
        assert self.frame(kind, topic, **options).count() == self._records

    def read(self, kind: str, topic: str) -> None:
        """Every column of every record."""
        self.frame(kind, topic).write.format("noop").mode("overwrite").save()

    def aggregate(self, kind: str, topic: str) -> None:
        """The newest offset of each partition."""
        options = {"columns": "partition,offset"} if kind == OURS else {}
        rows = self.frame(kind, topic, **options).groupBy("partition").agg({"offset": "max"})
        assert len(rows.collect()) == PARTITIONS

    def stream(self, kind: str, topic: str) -> None:
        """Everything there is, in batches of a fifth."""
        most = str(self._records // 5)
        told = {**self._servers, "subscribe": topic, "startingOffsets": "earliest"}
        frame = (
            self._spark.readStream.format(kind).options(**told, maxOffsetsPerTrigger=most).load()
        )
        available_now(frame.writeStream.format("noop"))

    def write(self, kind: str, _: str) -> None:
        """As many records into a new topic."""
        self._runs += 1
        topic = f"written-{self._runs}"
        self._create(topic)
        self._write(kind, topic)

    def _write(self, kind: str, topic: str) -> None:
        columns = [
            "lpad(cast(id AS string), 12, '0') AS key",
            "repeat(md5(string(id)), 3) AS value",
        ]
        frame = self._spark.range(0, self._records, 1, PARTITIONS).selectExpr(*columns)
        writer = frame.write.format(kind).mode("append").options(**self._servers)
        writer.option("topic", topic).save()

    def _create(self, topic: str) -> None:
        client = client_for(self._servers["kafka.bootstrap.servers"])
        wanted = NewTopic(name=topic, partitions=PARTITIONS, replication_factor=1)
        client.run(Admin(client.cluster).create_topics([wanted]))


def measure(
    bench: FormatComparison, kinds: list[str], rounds: int, only: Collection[str] = ()
) -> Times:
    """Seconds of each kind of work, or of ``only``, in turns; the first round does not count."""
    works: Mapping[str, Callable[[str, str], None]] = {
        "count()": bench.count,
        "max(offset) by partition": bench.aggregate,
        "all columns": bench.read,
        STREAM: bench.stream,
        SINK: bench.write,
    }
    works = {name: work for name, work in works.items() if not only or name in only}
    times: Times = {name: {kind: [] for kind in kinds} for name in works}
    for number in range(rounds + 1):
        for name, work in works.items():
            for kind in kinds if number % 2 else kinds[::-1]:
                begun = time.monotonic()
                work(kind, "read")
                if number:
                    times[name][kind].append(time.monotonic() - begun)
    return times


@contextmanager
def running(conf: Mapping[str, str], records: int) -> Iterator[FormatComparison]:
    """A cluster of one node, a session of two cores, and a topic with all records."""
    with Cluster(1) as cluster:
        spark = spark_session("spark_source", "local[2]", dict(conf))
        try:
            spark.sparkContext.setLogLevel("ERROR")
            bench = FormatComparison(spark, cluster.bootstrap, records)
            bench.fill("read")
            yield bench
        finally:
            spark.stop()
            close_clients()


def main() -> int:
    """Measure and print a table, and with ``--json`` a document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    kinds, conf = [OURS, THEIRS], {"spark.ui.enabled": "false", "spark.driver.memory": "1g"}
    try:
        conf["spark.jars"] = ",".join(map(str, connector_jars()))
    except NoConnector as missing:
        print(f"WITHOUT SPARK'S OWN CONNECTOR: {missing}", file=sys.stderr)
        kinds = [OURS]
    with running(conf, chosen.records) as bench:
        times = measure(bench, kinds, chosen.rounds)
    report(times, chosen.records, as_json=chosen.json)
    return 0


def report(times: Times, records: int, *, as_json: bool) -> None:
    """Rates are of medians; the ratio is ours to theirs, more than 1 is faster."""
    rates: dict[str, dict[str, Any]] = {
        work: {kind: records / median(found) for kind, found in by_kind.items()}
        for work, by_kind in times.items()
    }
    if as_json:
        print(json.dumps({"machine": machine(), "records": records, "per_second": rates}))
        return
    print(f"{machine()}; {records} records\n")
    print("| work | ours, k records/s | connector | ratio |\n|---|---|---|---|")
    for work, by_kind in rates.items():
        ours, theirs = by_kind[OURS] / 1000, by_kind.get(THEIRS, 0) / 1000
        ratio = f"{ours / theirs:.2f}" if theirs else "-"
        print(f"| {work} | {ours:.0f} | {theirs:.0f} | {ratio} |")


if __name__ == "__main__":
    sys.exit(main())
