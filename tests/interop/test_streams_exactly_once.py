"""A Kafka Streams program with exactly_once_v2: two instances count words, and one is killed.

BARNABAS_INTEROP_SERVER=kafka runs it against Apache Kafka, which must pass it as well.
Source: docs/spec/transactions.md §2, §4 and §7.
"""

from __future__ import annotations

import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import kafka
import pytest

from barnabas.console.development.java import find_java
from benchmarks.apache_kafka import class_path
from tests.harness.confluent_client import Confluent
from tests.harness.deployments import Deployment, create_topic
from tests.harness.go_programs import SOURCES
from tests.harness.needs import maven_jars, program
from tests.harness.records import Sent
from tests.harness.waiting import eventually

PROGRAM = SOURCES.parent / "matrix" / "JavaStreams.java"
PARTITIONS = 2
WORDS = 10
EACH = 40
"""How often each word is sent in each of three portions."""
RUNNING = '"RUNNING"\n'
LIBRARY = Confluent()


class Streams:
    """An instance of the program."""

    def __init__(self, classes: Path, jars: Path, *given: str) -> None:
        path = f"{classes}:{class_path(jars)}"
        java = [str(find_java()), "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        self._process = subprocess.Popen(
            [*java, "-cp", path, PROGRAM.stem, *given],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def end(self) -> None:
        if self._process.poll() is None:
            self.kill()

    def wait_running(self) -> None:
        assert self._process.stdout is not None
        assert RUNNING in self._process.stdout

    def close(self) -> None:
        self._process.communicate(timeout=120)
        assert self._process.returncode == 0

    def kill(self) -> None:
        """As ``kill -9`` does."""
        self._process.kill()
        self._process.communicate()


Start = Callable[..., Streams]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts instances with a folder for their state; those that still run end with the test."""
    jars = maven_jars("kafka-streams", "3.9.1")
    javac = program("javac", package="default-jdk-headless")
    classes = ["-cp", class_path(jars), "-d", str(tmp_path)]
    subprocess.run([javac, *classes, str(PROGRAM)], check=True)
    started: list[Streams] = []

    def begin(*given: str) -> Streams:
        state = tmp_path / f"state-{len(started)}"
        started.append(Streams(tmp_path, jars, *given, str(state)))
        return started[-1]

    yield begin
    for one in started:
        one.end()


@pytest.mark.nightly
def test_two_instances_of_a_streams_program_count_each_word_once_though_one_is_killed(
    cluster: Deployment, topic: str, group: str, start: Start
) -> None:
    counts = f"{topic}-counts"
    for name in (topic, counts):
        create_topic(cluster, LIBRARY, name, PARTITIONS, 3)

    named = (cluster.bootstrap, group, topic, counts)

    def produce() -> None:
        words = [b"word-%d" % (number % WORDS) for number in range(WORDS * EACH)]
        records = [Sent(word, partition=at // WORDS % PARTITIONS) for at, word in enumerate(words)]
        LIBRARY.produce(cluster.bootstrap, topic, records)

    first = start(*named)
    produce()
    await_counts(cluster, counts, WORDS * EACH)
    second = start(*named)
    second.wait_running()
    produce()
    await_counts(cluster, counts, WORDS * EACH + 1)
    first.kill()
    produce()
    await_counts(cluster, counts, WORDS * EACH * 3)
    second.close()
    found: dict[bytes, list[int]] = defaultdict(list)
    for partition in range(PARTITIONS):
        for value in committed(cluster, counts, partition):
            word, count = value.split(b" ")
            found[word].append(int(count))
    assert dict(found) == {b"word-%d" % word: list(range(1, 3 * EACH + 1)) for word in range(WORDS)}


def await_counts(cluster: Deployment, topic: str, count: int) -> None:
    eventually(
        lambda: sum(len(committed(cluster, topic, one)) for one in range(PARTITIONS)) >= count,
        within_s=180,
        what=f"{count} counts",
    )


def committed(cluster: Deployment, topic: str, partition: int) -> list[bytes]:
    """The values that a reader of committed records is given, up to the last stable offset."""
    at = kafka.TopicPartition(topic, partition)
    with closing(
        kafka.KafkaConsumer(
            bootstrap_servers=cluster.bootstrap,
            enable_auto_commit=False,
            isolation_level="read_committed",
        )
    ) as consumer:
        consumer.assign([at])
        end = consumer.end_offsets([at])[at]
        consumer.seek(at, 0)
        values: list[bytes] = []

        def is_at_end() -> bool:
            polled = consumer.poll(timeout_ms=100)
            values.extend(record.value for records in polled.values() for record in records)
            return bool(consumer.position(at) >= end)

        eventually(is_at_end, what=f"the end at {end}")
    return values
