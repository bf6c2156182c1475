"""Transactions go from Apache Kafka to us and back: what one leaves open the other ends."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas.console.development.java import find_java
from benchmarks.apache_kafka import class_path
from tests.harness.committed_readers import READERS, Row
from tests.harness.confluent_client import Confluent
from tests.harness.kafka_tools import RUN_S
from tests.harness.needs import apache_kafka_jars
from tests.harness.records import Sent
from tests.harness.waiting import eventually
from tests.interop.test_log_handover import apache_kafka, ours

pytestmark = pytest.mark.kafka

WAIT_S = 180.0
TOOL = "org.apache.kafka.tools.TransactionsCommand"
CLIENT = Confluent()


def transactional(bootstrap: str, name: str) -> Any:
    """A producer whose transactions the coordinator leaves open for longer than this test."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": 900_000,  # the longest that is allowed
            "linger.ms": 0,
        }
    )
    producer.init_transactions(WAIT_S)
    return producer


def send(producer: Any, topic: str, *values: str) -> None:
    """Records in a transaction of the producer's, each in the log when this returns."""
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value.encode(), partition=0)
        assert producer.flush(WAIT_S) == 0


def await_end(bootstrap: str, topic: str, end: int) -> None:
    """A transaction is over for the client before its marker is in the log."""
    settings = {"group.id": "unused", "isolation.level": "read_uncommitted"}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    place = TopicPartition(topic, 0)
    try:
        eventually(
            lambda: consumer.get_watermark_offsets(place, WAIT_S)[1] == end, what=f"the end {end}"
        )
    finally:
        consumer.close()


def read(bootstrap: str, topic: str, isolation: str, end: int) -> list[str]:
    """What all three clients agree that the partition holds."""
    found: list[list[Row]] = [reader(bootstrap, topic, 0, isolation, end) for reader in READERS]
    assert found[0] == found[1] == found[2]
    return [value.decode() for _, value in found[0]]


def described(bootstrap: str, topic: str, folder: Path) -> list[list[str]]:
    """The rows of ``kafka-transactions.sh describe-producers``."""
    logging = folder / "log4j.properties"
    logging.write_text("log4j.rootLogger=OFF\n")
    command = [str(find_java()), "-Xmx128m", f"-Dlog4j.configuration=file:{logging}"]
    command += ["-cp", class_path(apache_kafka_jars()), TOOL]
    command += ["--bootstrap-server", bootstrap, "describe-producers"]
    command += ["--topic", topic, "--partition", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if line.strip()]
    heading = next(index for index, line in enumerate(lines) if line[0] == "ProducerId")
    return lines[heading + 1 :]


def test_what_kafka_leaves_open_is_ended_here_and_goes_on_there(tmp_path: Path, topic: str) -> None:
    with ours(tmp_path) as bootstrap:
        CLIENT.create_topic(bootstrap, topic, 1)

    with apache_kafka(tmp_path) as bootstrap:
        committed, aborted, left = (
            transactional(bootstrap, f"{topic}-{name}") for name in ("a", "b", "c")
        )
        send(committed, topic, "kept 0", "kept 1")
        send(aborted, topic, "gone 2", "gone 3")
        committed.commit_transaction(WAIT_S)
        await_end(bootstrap, topic, 5)
        aborted.abort_transaction(WAIT_S)
        await_end(bootstrap, topic, 6)
        send(left, topic, "open 6")
        send(committed, topic, "kept 7")
        committed.commit_transaction(WAIT_S)
        await_end(bootstrap, topic, 9)
        del committed, aborted, left
    everything = ["kept 0", "kept 1", "gone 2", "gone 3", "open 6", "kept 7"]

    with ours(tmp_path) as bootstrap:
        assert read(bootstrap, topic, "read_uncommitted", 9) == everything
        assert read(bootstrap, topic, "read_committed", 6) == ["kept 0", "kept 1"]
        starts = sorted(row[-1] for row in described(bootstrap, topic, tmp_path))
        assert starts == ["6", "None", "None"]
        CLIENT.produce(bootstrap, topic, [Sent(b"plain 9")])
        assert read(bootstrap, topic, "read_committed", 6) == ["kept 0", "kept 1"]
        heir = transactional(bootstrap, f"{topic}-c")  # which ends what was open
        await_end(bootstrap, topic, 11)
        send(heir, topic, "kept 11")
        heir.commit_transaction(WAIT_S)
        await_end(bootstrap, topic, 13)
        del heir
        kept = ["kept 0", "kept 1", "kept 7", "plain 9", "kept 11"]
        assert read(bootstrap, topic, "read_committed", 13) == kept

    with apache_kafka(tmp_path) as bootstrap:
        assert read(bootstrap, topic, "read_committed", 13) == kept
        again = transactional(bootstrap, f"{topic}-c")  # whom Kafka knows from our log
        send(again, topic, "gone 13")
        again.abort_transaction(WAIT_S)
        await_end(bootstrap, topic, 15)
        del again

    with ours(tmp_path) as bootstrap:
        assert read(bootstrap, topic, "read_committed", 15) == kept
        assert {row[-1] for row in described(bootstrap, topic, tmp_path)} == {"None"}
