"""Nodes that cannot prove the cluster's secret, and nodes whose id another has: refused at once.

Source: docs/spec/cluster.md §1.2 and §2.14.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.console.development.cluster import Cluster
from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from barnabas.console.development.ports import LOOPBACK
from barnabas.protocol.zookeeper.znodes import (
    BROKER_IDS,
    CONTROLLER,
    CONTROLLER_EPOCH,
    BrokerRegistration,
)
from benchmarks.barnabas_node import barnabas_node
from tests.harness import znodes
from tests.harness.steady_settings import STEADY
from tests.harness.waiting import eventually

EXIT_S = 120.0
SECRET = "cluster.secret"


@pytest.fixture(scope="module")
def ours() -> Iterator[Cluster]:
    with Cluster(2, settings=STEADY) as cluster:
        yield cluster


def rule(cluster: Cluster) -> tuple[bytes | None, bytes | None, list[str]]:
    """Who is controller, in which epoch, and who is registered."""
    with znodes.session(cluster.zookeeper) as client:
        return (
            client.get(CONTROLLER)[0],
            client.get(CONTROLLER_EPOCH)[0],
            sorted(client.get_children(BROKER_IDS)),
        )


@pytest.mark.parametrize(
    ("settings", "cause"),
    [
        pytest.param({SECRET: "wrong"}, "is not the cluster's", id="wrong"),
        pytest.param({}, "this node has none", id="none"),
    ],
)
def test_a_node_that_cannot_prove_the_secret_changes_nothing_and_says_why(
    ours: Cluster, tmp_path: Path, settings: dict[str, str], cause: str
) -> None:
    """It deposed the controller about once a second, or served nobody without a word."""
    before = rule(ours)
    stranger = barnabas_node(tmp_path, ours.zookeeper, node_id=9, settings=settings)
    stranger.launch()
    assert stranger.wait_or_kill(EXIT_S) == 1, stranger.last_words()
    assert f"{cause}" in stranger.last_words()
    assert "or zookeeper.connect leads to" in stranger.last_words()
    assert "registered node=9" not in stranger.last_words()
    assert rule(ours) == before


def test_a_node_waits_while_the_registered_ones_are_frozen_and_starts_once_they_are_gone(
    tmp_path: Path,
) -> None:
    """Frozen, they refuse nobody; when they go on, they might."""
    # Its ticks are long, so that the session of the frozen node's stand-in lasts.
    with (
        EmbeddedZooKeeper(tick_ms=3_000) as zookeeper,
        socket.create_server((LOOPBACK, 0)) as frozen,
    ):
        registration = BrokerRegistration(
            endpoints={"INTERNAL": frozen.getsockname()[:2]}, timestamp=0
        )
        node = barnabas_node(tmp_path, zookeeper.hosts, node_id=2)
        with znodes.session(zookeeper.hosts) as client:
            path = f"{BROKER_IDS}/1"
            client.create(path, registration.to_json(), ephemeral=True, makepath=True)
            node.launch()
            try:
                eventually(
                    lambda: "waiting for a registered node" in node.last_words(), within_s=120
                )
                assert client.get_children(BROKER_IDS) == ["1"]
                client.delete(path)
                eventually(lambda: client.get_children(BROKER_IDS) == ["2"], within_s=120)
                node.wait_until_listening()
            finally:
                node.stop()


def test_an_id_that_a_live_node_has_is_refused_without_waiting_for_its_session(
    tmp_path: Path,
) -> None:
    with Cluster(1, settings=STEADY) as alone:
        twin = barnabas_node(tmp_path, alone.zookeeper, node_id=1, settings={SECRET: alone.secret})
        twin.launch()
        assert twin.wait_or_kill(EXIT_S) == 1, twin.last_words()
        assert "broker.id=1 is another node's, which answers: node 1 at " in twin.last_words()
        assert "held by another session" not in twin.last_words()
