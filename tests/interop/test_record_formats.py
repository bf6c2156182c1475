"""Every format and codec changes hands: Kafka's files are served here, ours by Kafka.

Kafka 3.9 stores magic 0 and 1 when inter.broker.protocol.version is below 3.0.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from barnabas.console.development.java import find_java
from barnabas.console.log.verify import VerifyReport, verify
from benchmarks.apache_kafka import class_path
from tests.harness.confluent_client import WAIT_S, Confluent
from tests.harness.java_tools import complaints
from tests.harness.kafka_tools import RUN_S
from tests.harness.needs import apache_kafka_jars
from tests.harness.records import Sent
from tests.harness.waiting import eventually
from tests.interop.test_log_handover import apache_kafka, ours

pytestmark = pytest.mark.kafka

CLIENT = Confluent()
CODECS = ("none", "gzip", "snappy", "lz4")
FORMATS = {"m0": "0.9.0", "m1": "0.10.2", "m2": "2.7"}
OLD = {f"{name}-{codec}": version for name, version in FORMATS.items() for codec in CODECS}
TRANSACTIONAL, IDEMPOTENT, COMPACTED = "transactional", "idempotent", "compacted"
TOPICS: Sequence[str] = (*OLD, "m2-zstd", TRANSACTIONAL, IDEMPOTENT, COMPACTED)
T0 = 1_700_000_000_000


def records(topic: str, count: int = 120) -> list[Sent]:
    """With and without keys, values and headers, growing and shrinking."""
    has_headers = not topic.startswith(("m0", "m1"))
    return [
        Sent(
            value=None if number % 11 == 3 else b"value %d " % number * (number % 17),
            key=b"key %d" % (number % 7) if topic == COMPACTED or number % 5 else None,
            headers=[("h", b"%d" % number), ("empty", None)] if has_headers else (),
            timestamp_ms=T0 + number * 1000,
        )
        for number in range(count)
    ]


def create(bootstrap: str, versions: Mapping[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = []
    for topic in TOPICS:
        config = {"segment.bytes": "4096", "index.interval.bytes": "256"}
        if topic in versions:
            config["message.format.version"] = versions[topic]
        if topic == COMPACTED:
            config["cleanup.policy"] = "compact"
        wanted.append(NewTopic(topic, 1, replication_factor=1, config=config))
    for created in admin.create_topics(wanted).values():
        created.result(WAIT_S)


def fill(bootstrap: str) -> None:
    for topic in TOPICS:
        if topic == TRANSACTIONAL:
            transact(bootstrap)
            continue
        settings: dict[str, object] = {"batch.num.messages": 25}
        codec = topic.partition("-")[2]
        settings["compression.type"] = codec or "none"
        settings["enable.idempotence"] = topic == IDEMPOTENT
        CLIENT.produce_with(bootstrap, topic, records(topic), settings)


def transact(bootstrap: str) -> None:
    """One transaction committed, one aborted, one committed."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t"})
    producer.init_transactions(WAIT_S)
    for number in range(3):
        producer.begin_transaction()
        for record in records(TRANSACTIONAL, 20):
            producer.produce(TRANSACTIONAL, key=b"%d" % number, value=record.value)
        producer.flush(WAIT_S)
        if number == 1:
            producer.abort_transaction(WAIT_S)
        else:
            producer.commit_transaction(WAIT_S)


Rows = list[tuple[Any, ...]]


