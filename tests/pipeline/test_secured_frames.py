"""Spark over TLS and logins with few rights: our source, sinks and jobs, and Spark's connector.

The node is what ``barnabas security init`` makes.
Source: docs/spec/pipeline.md §3.1; docs/spec/security.md §9 (S79).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from barnabas.pipeline.blocking_client import close_clients
from barnabas.pipeline.frames import stream_to_topic, stream_topic
from barnabas.pipeline.jobs import archive
from barnabas.pipeline.progress import commit_progress
from benchmarks.spark_connector import NoConnector
from tests.harness.hardened_node import hardened_node
from tests.harness.needs import MAVEN, skip_without
from tests.harness.secured_node import ALICE, BOB, TRANSACTIONS, SecuredNode
from tests.harness.waiting import eventually
from tests.pipeline.slow_machine import available_now, patiently

COUNT = 40
SCHEMA = "key BINARY, value BINARY"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    with hardened_node(tmp_path_factory.mktemp("secured")) as made:
        yield made
        close_clients()


def login(node: SecuredNode, user: str, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
    """Options with the names of Spark's connector."""
    settings = node.login_settings(user, mechanism)
    return {"kafka.bootstrap.servers": node.login} | {
        f"kafka.{name}": value for name, value in settings.items()
    }


def mutual(node: SecuredNode, user: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": node.mutual} | {
        f"kafka.{name}": value for name, value in node.mutual_settings(user).items()
    }


def written(spark: SparkSession, kind: str, options: dict[str, str], topic: str) -> None:
    rows = spark.createDataFrame([(b"k%d" % n, b"v%d" % n) for n in range(COUNT)], SCHEMA)
    writer = rows.coalesce(1).write.format(kind).mode("append").options(**options)
    writer.option("topic", topic).save()


def read(spark: SparkSession, kind: str, options: dict[str, str], topic: str) -> list[bytes]:
    frame = spark.read.format(kind).options(**options).option("subscribe", topic).load()
    return sorted(bytes(row["value"]) for row in frame.select("value").collect())


EXPECTED = sorted(b"v%d" % n for n in range(COUNT))


@pytest.mark.parametrize("how", ["SCRAM-SHA-256", "SCRAM-SHA-512", "certificate", "file"])
def test_our_source_and_sink_read_and_write_with_few_rights(
    spark: SparkSession, node: SecuredNode, topic: str, how: str
) -> None:
    node.create_topic(topic)
    options = {
        "certificate": lambda: mutual(node, ALICE),
        "file": lambda: {
            "kafka.bootstrap.servers": node.login,
            "commandConfig": str(node.properties(node.login_settings(ALICE), "spark")),
        },
    }.get(how, lambda: login(node, ALICE, how))()
    written(spark, "barnabas", options, topic)
    assert read(spark, "barnabas", options, topic) == EXPECTED


@pytest.mark.parametrize("how", ["login", "certificate"])
def test_sparks_own_connector_does_so_with_the_same_options(
    spark: SparkSession,
    node: SecuredNode,
    connector: list[Path] | NoConnector,
    topic: str,
    how: str,
) -> None:
    if isinstance(connector, NoConnector):
        skip_without(f"no Kafka connector of Spark ({connector})", MAVEN)
    node.create_topic(topic)
    options = login(node, ALICE) if how == "login" else mutual(node, ALICE)
    written(spark, "kafka", options, topic)
    assert read(spark, "kafka", options, topic) == EXPECTED
    assert read(spark, "barnabas", options, topic) == EXPECTED


