"""The run books: every command of every book, on a cluster to which that has happened.

Source: docs/spec/console.md §7. Some are nightly; works on nodes are in test_planned_works.py.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import confluent_kafka.admin
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions

from barnabas.client import SyncProducer
from barnabas.console.development.cluster import Cluster
from tests.harness.coordinators import coordinator
from tests.harness.raw_calls import commit_offsets
from tests.harness.raw_connection import RawConnection
from tests.harness.runbook import BOOKS, SECTIONS, OpenRunBook, following
from tests.harness.steady_settings import STEADY
from tests.harness.waiting import eventually

SETTINGS = {
    "events.topic.enable": "true",
    "metrics.lag.interval.ms": "200",
    **STEADY,
    "offsets.commit.timeout.ms": "60000",
    "replica.lag.time.max.ms": "10000",
}
ADMIN: Final[Any] = confluent_kafka.admin
UNDER: Final = ("partitions", "list", "--under-replicated")


@pytest.mark.parametrize("name", sorted(path.stem for path in BOOKS.glob("*.md")))
def test_a_book_says_sign_check_do_verify_and_undo(name: str) -> None:
    text = (BOOKS / f"{name}.md").read_text()
    if name == "README":
        others = {path.name for path in BOOKS.glob("*.md")} - {"README.md"}
        assert set(re.findall(r"\((\S+\.md)\)", text)) == others
    else:
        assert tuple(re.findall(r"^## (\w+)$", text, re.MULTILINE)) == SECTIONS


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, settings=SETTINGS, with_metrics=True) as running:
        running.create_topic("orders", partitions=2)
        with SyncProducer(running.bootstrap) as producer:
            for number in range(40):
                producer.send("orders", f"tea {number}", partition=number % 2)
        yield running


@pytest.fixture
def followed(cluster: Cluster, tmp_path: Path) -> Iterator[OpenRunBook]:
    """Opens books; at the end each of their commands must have been run."""
    with following(cluster, cluster.nodes[0], tmp_path) as follow:
        yield follow


def committed(cluster: Cluster, group: str, offsets: dict[int, int]) -> str:
    """A group that has committed these in `orders`."""
    addresses = [("127.0.0.1", node.port) for node in cluster.nodes]
    with RawConnection(coordinator(addresses, group)) as link:
        assert set(commit_offsets(link, group, "orders", offsets).values()) == {0}
    return group


def offsets(cluster: Cluster, group: str) -> dict[int, int]:
    """What it has committed in `orders`."""
    admin = ADMIN.AdminClient({"bootstrap.servers": cluster.bootstrap})
    (found,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {one.partition: one.offset for one in found.result(60).topic_partitions}


def test_a_late_group(cluster: Cluster, followed: OpenRunBook) -> None:
    group = committed(cluster, "late", {0: 5, 1: 5})
    book = followed("late-group", GROUP=group, TOPIC="orders")
    assert "late" in book.run("Check")
    book.run("Do")
    assert offsets(cluster, group) == {0: 20, 1: 20}
    book.run("Verify")
    book.run("Undo")
    assert offsets(cluster, group) == {0: 5, 1: 5}


@pytest.mark.nightly
def test_a_poisoned_group(cluster: Cluster, followed: OpenRunBook) -> None:
    group = committed(cluster, "poisoned", {0: 7, 1: 3})
    book = followed("poisoned-group", GROUP=group, TOPIC="orders", PARTITION=0, OFFSET=7)
    assert "tea 14" in book.run("Check")
    book.run("Do")
    assert offsets(cluster, group) == {0: 8, 1: 3}
    book.run("Verify")
    book.run("Undo")
    assert offsets(cluster, group) == {0: 7, 1: 3}


@pytest.mark.nightly
def test_a_wrong_reset(
    cluster: Cluster, followed: OpenRunBook, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("wrong")
    group = committed(cluster, "reset", {0: 9, 1: 9})
    words = ("groups", "reset", group, "--all-topics", "--to-latest", "--execute")
    shown(cluster, *words, "--undo-file", str(directory / "undo.json"))
    book = followed("wrong-reset", GROUP=group)
    changes = eventually(lambda: re.findall(r"\b[0-9a-f]{12}\b", book.run("Check")), what="it")
    book.values["CHANGE"] = changes[0]
    book.run("Do")
    assert offsets(cluster, group) == {0: 9, 1: 9}
    book.run("Verify")
    book.run("Undo")
    assert offsets(cluster, group) == {0: 20, 1: 20}


def coordinating(cluster: Cluster, group: str) -> int:
    addresses = [("127.0.0.1", node.port) for node in cluster.nodes]
    _, port = coordinator(addresses, group)
    return next(node.id for node in cluster.nodes if node.port == port)


def test_a_hot_coordinator(cluster: Cluster, followed: OpenRunBook) -> None:
    group = committed(cluster, "hot", {0: 1})
    before = coordinating(cluster, group)
    book = followed("hot-coordinator", GROUP=group, NODE=before % 3 + 1)
    book.run("Check")
    book.run("Do")
    eventually(lambda: coordinating(cluster, group) == before % 3 + 1, what="it moved")
    book.run("Verify")
    book.run("Undo")
    eventually(lambda: coordinating(cluster, group) == before, what="it moved back")


@pytest.mark.nightly
def test_offsets_that_are_not_loaded(cluster: Cluster, followed: OpenRunBook) -> None:
    committed(cluster, "unloaded", {0: 1})
    node = cluster.nodes[0]
    place = next(iter((node.directory / "data").glob("__consumer_offsets-*")))
    index = place.name.rpartition("-")[2]
    (found,) = json.loads(
        shown(cluster, "partitions", "list", f"__consumer_offsets:{index}", "--json")
    )
    other = found["leader"] % 3 + 1
    book = followed("offsets-not-loaded", DIRECTORY=place.parent, PARTITION=index, NODE=other)
    for section in SECTIONS:
        book.run(section)


def test_a_full_disk(cluster: Cluster, followed: OpenRunBook) -> None:
    book = followed("disk-full", TOPIC="orders")
    assert "barnabas_log_directory_free_bytes" in book.run("Check")
    book.run("Do")
    assert "3600000" in book.run("Verify")
    book.run("Undo")


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["audit-lost", "survey-old", "flapping-controller"])
def test_a_book_that_only_looks(name: str, cluster: Cluster, followed: OpenRunBook) -> None:
    committed(cluster, "looked-at", {0: 1})
    url = f"http://{cluster.nodes[0].metrics}"
    book = followed(name)
    eventually(lambda: _is_surveyed(url), what="a look at groups")
    for section in SECTIONS:
        book.run(section)


def _is_surveyed(url: str) -> bool:
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
        return "barnabas_group_survey_time_seconds" in answer.read().decode()


@pytest.mark.nightly
def test_a_node_that_is_down(cluster: Cluster, followed: OpenRunBook) -> None:
    node = cluster.nodes[2]
    node.kill()
    living = ",".join(one.address for one in cluster.nodes[:2])
    book = followed("node-down", BARNABAS_BOOTSTRAP=living, STATUS=node.metrics, NODE=3)
    eventually(lambda: "orders" in book.run("Check"), what="replicas are missing")
    node.spawn()
    node.let_serve()
    node.wait_ready()
    eventually(
        lambda: not json.loads(shown(cluster, *UNDER, "--json")), what="all are in sync again"
    )
    book.run("Verify")


def shown(cluster: Cluster, *words: str) -> str:
    """What a command prints."""
    command = [sys.executable, "-m", "barnabas.console", *words, "--bootstrap", cluster.bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
