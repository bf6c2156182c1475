"""What a console changes in a cluster besides offsets, on Barnabas and on Apache Kafka 3.9.

Source: docs/spec/console.md §0 (decision 5) and §2.3.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.client.admin.admin import Admin
from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from benchmarks.barnabas_node import barnabas_node
from tests.harness.kafka_alone import kafka_alone
from tests.harness.steady_settings import STEADY
from tests.harness.web_console import reader_of
from tests.harness.web_operations import PASSWORD, Steps, all_steps

SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "log.retention.ms": "-1",
    "transaction.partition.verification.enable": "false",
}


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A node of ours with an authorizer."""
    with EmbeddedZooKeeper() as zookeeper:
        directory = tmp_path_factory.mktemp("own")
        node = barnabas_node(directory, zookeeper.hosts, settings={**STEADY, **SETTINGS})
        try:
            node.launch()
            node.wait_until_listening()
            yield f"127.0.0.1:{node.port}"
        finally:
            node.stop()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with kafka_alone(tmp_path_factory.mktemp("kafka"), **SETTINGS) as bootstrap:
        yield bootstrap


@pytest.mark.parametrize("cluster", ["own", pytest.param("kafka", marks=pytest.mark.kafka)])
async def test_every_change_is_planned_done_read_again_recorded_and_keeps_secrets(
    cluster: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG", logger="barnabas")
    bootstrap = request.getfixturevalue(cluster)
    audit = tmp_path / "audit.jsonl"
    async with (
        Admin.of(bootstrap) as admin,
        reader_of(bootstrap, undo_directory=tmp_path, audit_file=audit) as reader,
    ):
        steps = await all_steps(reader, admin, f"changed-{cluster}")
        history = await reader.json("/history.json")
        assert any("delete topic" in line["what"] for line in history["changes"])
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    asked = {line["change"] for line in lines if "what" in line and "change" in line}
    outcomes = {line["change"]: line["outcome"] for line in lines if "outcome" in line}
    assert set(outcomes) <= asked
    assert set(outcomes.values()) == {"done, and read again"}
    assert all(line["principal"] == "token via console" for line in lines)
    told = [*steps.seen, audit.read_text(), caplog.text]
    assert not any(PASSWORD in text for text in told)


async def test_a_change_that_the_cluster_has_overtaken_is_refused_and_a_new_plan_offered(
    own: str,
) -> None:
    async with Admin.of(own) as admin, reader_of(own) as reader:
        steps = Steps(reader, admin)
        await steps.done("/topic-create", name="overtaken", partitions="1")
        plan = await steps.plan("/topic-partitions", name="overtaken", count="4")
        await steps.done("/topic-partitions", name="overtaken", count="3")
        late = await steps.apply(plan)
        assert late.status_code == 409
        assert "/topic-partitions?plan=1" in late.text
        twice = await steps.apply(plan)
        assert twice.status_code == 409
        assert "used already" in twice.text
        (topic,) = await admin.describe_topics(["overtaken"])
        assert len(topic.partitions) == 3


async def test_an_audit_file_that_cannot_be_written_keeps_every_change_from_being_made(
    own: str, tmp_path: Path
) -> None:
    audit = tmp_path / "missing" / "audit.jsonl"
    async with Admin.of(own) as admin, reader_of(own, audit_file=audit) as reader:
        steps = Steps(reader, admin)
        refused = await steps.apply(await steps.plan("/topic-create", name="unrecorded"))
        assert refused.status_code == 502
        assert "nothing was changed" in refused.text
        assert "unrecorded" not in {topic.name for topic in await admin.list_topics()}
