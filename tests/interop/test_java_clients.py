"""The Java client in Kafka's own programs, 3.9 and 4.1: groups, offsets, codecs, a lost node.

BARNABAS_INTEROP_SERVER=kafka runs them against Apache Kafka, which must pass them as well.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness.deployments import Deployment, await_leaders
from tests.harness.java_tools import (
    CONSUMER,
    CONSUMER_SPEED,
    OFFSETS,
    PRODUCER_SPEED,
    TOPICS,
    VERIFIABLE_CONSUMER,
    VERIFIABLE_PRODUCER,
    JavaTools,
)
from tests.harness.kafka_tools import GROUPS
from tests.harness.stored_batches import stored_codecs

pytestmark = pytest.mark.kafka

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LINES = 200


@pytest.fixture
def at(cluster: Deployment) -> tuple[str, str]:
    return "--bootstrap-server", cluster.bootstrap


@pytest.fixture
def replicated(cluster: Deployment, java: JavaTools, at: tuple[str, str], topic: str) -> str:
    """A topic of three partitions on three nodes."""
    counts = ("--partitions", "3", "--replication-factor", "3")
    java.run(TOPICS, *at, "--create", "--topic", topic, *counts)
    await_leaders(cluster, topic, 3)
    return topic


def test_records_go_through_every_codec_with_keys_and_headers(
    cluster: Deployment, java: JavaTools, at: tuple[str, str], replicated: str
) -> None:
    parse = ("parse.key=true", "parse.headers=true", "headers.delimiter=|")
    shown = ("print.key=true", "print.headers=true", "print.partition=true", "print.offset=true")
    sent = []
    for codec in CODECS:
        lines = [f"colour:red,size:{number}|key-{number}\t{codec}" for number in range(LINES)]
        sent += [f"colour:red,size:{number}\tkey-{number}\t{codec}" for number in range(LINES)]
        settings = [word for one in parse for word in ("--property", one)]
        java.run(
            java.producer,
            *at,
            "--topic",
            replicated,
            "--compression-codec",
            codec,
            *settings,
            given="\n".join(lines),
        )
    wanted = [word for one in shown for word in ("--property", one)]
    limit = ("--max-messages", str(len(sent)), "--timeout-ms", "120000")
    read = java.run(
        CONSUMER, *at, "--topic", replicated, "--from-beginning", *limit, *wanted
    ).splitlines()
    assert sorted(line.split("\t", 2)[2] for line in read) == sorted(sent)
    places = {tuple(line.split("\t", 2)[:2]) for line in read}
    assert len(places) == len(sent)
    found = set[str]().union(*(stored_codecs(cluster, replicated, index) for index in range(3)))
    assert found >= set(CODECS) - {"none"}


@pytest.mark.nightly
def test_a_group_continues_is_described_reset_and_deleted(
    java: JavaTools, at: tuple[str, str], replicated: str, group: str, tmp_path: Path
) -> None:
    of = ("--topic", replicated, "--group", group)
    consume = (*at, *of, "--timeout-ms", "120000")

    def lags() -> list[list[str]]:
        shown = java.run(GROUPS, *at, "--describe", "--group", group)
        return [line.split() for line in shown.splitlines() if line.startswith(group)]

    for first in (0, 100):
        lines = [f"line {number}" for number in range(first, first + 100)]
        java.run(java.producer, *at, "--topic", replicated, given="\n".join(lines))
        read = java.run(CONSUMER, *consume, "--from-beginning", "--max-messages", "100")
        assert sorted(read.splitlines()) == sorted(lines)
    assert group in java.run(GROUPS, *at, "--list").splitlines()
    assert "Empty" in java.run(GROUPS, *at, "--describe", "--group", group, "--state")
    assert sum(int(row[3]) for row in lags()) == 200
    assert {row[5] for row in lags()} == {"0"}

    exported = java.run(
        GROUPS, *at, "--reset-offsets", *of, "--to-current", "--export", "--dry-run"
    )
    java.run(GROUPS, *at, "--reset-offsets", *of, "--to-earliest", "--execute")
    assert sum(int(row[5]) for row in lags()) == 200
    java.run(
        GROUPS, *at, "--reset-offsets", *of, "--to-datetime", "2020-01-01T00:00:00.000", "--execute"
    )
    assert sum(int(row[5]) for row in lags()) == 200
    plan = tmp_path / "plan.csv"
    plan.write_text(exported)
    from_file = ("--from-file", str(plan), "--execute")
    java.run(GROUPS, *at, "--reset-offsets", "--group", group, *from_file)
    assert {row[5] for row in lags()} == {"0"}

    java.run(GROUPS, *at, "--delete-offsets", *of)
    assert lags() == []
    java.run(GROUPS, *at, "--delete", "--group", group)
    assert group not in java.run(GROUPS, *at, "--list").splitlines()


@pytest.mark.nightly
def test_offsets_are_found_by_every_kind_of_time(
    java: JavaTools, at: tuple[str, str], replicated: str
) -> None:
    java.run(java.producer, *at, "--topic", replicated, given="\n".join("abcdefgh"))

    def total(time: str) -> int:
        shown = java.run(OFFSETS, *at, "--topic", replicated, "--time", time)
        rows = [line.split(":") for line in shown.splitlines()]
        return sum(int(offset) for _, _, offset in rows if offset)

    assert total("latest") == 8
    assert total("earliest") == 0
    assert total("earliest-local") == 0
    assert total("0") == 0
    assert total("max-timestamp") <= 7


@pytest.mark.nightly
def test_the_programs_that_measure_speed_come_to_their_end(
    java: JavaTools, cluster: Deployment, at: tuple[str, str], replicated: str, group: str
) -> None:
    settings = (f"bootstrap.servers={cluster.bootstrap}", "acks=all", "compression.type=lz4")
    size = ("--num-records", "5000", "--record-size", "100", "--throughput", "-1")
    sent = java.run(PRODUCER_SPEED, "--topic", replicated, *size, "--producer-props", *settings)
    assert "5000 records sent" in sent
    read = java.run(
        CONSUMER_SPEED, *at, "--topic", replicated, "--group", group, "--messages", "5000"
    )
    assert read.splitlines()[-1].split(", ")[4] == "5000"


def test_the_verifiable_programs_see_every_record_acknowledged_read_and_committed(
    java: JavaTools, at: tuple[str, str], replicated: str, group: str
) -> None:
    count = ("--max-messages", "1000")
    said = java.run(VERIFIABLE_PRODUCER, *at, "--topic", replicated, *count, "--acks", "-1")
    events = [json.loads(line) for line in said.splitlines()]
    sent = {
        (event["partition"], event["offset"]): event["value"]
        for event in events
        if event["name"] == "producer_send_success"
    }
    assert len(sent) == 1000
    assert not [event for event in events if event["name"] == "producer_send_error"]

    strategy = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
    of = ("--topic", replicated, "--group-id", group, "--assignment-strategy", strategy)
    said = java.run(VERIFIABLE_CONSUMER, *at, *of, *count, "--verbose")
    events = [json.loads(line) for line in said.splitlines()]
    read = {
        (event["partition"], event["offset"]): event["value"]
        for event in events
        if event["name"] == "record_data"
    }
    assert read == sent
    commits = [event for event in events if event["name"] == "offsets_committed"]
    assert commits
    assert all(event["success"] for event in commits)
    shown = java.run(GROUPS, *at, "--describe", "--group", group)
    rows = [line.split() for line in shown.splitlines() if line.startswith(group)]
    assert {row[5] for row in rows} == {"0"}
