"""A ZooKeeper that answers nothing for a while takes no offset away from a healthy cluster.

Source: reliability.md section 3.1 (c'); docs/beacons.md points 11 to 13.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Sequence

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from barnabas.console.development_cluster import Cluster
from barnabas.console.ports import LOOPBACK
from benchmarks.cluster_view import OFFSETS_TOPIC, ClusterView
from tests.chaos.offset_load import commit_with_metadata
from tests.harness.coordinators import coordinator
from tests.harness.raw import Address, Closed, RawConnection
from tests.harness.raw_calls import NO_ERROR, fetch_offsets, find_coordinator
from tests.harness.traffic import Activity
from tests.harness.waiting import eventually
from tests.harness.znodes import data

TOPIC = "t"
GROUPS = [f"group-{number}" for number in range(6)]
SESSION_MS = 18_000
LEASE_MS = 2_000
"""T of the leases: less than the longest stall, and more than a busy machine holds a node up."""
STALLS_S = (0.5, 2.0, 6.0)
PATIENCE_S = 5.0
"""With the longest stall it is less than two thirds of a session, where a client would give up."""
WAIT_S = 120.0
ANSWER_S = 60.0


class Traffic(Activity):
    """Looks up the coordinator of a group, commits and fetches, and counts every code."""

    def __init__(self, addresses: Sequence[Address], group: str) -> None:
        super().__init__()
        self.codes: Counter[int] = Counter()
        self.committed = 0
        self.went_back: list[int] = []
        self._addresses = addresses
        self._group = group

    @property
    def answers(self) -> int:
        """Of all kinds."""
        return sum(self.codes.values())

    def repeat(self) -> None:
        for asked in iter(lambda: self._addresses[self.answers % len(self._addresses)], None):
            if self.is_over.wait(0.01):
                return
            with RawConnection(asked, ANSWER_S) as link:
                found = find_coordinator(link, self._group)
            self.codes[found.error] += 1
            if found.error == NO_ERROR:
                with RawConnection((found.host, found.port), ANSWER_S) as link:
                    self._use(link)

    def _use(self, link: RawConnection) -> None:
        code = commit_with_metadata(link, self._group, TOPIC, self.committed + 1)
        self.codes[code] += 1
        self.committed += code == NO_ERROR
        offsets, code = fetch_offsets(link, self._group, TOPIC, [0])
        self.codes[code] += 1
        if code == NO_ERROR and offsets[0].offset != self.committed:
            self.went_back.append(offsets[0].offset)


def have_answers(lanes: Sequence[Traffic], before: Sequence[int]) -> bool:
    """Each lane has more of them than before."""
    return all(lane.answers > answers for lane, answers in zip(lanes, before, strict=True))


def voters(cluster: Cluster) -> list[int]:
    """Whose acknowledgements give the controller its authority."""
    found = data(cluster.zookeeper, "/barnabas/voters")
    listed: list[int] = json.loads(found or b"{}").get("voters", [])
    return listed


def begin(cluster: Cluster, count: int) -> list[Address]:
    """Return the nodes' addresses once all vote and every group has a coordinator."""
    addresses = [(LOOPBACK, node.port) for node in cluster.nodes]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, count)])[TOPIC].result(WAIT_S)
    for group in GROUPS:
        coordinator(addresses, group)
    everybody = [node.id for node in cluster.nodes]
    eventually(lambda: voters(cluster) == everybody, within_s=WAIT_S, what="all vote")
    return addresses


@pytest.mark.parametrize("count", [1, 3])
def test_commits_and_fetches_go_on_while_zookeeper_answers_nothing(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.console.development_cluster._TICK_MS", SESSION_MS // 10)
    settings = {
        "zookeeper.session.timeout.ms": str(SESSION_MS),
        "beacon.timeout.ms": str(LEASE_MS),
        "offsets.topic.num.partitions": "6",
    }
    with Cluster(count, settings=settings) as cluster:
        addresses = begin(cluster, count)
        with ClusterView(cluster.zookeeper) as view:
            eventually(lambda: not view.wants([TOPIC, OFFSETS_TOPIC]), within_s=WAIT_S)
        assert cluster.zookeeper_pid is not None
        lanes = [Traffic(addresses, group) for group in GROUPS]
        for lane in lanes:
            lane.__enter__()
        try:
            for stall_s in STALLS_S:
                os.kill(cluster.zookeeper_pid, signal.SIGSTOP)
                try:
                    before = [lane.answers for lane in lanes]
                    threading.Event().wait(stall_s)  # what is tested, not a state to wait for
                    eventually(lambda: have_answers(lanes, before), within_s=PATIENCE_S)  # noqa: B023
                    after = [lane.answers for lane in lanes]
                finally:
                    os.kill(cluster.zookeeper_pid, signal.SIGCONT)
                for lane, answered in zip(lanes, after, strict=True):
                    eventually(lambda: lane.answers > answered + 10, within_s=WAIT_S)  # noqa: B023
        finally:
            for lane in lanes:
                lane.__exit__(None, None, None)
        for lane in lanes:
            lane.check()
        assert [set(lane.codes) for lane in lanes] == [{NO_ERROR}] * len(lanes)
        assert [lane.went_back for lane in lanes] == [[]] * len(lanes)


def test_with_voters_a_killed_controller_and_coordinator_is_replaced() -> None:
    """Two of the three voters are left, and follow whoever takes the role over."""
    with Cluster(3, settings={"offsets.topic.num.partitions": "6"}) as cluster:
        addresses = begin(cluster, 3)
        with ClusterView(cluster.zookeeper) as view:
            eventually(lambda: not view.wants([TOPIC, OFFSETS_TOPIC]), within_s=WAIT_S)
            controller = view.controller()
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
