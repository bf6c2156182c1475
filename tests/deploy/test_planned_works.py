"""The run books that stop nodes, add them, lose ZooKeeper: each on a cluster that is whole again.

Source: docs/spec/console.md §7.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from barnabas.client import SyncProducer
from barnabas.console.development.cluster import Cluster
from barnabas.console.development.node import NodeProcess
from barnabas.console.development.ports import free_ports
from tests.deploy.test_runbooks import SETTINGS, UNDER, shown
from tests.harness.runbook import OpenRunBook, following
from tests.harness.waiting import await_process_end, eventually

pytestmark = pytest.mark.nightly

FEW_COPIES = {
    **SETTINGS,
    "offsets.topic.replication.factor": "2",
    "default.replication.factor": "2",
    "min.insync.replicas": "1",
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
    "controlled.shutdown.enable": "true",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, settings=FEW_COPIES, with_metrics=True) as running:
        running.create_topic("orders", partitions=6)
        with SyncProducer(running.bootstrap) as producer:
            for number in range(60):
                producer.send("orders", f"tea {number}", partition=number % 6)
        yield running


@pytest.fixture
def followed(cluster: Cluster, tmp_path: Path) -> Iterator[OpenRunBook]:
    """Opens a book; at the end each of its commands must have been run, and all be in sync."""
    with following(cluster, cluster.nodes[2], tmp_path) as follow:
        yield follow
    eventually(lambda: not listed(cluster, *UNDER), what="all are in sync again")


def listed(cluster: Cluster, *words: str) -> Any:
    return json.loads(shown(cluster, *words, "--json"))


def begin(node: NodeProcess) -> None:
    node.spawn()
    node.let_serve()
    node.wait_ready()


def test_a_node_is_upgraded(cluster: Cluster, followed: OpenRunBook) -> None:
    node = cluster.nodes[2]
    book = followed("rolling-upgrade", NODE=3, PID=node.pid)
    book.run("Check")
    book.run("Do")
    node.wait_stopped()
    begin(node)
    book.run("Verify")


def test_a_node_is_taken_out_and_comes_back(cluster: Cluster, followed: OpenRunBook) -> None:
    node = cluster.nodes[2]
    book = followed("replace-a-node", NODE=3, PID=node.pid)
    assert "orders" in book.run("Check")
    book.run("Do")
    node.wait_stopped()
    book.run("Verify")
    begin(node)
    book.run("Undo")


def test_a_node_is_added_and_taken_back(
    cluster: Cluster, followed: OpenRunBook, tmp_path: Path
) -> None:
    port, metrics = free_ports(2)
    text = cluster.nodes[0].properties.read_text()
    for name, value in (
        ("broker.id", "4"),
        ("listeners", f"PLAINTEXT://127.0.0.1:{port}"),
        ("log.dirs", str(tmp_path / "data")),
        ("metrics.listener", f"127.0.0.1:{metrics}"),
    ):
        text, count = re.subn(rf"(?m)^{re.escape(name)}=.*$", f"{name}={value}", text)
        assert count == 1, name
    properties = tmp_path / "server.properties"
    properties.write_text(text)
    (tmp_path / "data").mkdir()
    book = followed("add-a-node", NODE=4, PROPERTIES=properties, STATUS=f"127.0.0.1:{metrics}")
    try:
        book.run("Check")
        book.run("Do")
        assert "orders" in shown(cluster, "partitions", "list", "--node", "4")
        book.run("Verify")
        book.run("Undo")
        await_process_end(int((tmp_path / "node.pid").read_text()))
    except BaseException:
        os.kill(int((tmp_path / "node.pid").read_text()), signal.SIGKILL)
        raise


def test_partitions_without_a_leader(cluster: Cluster, followed: OpenRunBook) -> None:
    cluster.create_topic("fragile")
    ((first,),) = [listed(cluster, "partitions", "list", "fragile")]
    leader, (follower,) = first["leader"], set(first["replicas"]) - {first["leader"]}
    leading, following = cluster.nodes[leader - 1], cluster.nodes[follower - 1]
    third = next(node for node in cluster.nodes if node not in (leading, following))
    following.kill()
    eventually(lambda: first_of(third, "fragile")["in_sync"] == [leader], what="it left the set")
    with SyncProducer(f"{leading.address},{third.address}") as producer:
        producer.send("fragile", "lost")
    leading.kill()
    begin(following)
    eventually(lambda: first_of(third, "fragile")["leader"] in (-1, None), what="nobody leads")
    living = f"{third.address},{following.address}"
    book = followed("offline-partitions", BARNABAS_BOOTSTRAP=living, TOPIC="fragile", PARTITION=0)
    assert "fragile" in book.run("Check")
    book.run("Do")
    assert first_of(third, "fragile")["leader"] == follower
    begin(leading)
    book.run("Verify")


def first_of(node: NodeProcess, topic: str) -> Any:
    """The first partition of a topic, as a node that lives knows it."""
    words = ["partitions", "list", topic, "--json", "--bootstrap", node.address]
    command = [sys.executable, "-m", "barnabas.console", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)[0]


def test_zookeeper_is_lost_and_comes_back(cluster: Cluster, followed: OpenRunBook) -> None:
    pid = cluster.zookeeper_pid
    assert pid is not None
    book = followed("lost-zookeeper", ZOOKEEPER=cluster.zookeeper)
    os.kill(pid, signal.SIGSTOP)
    try:
        eventually(lambda: "barnabas_zookeeper_up 0" in book.run("Check"), what="it is noticed")
    finally:
        os.kill(pid, signal.SIGCONT)
    book.run("Verify")


def test_offsets_are_moved_out_of_zookeeper(cluster: Cluster, followed: OpenRunBook) -> None:
    zookeeper = KazooClient(cluster.zookeeper)
    zookeeper.start()
    zookeeper.create("/consumers/classic/offsets/orders/0", b"5", makepath=True)
    book = followed("zookeeper-offsets", ZOOKEEPER=cluster.zookeeper, GROUP="classic")
    book.run("Check")
    book.run("Do")
    assert "classic" in book.run("Verify")
    book.run("Undo")
    assert zookeeper.get("/consumers/classic/offsets/orders/0")[0] == b"5"
    zookeeper.stop()
    zookeeper.close()
