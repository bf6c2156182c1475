"""The console on Apache Kafka 3.9: every page, a reset and its undo without Kafka's own history.

Source: docs/spec/console.md §0 (decision 1) and §2.2.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.client import Producer
from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import Committed, NewTopic
from barnabas.client.cluster import TopicPartition
from barnabas.console.web.pages.registry import PAGES
from tests.harness.kafka_alone import kafka_alone
from tests.harness.web_console import reader_of
from tests.harness.web_pages import OF_THE_SESSION, path_of

pytestmark = pytest.mark.kafka

TOPIC, GROUP = "orders", "kitchen"
PLACE = TopicPartition(TOPIC, 0)
NAMED = {"topic": TOPIC, "group": GROUP}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with kafka_alone(tmp_path_factory.mktemp("kafka"), **{
        "offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "5",
    }) as bootstrap:  # fmt: skip
        yield bootstrap


async def test_every_page_and_a_reset_with_its_undo_work_on_apache_kafka(
    kafka: str, tmp_path: Path
) -> None:
    async with Admin.of(kafka) as admin:
        await admin.create_topics([NewTopic(name=TOPIC, partitions=1, replication_factor=1)])
        async with Producer(kafka) as producer:
            for number in range(10):
                await producer.send(TOPIC, f"tea {number}".encode(), key=b"kim")
        await admin.alter_offsets(GROUP, {PLACE: Committed(offset=4)})
        audit = tmp_path / "audit.jsonl"
        async with reader_of(kafka, undo_directory=tmp_path, audit_file=audit) as reader:
            for page in PAGES:
                answer = await reader.get(path_of(page, NAMED))
                assert answer.status_code == (404 if page in OF_THE_SESSION else 200), answer.text
            (row,) = (await reader.json(f"/group.json?name={GROUP}"))["partitions"]
            assert (row["committed"], row["lag"]) == (4, 6)
            (broker,) = (await reader.json("/brokers.json"))["brokers"]
            assert broker["is_controller"]
            assert broker["total_bytes"] > broker["free_bytes"] > 0
            plan = (await reader.json(f"/change.json?group={GROUP}&way=to-earliest"))["plan"]
            assert plan["replays"]["records"] == 4
            done = await reader.post("/change/apply", {"plan": plan["id"], "reason": "again"})
            assert (await admin.committed_offsets(GROUP))[PLACE].offset == 0
            change = done.headers["location"].rpartition("=")[2]
            plan = (await reader.json(f"/undo.json?change={change}"))["plan"]
            await reader.post("/change/apply", {"plan": plan["id"]})
            assert (await admin.committed_offsets(GROUP))[PLACE].offset == 4
        lines = [json.loads(line) for line in audit.read_text().splitlines()]
        assert lines[0]["change"] == change
