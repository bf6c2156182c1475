"""A ZooKeeper in trouble for less than a session takes nothing away from a healthy cluster.

Clients commit and fetch offsets, produce with acks=all and fetch records all the while: not one
answer is anything but success. Source: docs/spec/reliability.md §3.1 (c'); docs/beacons.md points
11 to 13; docs/controller.md, "A lost connection".
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from barnabas.console.development.cluster import Cluster
from barnabas.console.development.ports import LOOPBACK
from benchmarks import slow_disk
from benchmarks.cluster_view import OFFSETS_TOPIC, ClusterView
from benchmarks.slow_disk import SlowDisk
from benchmarks.stalled_cluster import (
    FOLLOWER_KILLED,
    LEADER_KILLED,
    RESTART,
    ClusterKind,
    Site,
    ZooKeeperFault,
    frozen_disk,
    frozen_server,
    running,
    stall,
)
from benchmarks.stalled_cluster import slow_disk as slowed
from benchmarks.steady_clients import SteadyCommitter
from benchmarks.zookeeper_servers import ZooKeepers
from tests.chaos.offset_load import commit_with_metadata
from tests.harness.confluent_client import Confluent
from tests.harness.coordinators import coordinator
from tests.harness.needs import skip_without
from tests.harness.raw_calls import NO_ERROR, find_coordinator
from tests.harness.raw_connection import Address, Closed, RawConnection
from tests.harness.waiting import eventually
from tests.harness.znodes import data

TOPIC = "t"
GROUPS = [f"group-{number}" for number in range(6)]
WAIT_S = 120.0
ANSWER_S = 60.0
LONG = {"zookeeper.session.timeout.ms": "24000", "beacon.timeout.ms": "2000"}
"""The longest stall is a second below what such a session bears (docs/beacons.md). And a lease that
does not end when a node gets no processor for half a second; a stall is longer all the same."""
LONG_TICK_MS = 1_200
BUSY = {
    "auto.leader.rebalance.enable": "false",
    "beacon.timeout.ms": "5000",
    "offsets.commit.timeout.ms": "60000",
    "zookeeper.session.timeout.ms": "60000",
}
"""Beside other tests a node may get no processor for seconds, and a ZooKeeper need half a minute to
start: neither ends a lease, a session or a commit. What stalls does so for longer than a lease."""
BUSY_TICK_MS = 3_000
SHORT = {"zookeeper.session.timeout.ms": "4000"}
SHORT_S = 4.0
SHORT_TICK_MS = 500

FROZEN = frozen_server(30.0, leads=False)
"""For longer than a session: the nodes connected to it must find another server."""

KINDS = [ClusterKind(nodes, beacons) for nodes in (1, 2, 3) for beacons in (True, False)]


def named(kind: ClusterKind) -> str:
    return f"{kind.nodes}-{'beacons' if kind.beacons else 'sessions'}"


every_kind = pytest.mark.parametrize("kind", KINDS, ids=named)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SlowDisk]:
    if reason := slow_disk.why_not():
        skip_without(f"no disk of our own: {reason}", "run as root, with loop devices")
    with SlowDisk(tmp_path) as own:
        yield own


def check_untroubled(
    kind: ClusterKind,
    zookeepers: ZooKeepers,
    faults: Sequence[ZooKeeperFault],
    settings: Mapping[str, str] = LONG,
) -> None:
    """Each fault strikes once; no client is told anything but success, and nothing is lost."""
    with (
        tempfile.TemporaryDirectory(prefix="stalls-") as directory,
        running(kind, zookeepers, Path(directory), settings) as site,
    ):
        began = time.monotonic()
        for fault in faults:
            fault.strike(site)
            site.await_progress()
            assert site.clients.others(began) == Counter(), f"{fault}\n{last_words(site)}"
            site.await_rest()
        assert site.judge() == []
        assert site.clients.others(began) == Counter(), last_words(site)
        assert [server.exit_code for server in site.servers] == [None] * kind.nodes


def last_words(site: Site) -> str:
    """The ends of the nodes' logs."""
    return "\n\n".join(server.last_words() for server in site.servers)


def test_three_nodes_go_on_while_zookeeper_answers_nothing() -> None:
    with ZooKeepers(tick_ms=BUSY_TICK_MS) as zookeepers:
        check_untroubled(ClusterKind(3), zookeepers, [stall(8.0)], BUSY)


def test_without_beacons_a_node_goes_on_through_a_stall_and_a_restart_of_zookeeper() -> None:
    with ZooKeepers(tick_ms=BUSY_TICK_MS) as zookeepers:
        check_untroubled(ClusterKind(1, beacons=False), zookeepers, [stall(1.0), RESTART], BUSY)


def test_two_nodes_go_on_while_the_leader_of_three_zookeepers_is_killed() -> None:
    with ZooKeepers(3, tick_ms=BUSY_TICK_MS) as zookeepers:
        check_untroubled(ClusterKind(2), zookeepers, [LEADER_KILLED], BUSY)