def test_a_stream_is_copied_in_transactions_and_its_group_is_told(
    spark: SparkSession, node: SecuredNode, topic: str, group: str, tmp_path: Path
) -> None:
    options = login(node, ALICE)
    target = f"{topic}-copy"
    for name in (topic, target):
        node.create_topic(name)
    written(spark, "barnabas", options, topic)
    checkpoint = str(tmp_path / "checkpoint")
    frame = stream_topic(
        spark, topic, node.login,
        checkpoint=checkpoint, start="earliest", group=group, options=options,
    )  # fmt: skip
    told = {**options, "transactionalIdPrefix": f"{TRANSACTIONS}{topic}"}
    writer = stream_to_topic(
        frame.select("key", "value"), node.login, target,
        checkpoint=checkpoint, transactional=True, options=told,
    )  # fmt: skip
    available_now(writer)
    committed = {**options, "kafka.isolation.level": "read_committed"}
    # The commit is decided before its markers are in the partitions.
    found = eventually(lambda: read(spark, "barnabas", committed, target), what="readers see it")
    assert found == EXPECTED
    commit_progress(checkpoint, node.login, group, options=options)
    offsets = node.as_root(lambda admin: admin.committed_offsets(group))
    assert [commit.offset for commit in offsets.values()] == [COUNT]


def test_a_job_takes_the_file_of_the_console(
    spark: SparkSession, node: SecuredNode, topic: str, group: str, tmp_path: Path
) -> None:
    node.create_topic(topic)
    written(spark, "barnabas", login(node, ALICE), topic)
    file = node.properties({**node.login_settings(ALICE), "bootstrap.servers": node.login}, "job")
    parser = argparse.ArgumentParser()
    archive.add_arguments(parser)
    parser.add_argument("--limit", type=int, default=10)
    words = ["--topic", topic, "--out", str(tmp_path / "archive"), "--group", group]
    chosen = parser.parse_args([*words, "--once", "--command-config", str(file)])
    report = patiently(lambda: archive.run(spark, archive.configured(chosen)))
    assert report.findings == 0
    offsets = node.as_root(lambda admin: admin.committed_offsets(group))
    assert [commit.offset for commit in offsets.values()] == [COUNT]


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        ("no rights", "TOPIC_AUTHORIZATION_FAILED"),
        ("a wrong password", "SASL_AUTHENTICATION_FAILED"),
        ("another authority", "certificate refused"),
    ],
)
def test_without_the_right_nothing_is_read_and_the_reason_is_told(
    spark: SparkSession, node: SecuredNode, topic: str, mistake: str, words: str
) -> None:
    node.create_topic(topic)
    options = login(node, BOB if mistake == "no rights" else ALICE)
    if mistake == "a wrong password":
        jaas = node.login_settings(ALICE, password="wrong")["sasl.jaas.config"]
        options["kafka.sasl.jaas.config"] = jaas
    if mistake == "another authority":
        options["kafka.ssl.truststore.location"] = str(node.strange_trust)
    with pytest.raises(PySparkException) as refused:
        read(spark, "barnabas", options, topic)
    assert words in str(refused.value)
    assert node.password(ALICE) not in str(refused.value)
    with pytest.raises(PySparkException) as refused:
        written(spark, "barnabas", options, topic)
    # Who may write to no topic at all is given no producer id.
    assert words.replace("TOPIC", "CLUSTER") in str(refused.value)
    assert node.password(ALICE) not in str(refused.value)


def test_no_plan_and_no_progress_shows_a_password(
    spark: SparkSession, node: SecuredNode, topic: str, tmp_path: Path, capfd: Any
) -> None:
    """In the session that ``spark_session`` makes, whatever way the password was given."""
    node.create_topic(topic)
    options = login(node, ALICE)
    frame = spark.read.format("barnabas").options(**options).option("subscribe", topic).load()
    frame.explain("extended")
    frame.explain("formatted")
    stream = stream_topic(
        spark, topic, node.login,
        checkpoint=str(tmp_path / "c"), start="earliest", options=options,
    )  # fmt: skip
    writer = stream_to_topic(
        stream.select("key", "value"), node.login, topic,
        checkpoint=str(tmp_path / "c"), options=options,
    )  # fmt: skip
    query = available_now(writer)
    query.explain(extended=True)
    shown = "".join(capfd.readouterr()) + str([p.json for p in query.recentProgress])
    shown += str(query.lastProgress) + str(query.exception())
    assert "barnabas" in shown
    assert node.password(ALICE) not in shown
