"""ZooKeeper loses its data under a running node: it says so at once, and waits for them.

Source: docs/spec/cluster.md §1.2.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from kazoo.exceptions import KazooException

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import NewTopic
from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from barnabas.protocol.zookeeper.znodes import BROKER_IDS, CONTROLLER
from benchmarks.barnabas_node import barnabas_node
from tests.harness import znodes
from tests.harness.confluent_client import Confluent
from tests.harness.deployments import await_complete
from tests.harness.raw_connection import addresses_of
from tests.harness.records import numbered
from tests.harness.waiting import eventually

WARNING = "ZooKeeper does not hold cluster"
BEGINNING = {0: "beginning"}


def create(bootstrap: str, topic: str) -> None:
    async def made() -> None:
        async with Admin.of(bootstrap) as admin:
            await admin.create_topics([NewTopic(name=topic, partitions=1)])

    asyncio.run(made())


def known(hosts: str) -> list[str]:
    """Whom a controller may see: none while the ensemble is on its way up."""
    try:
        return znodes.registered_brokers(hosts)
    except KazooException:
        return []


def test_a_zookeeper_that_was_replaced_by_an_empty_one_is_told_and_survived(
    tmp_path: Path, topic: str
) -> None:
    """There was one INFO line, "suspended"; then a controller of the empty tree was elected."""
    data, kept = tmp_path / "zookeeper", tmp_path / "kept"
    settings = {"zookeeper.session.timeout.ms": "3000"}
    log = tmp_path / "node" / "node.log"
    with (
        EmbeddedZooKeeper(data) as zookeeper,
        barnabas_node(tmp_path / "node", zookeeper.hosts, settings=settings) as node,
    ):
        eventually(lambda: "took over" in log.read_text(), within_s=240)
        await_complete(addresses_of(node.bootstrap))
        create(node.bootstrap, topic)
        Confluent().produce(node.bootstrap, topic, numbered(0, 10))
        zookeeper.kill()
        shutil.copytree(data, kept)
        shutil.rmtree(data / "version-2")
        zookeeper.restart()
        eventually(lambda: WARNING in log.read_text(), within_s=240)
        eventually(lambda: "missing znode: /cluster/id" in log.read_text())
        with znodes.session(zookeeper.hosts) as client:
            assert client.exists(CONTROLLER) is None
            assert client.exists(BROKER_IDS) is None
        assert len(Confluent().read(node.bootstrap, topic, BEGINNING)) == 10
        zookeeper.kill()
        shutil.rmtree(data / "version-2")
        shutil.copytree(kept / "version-2", data / "version-2")
        zookeeper.restart()
        eventually(lambda: known(zookeeper.hosts) == ["1"], within_s=240)
        Confluent().produce(node.bootstrap, topic, numbered(10, 10))
        assert len(Confluent().read(node.bootstrap, topic, BEGINNING)) == 20
