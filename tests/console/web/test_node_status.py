"""What nodes say of themselves, where they say it, and pages where they say nothing.

Source: docs/spec/console.md §2.2 and §2.3 (leases, coordinator).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import Committed, NewTopic
from barnabas.client.cluster import TopicPartition
from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from barnabas.console.development.ports import LOOPBACK, free_ports
from barnabas.console.web.watch.node_status import number, part, rows, text, whole
from benchmarks.barnabas_node import barnabas_node
from tests.harness.deployments import await_leaders_at, is_apache_kafka
from tests.harness.fixtures import Deploy
from tests.harness.raw_connection import addresses_of
from tests.harness.steady_settings import STEADY
from tests.harness.waiting import eventually
from tests.harness.web_console import reader_of

pytestmark = pytest.mark.skipif(is_apache_kafka(), reason="Kafka has no such data")


@pytest.fixture
def telling(tmp_path: Path) -> Iterator[str]:
    """The addresses of two nodes that tell their status."""
    with EmbeddedZooKeeper() as zookeeper:
        nodes = [
            barnabas_node(
                tmp_path / str(number),
                zookeeper.hosts,
                node_id=number,
                settings={
                    **STEADY,
                    "metrics.listener": f"{LOOPBACK}:{port}",
                    "offsets.topic.replication.factor": "2",
                    "offsets.topic.num.partitions": "4",
                },
            )
            for number, port in enumerate(free_ports(2), start=1)
        ]
        try:
            for node in nodes:
                node.launch()
            for node in nodes:
                node.wait_until_listening()
            bootstrap = ",".join(node.bootstrap for node in nodes)
            admin = AdminClient({"bootstrap.servers": bootstrap})
            eventually(
                lambda: len(admin.list_topics(timeout=60).brokers) == len(nodes),
                what="the controller knows the nodes",
            )
            yield bootstrap
        finally:
            for node in nodes:
                node.stop()


async def test_leases_standings_and_standbys_are_told_by_the_nodes(
    telling: str, topic: str, group: str
) -> None:
    async with Admin.of(telling) as admin:
        await admin.create_topics([NewTopic(name=topic, partitions=1)])
        await asyncio.to_thread(await_leaders_at, addresses_of(telling), topic, 1)
        await admin.alter_offsets(group, {TopicPartition(topic, 0): Committed(offset=0)})
    async with reader_of(telling) as reader:
        found = await reader.json("/leases.json")
        assert [row["node"] for row in found["nodes"]] == [1, 2]
        for row in found["nodes"]:
            assert row["is_told"], row
            assert row["holds"] is True
            assert row["started_ms"] > 1_700_000_000_000
        page = (await reader.get("/leases")).text
        assert "held" in page
        assert "does not tell" not in page
        document: dict[str, Any] = {}
        while not document.get("is_complete"):  # a standby follows behind the commit
            document = await reader.json("/coordinator.json")
            document["is_complete"] = all(
                row["standing"] and row["standbys"][0]["behind"] == 0
                for row in document["partitions"]
            )
            reader.console.logins.ask_anew()
        assert {row["standing"] for row in document["partitions"]} == {"owned"}


async def test_a_node_that_tells_nothing_says_so(deploy_fresh: Deploy) -> None:
    cluster = await asyncio.to_thread(deploy_fresh, 1)
    async with reader_of(cluster.bootstrap) as reader:
        (row,) = (await reader.json("/leases.json"))["nodes"]
        assert (row["is_told"], row["problem"]) == (False, None)
        assert "set metrics.listener" in (await reader.get("/leases")).text


def test_what_a_later_release_tells_otherwise_is_not_known() -> None:
    status = {"lease": {"holds": "yes"}, "peers": [1, {"missed": 2}], "node": []}
    assert part(status, "lease", "holds", "more") is None
    assert part(status, "node", "id") is None
    assert rows(status, "peers") == [{"missed": 2}]
    assert rows(status, "lease") == []
    assert (number(True), whole(1.5), text(7), number(1.5)) == (None, None, None, 1.5)