@pytest.mark.nightly
@every_kind
def test_all_goes_on_through_stalls_of_up_to_eighteen_seconds_and_a_restart(
    kind: ClusterKind,
) -> None:
    with ZooKeepers(tick_ms=LONG_TICK_MS) as zookeepers:
        faults = [stall(0.5), stall(2.0), stall(5.0), stall(12.0), stall(18.0), RESTART]
        check_untroubled(kind, zookeepers, faults)


@pytest.mark.nightly
@every_kind
def test_all_goes_on_while_the_disk_of_zookeeper_is_slow_or_stands_still(
    kind: ClusterKind, disk: SlowDisk
) -> None:
    with ZooKeepers(tick_ms=LONG_TICK_MS, data=disk.root / "zookeeper") as zookeepers:
        check_untroubled(kind, zookeepers, [frozen_disk(disk, 5.0), slowed(disk, 12)])


@pytest.mark.nightly
@every_kind
def test_all_goes_on_while_one_of_three_zookeepers_is_killed_or_frozen(kind: ClusterKind) -> None:
    with ZooKeepers(3, tick_ms=LONG_TICK_MS) as zookeepers:
        check_untroubled(kind, zookeepers, [FOLLOWER_KILLED, LEADER_KILLED, FROZEN, RESTART])


@pytest.mark.parametrize(
    "kind",
    [
        ClusterKind(2),
        *(
            pytest.param(kind, marks=pytest.mark.nightly)
            for kind in KINDS
            if kind != ClusterKind(2)
        ),
    ],
    ids=named,
)
def test_after_more_than_a_session_all_resumes_without_a_restart(
    kind: ClusterKind, tmp_path: Path
) -> None:
    with (
        ZooKeepers(tick_ms=SHORT_TICK_MS) as zookeepers,
        running(kind, zookeepers, tmp_path, SHORT) as site,
    ):
        began = time.monotonic()
        zookeepers.pause()
        try:
            stopped = time.monotonic()
            eventually(lambda: have_stopped(site.clients.committers, stopped), within_s=WAIT_S)
            time.sleep(max(0.0, stopped + SHORT_S + 1 - time.monotonic()))  # what is tested
        finally:
            zookeepers.resume()
        site.await_progress()
        site.await_rest()
        assert site.clients.others(began, stopped) == Counter()
        assert site.judge() == []
        assert [server.exit_code for server in site.servers] == [None] * kind.nodes


def have_stopped(committers: Sequence[SteadyCommitter], since: float) -> bool:
    """Every one of them was refused."""
    return all(
        any(answer.code != NO_ERROR and answer.sent >= since for answer in list(one.answers))
        for one in committers
    )


def voters(cluster: Cluster) -> list[int]:
    """Whose acknowledgements give the controller its authority."""
    found = data(cluster.zookeeper, "/barnabas/voters")
    listed: list[int] = json.loads(found or b"{}").get("voters", [])
    return listed


def begin(cluster: Cluster, count: int) -> list[Address]:
    """Return the nodes' addresses once all vote and every group has a coordinator."""
    addresses = [(LOOPBACK, node.port) for node in cluster.nodes]
    Confluent().create_topic(cluster.bootstrap, TOPIC, 1, count)
    for group in GROUPS:
        coordinator(addresses, group)
    everybody = [node.id for node in cluster.nodes]
    eventually(lambda: voters(cluster) == everybody, within_s=WAIT_S, what="all vote")
    return addresses


def test_with_voters_a_killed_controller_and_coordinator_is_replaced() -> None:
    """Two of the three voters are left, and follow whoever takes the role over."""
    with Cluster(3, settings={"offsets.topic.num.partitions": "6"}) as cluster:
        addresses = begin(cluster, 3)
        with ClusterView(cluster.zookeeper) as view:
            eventually(lambda: not view.wants([TOPIC, OFFSETS_TOPIC]), within_s=WAIT_S)
            # A busy controller may just have been replaced: there is none between two of them.
            controller = eventually(view.controller, within_s=WAIT_S, what="a controller")
        assert controller is not None
        cluster.kill(controller)
        others = [
            address
            for node, address in zip(cluster.nodes, addresses, strict=True)
            if node.id != controller
        ]
        for group in GROUPS:
            eventually(lambda: is_committed(others, group), within_s=WAIT_S)  # noqa: B023
        rest = [node.id for node in cluster.nodes if node.id != controller]
        eventually(lambda: voters(cluster) == rest, within_s=WAIT_S, what="the dead one left")


def is_committed(asked: Sequence[Address], group: str) -> bool:
    """One of these nodes knows a coordinator that takes a commit."""
    for address in asked:
        try:
            with RawConnection(address, ANSWER_S) as link:
                found = find_coordinator(link, group)
            if found.error == NO_ERROR and (found.host, found.port) in asked:
                with RawConnection((found.host, found.port), ANSWER_S) as link:
                    if commit_with_metadata(link, group, TOPIC, 7) == NO_ERROR:
                        return True
        except (Closed, OSError):
            continue
    return False