def contents(bootstrap: str, topics: Sequence[str] = TOPICS) -> dict[str, Rows]:
    """Offset, time, key, value and headers of every record, read by one consumer."""
    found: dict[str, Rows] = {topic: [] for topic in topics}
    left = set(topics)
    settings = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.partition.eof": True}
    consumer = Consumer({**settings, "enable.auto.commit": False, "fetch.wait.max.ms": 20})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING) for topic in topics])

    def has_all() -> bool:
        for message in consumer.consume(500, 0.1):
            topic, error = str(message.topic()), message.error()
            if error is None:
                stamp, body = message.timestamp(), (message.key(), message.value())
                found[topic].append((message.offset(), stamp, *body, message.headers()))
            else:
                assert error.code() == KafkaError._PARTITION_EOF
                left.discard(topic)
        return not left

    try:
        eventually(has_all, within_s=240, what="every record")
    finally:
        consumer.close()
    if COMPACTED in found:  # which may be compacted at any time: no more is promised
        newest = {row[2]: row for row in found[COMPACTED]}
        found[COMPACTED] = sorted(row for row in newest.values() if row[3] is not None)
    return found


def transacted(bootstrap: str) -> Rows:
    """The records of both committed transactions; none before the second can be read."""
    found = contents(bootstrap, [TRANSACTIONAL])[TRANSACTIONAL]
    return found if len(found) == 40 else []


def test_every_format_and_codec_that_kafka_stored_is_served_here(tmp_path: Path) -> None:
    with apache_kafka(tmp_path, inter_broker_protocol_version="2.7") as bootstrap:
        create(bootstrap, OLD)
        fill(bootstrap)
        # A transaction is over for the client before its marker is in the log.
        committed = eventually(lambda: transacted(bootstrap), what="the last marker")
        written = contents(bootstrap)
        assert written[TRANSACTIONAL] == committed
        assert all(len(written[topic]) == 120 for topic in (*OLD, "m2-zstd", IDEMPOTENT))
    data = tmp_path / "node-1" / "data"
    report = VerifyReport()
    verify(data, report)
    assert not report.problems
    with ours(tmp_path) as bootstrap:
        assert contents(bootstrap) == written
        for topic in TOPICS:
            CLIENT.produce(bootstrap, topic, [Sent(value=b"after", key=b"after")])
    with apache_kafka(tmp_path, inter_broker_protocol_version="2.7") as bootstrap:
        for topic, found in contents(bootstrap).items():
            assert found[-1][3] == b"after"
            assert found[:-1] == written[topic]


def test_every_codec_that_we_stored_is_served_by_kafka_and_read_by_its_tool(
    tmp_path: Path,
) -> None:
    topics = [topic for topic in TOPICS if topic != TRANSACTIONAL]
    with ours(tmp_path) as bootstrap:
        create(bootstrap, {})
        for topic in topics:
            settings: dict[str, object] = {"batch.num.messages": 25}
            settings["compression.type"] = topic.partition("-")[2] or "none"
            settings["enable.idempotence"] = topic == IDEMPOTENT
            CLIENT.produce_with(bootstrap, topic, records(topic), settings)
        written = contents(bootstrap, topics)
    data = tmp_path / "node-1" / "data"
    assert_kafkas_tool_has_no_complaint(data)
    with apache_kafka(tmp_path) as bootstrap:
        assert contents(bootstrap, topics) == written


def assert_kafkas_tool_has_no_complaint(data: Path) -> None:
    """Run kafka-dump-log over everything; it must find nothing wrong, nor print another thing."""
    files = [path for path in data.glob("*/*") if path.suffix in (".log", ".snapshot")]
    files += [path for path in data.glob("*/*index") if path.stat().st_size]
    command = [
        str(find_java()),
        "-Xmx256m",
        "-XX:+UseSerialGC",
        "-cp",
        class_path(apache_kafka_jars()),
    ]
    command += ["kafka.tools.DumpLogSegments", "--files", ",".join(map(str, sorted(files)))]
    printed = [clean_output([*command, "--deep-iteration"])]
    printed.append(clean_output([*command, "--index-sanity-check"]))
    indexes = [path for path in files if path.suffix.endswith("index")]
    assert printed[1].count("passed sanity check") == len(indexes)
    assert not any("isvalid: false" in text or "invalid bytes" in text for text in printed)


def clean_output(command: Sequence[str]) -> str:
    """What was printed, once nothing was complained of."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=True)
    assert not complaints(done.stderr)
    return done.stdout
