"""What a running node says on its metrics listener: status, groups, health, readiness."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from prometheus_client import parser as text
from prometheus_client.openmetrics import parser as openmetrics

from barnabas.client import SyncConsumer, SyncProducer
from barnabas.console.container import readiness_problem
from barnabas.console.development.cluster import Cluster
from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from tests.harness.steady_settings import STEADY
from tests.harness.waiting import eventually

SETTINGS = {**STEADY, "metrics.lag.interval.ms": "200", "log.format": "json"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, settings=SETTINGS, with_metrics=True) as running:
        running.create_topic("orders")
        with SyncProducer(running.bootstrap) as producer:
            producer.send("orders", "two teas")
            producer.send("orders", "one scone")
        first = {"auto.offset.reset": "earliest", "enable.auto.commit": False}
        with SyncConsumer(running.bootstrap, "orders", group="kitchen", config=first) as consumer:
            next(iter(consumer))
            consumer.commit()
        yield running


def asked(cluster: Cluster, node: int, path: str) -> Any:
    with urllib.request.urlopen(f"http://{cluster.node(node).metrics}{path}", timeout=60) as answer:
        return json.load(answer)


def settled(cluster: Cluster) -> dict[int, Any] | None:
    """What all nodes tell, once each of them has come to all that it is to have by itself.

    Not even the answer to a commit means that: the group is in one partition of fifty.
    """
    found = {node: asked(cluster, node, "/status") for node in (1, 2, 3)}
    for status in found.values():
        if not status["lease"]["holds"] or len(status["peers"]) < 2:
            return None
    led = [part for status in found.values() for part in status["offsets_partitions"]]
    standbys = sum(len(status["standbys"]) for status in found.values())
    is_loaded = len(led) == 50 and all(part["standing"] == "owned" for part in led)
    return found if is_loaded and standbys == 100 else None


def test_every_node_tells_who_it_is_and_how_it_stands(cluster: Cluster) -> None:
    found = eventually(lambda: settled(cluster), what="leases, peers, partitions and standbys")
    assert found is not None
    for node, status in found.items():
        assert status["version"] == 1
        assert status["node"]["id"] == node
        assert status["node"]["roles"] == ["broker", "coordinator"]
        assert status["lease"]["kind"] == "beacons"
        assert status["lease"]["remaining_seconds"] > 0
        assert {peer["node"] for peer in status["peers"]} == {1, 2, 3} - {node}
        assert status["zookeeper"]["state"] == "connected"
        (directory,) = status["directories"]
        assert directory["state"] == "online"
        assert directory["free_bytes"] > 0
    assert sum(status["controller"] is not None for status in found.values()) == 1
    led = [part for status in found.values() for part in status["offsets_partitions"]]
    assert sorted(part["partition"] for part in led) == list(range(50))
    assert {part["standing"] for part in led} == {"owned"}
    assert sum(part["groups"] for part in led) == 1
    assert sum(part["offsets"] for part in led) == 1
    standbys = [part for status in found.values() for part in status["standbys"]]
    assert len(standbys) == 100


def test_the_standbys_of_a_quiet_cluster_are_not_behind(cluster: Cluster) -> None:
    def behind() -> int:
        return sum(
            part["behind"]
            for node in (1, 2, 3)
            for part in asked(cluster, node, "/status")["standbys"]
        )

    eventually(lambda: behind() == 0, what="standbys have applied everything")


def test_a_group_is_found_at_its_coordinator_with_lag_and_verdict(cluster: Cluster) -> None:
    def rows() -> list[Any]:
        pages = [asked(cluster, node, "/status/groups?q=kit*") for node in (1, 2, 3)]
        return [row for page in pages for row in page["groups"]]

    def seen() -> list[Any]:
        """The rows of one look: in another one a leader may have been too slow to answer."""
        found = rows()
        is_whole = all(row["seconds"] is not None for row in found)
        return found if is_whole and [row["lag"] for row in found] == [1] else []

    (row,) = eventually(seen, what="the survey has the group")
    assert row["group"] == "kitchen"
    assert row["seconds"] > 0


def test_a_query_that_makes_no_sense_is_told(cluster: Cluster) -> None:
    with pytest.raises(urllib.error.HTTPError) as refusal:
        asked(cluster, 1, "/status/groups?sort=colour")
    assert refusal.value.code == 400
    refusal.value.close()


def test_a_node_is_healthy_and_ready(cluster: Cluster) -> None:
    for node in cluster.nodes:
        url = f"http://{node.metrics}/healthz"
        with urllib.request.urlopen(url, timeout=60) as answer:
            assert answer.read() == b"ok\n"
        host, _, port = node.metrics.rpartition(":")
        eventually(lambda at=(host, int(port)): readiness_problem(*at) is None, what="it is ready")  # type: ignore[misc]


def test_a_node_without_its_zookeeper_is_not_ready_and_says_why(cluster: Cluster) -> None:
    zookeeper = cluster._zookeeper
    assert isinstance(zookeeper, EmbeddedZooKeeper)
    zookeeper.pause()
    try:
        eventually(
            lambda: "ZooKeeper" in (problem_of(cluster, 1) or ""),
            what="the session is suspended",
        )
    finally:
        zookeeper.resume()
    for node in cluster.nodes:  # sessions may have expired on the way: other tests want them all
        eventually(partial(is_ready, cluster, node.id), what=f"node {node.id} is ready again")


def problem_of(cluster: Cluster, node: int) -> str | None:
    host, _, port = cluster.node(node).metrics.rpartition(":")
    return readiness_problem(host, int(port))


def is_ready(cluster: Cluster, node: int) -> bool:
    return problem_of(cluster, node) is None


def test_a_node_that_is_not_there_is_not_ready() -> None:
    assert "does not answer" in (readiness_problem("127.0.0.1", 1) or "")


def test_the_settings_of_a_node_tell_where_its_status_is_and_no_token(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    (future,) = admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, "2")]).values()
    told = future.result(60)
    assert told["metrics.listener"].value == cluster.node(2).metrics
    assert told["metrics.advertised.listener"].value is None
    assert told["metrics.token"].is_sensitive


def scraped(cluster: Cluster, node: int, accept: str) -> str:
    asked = urllib.request.Request(
        f"http://{cluster.node(node).metrics}/metrics", headers={"Accept": accept}
    )
    with urllib.request.urlopen(asked, timeout=60) as answer:
        return str(answer.read().decode())


def families(parser: Any, scrape: str) -> list[Any]:
    return list(parser.text_string_to_metric_families(scrape))


def test_a_scrape_is_understood_in_both_formats_by_the_reference_parsers(cluster: Cluster) -> None:
    plain = families(text, scraped(cluster, 1, "text/plain"))
    opened = families(
        openmetrics, scraped(cluster, 1, "application/openmetrics-text; version=1.0.0")
    )
    lost = {one.name for one in plain} - {one.name for one in opened}
    assert lost == {"barnabas_topic_end_offset_sum", "barnabas_node_info"}  # one is a kind of info
    told = {one.name for one in opened}
    assert {"barnabas_lease_losses", "barnabas_zookeeper_seconds", "barnabas_zookeeper_up"} <= told
    assert {"barnabas_log_directory_free_bytes", "barnabas_standby_behind_records"} <= told


def test_the_log_is_json_once_the_settings_were_read(cluster: Cluster) -> None:
    lines = [json.loads(line) for line in cluster.node(1).log.read_text().splitlines()]
    (serving,) = [line for line in lines if line["event"] == "serving"]
    assert serving["node"] == 1
    assert serving["fields"]["node"] == 1
    assert serving["logger"] == "barnabas.broker.node"
