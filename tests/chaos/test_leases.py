"""A coordinator that was replaced without knowing it tells nobody an offset that is out of date.

Source: docs/spec/reliability.md §3.1, P4 and P8.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest

from barnabas.console.development.cluster import Cluster
from barnabas.console.development.ports import LOOPBACK
from benchmarks.cluster_view import OFFSETS_TOPIC, ClusterView
from tests.chaos.offset_history_checks import Read
from tests.chaos.offset_load import LateQuestions, commit_with_metadata
from tests.harness.confluent_client import Confluent
from tests.harness.raw_calls import (
    COORDINATOR_LOAD_IN_PROGRESS,
    NO_ERROR,
    NOT_COORDINATOR,
    find_coordinator,
)
from tests.harness.raw_connection import Address, Closed, RawConnection
from tests.harness.waiting import eventually

TOPIC = "t"
GROUPS = [f"group-{number}" for number in range(12)]
OLD, NEW = 1, 2
WAIT_S = 120.0
PATIENCE_S = 10.0
"""Who does not answer for so long is asked again; nobody asks the node that sleeps."""


class Nodes:
    """A cluster of three, and a client that commits to whoever coordinates."""

    def __init__(self, cluster: Cluster, view: ClusterView) -> None:
        self.cluster = cluster
        self.view = view
        self.addresses: list[Address] = [(LOOPBACK, node.port) for node in cluster.nodes]
        Confluent().create_topic(cluster.bootstrap, TOPIC, 1, 3)

    def commit(self, groups: Sequence[str], value: int, asked: Sequence[Address]) -> None:
        """Commit to every group; only ``asked`` are asked who coordinates."""
        for group in groups:
            eventually(lambda: self._is_committed(group, value, asked), within_s=WAIT_S)  # noqa: B023

    def await_rest(self) -> None:
        eventually(lambda: not self.view.wants([TOPIC, OFFSETS_TOPIC]), within_s=WAIT_S)

    def coordinated_by(self, at: Address) -> list[str]:
        with RawConnection(at) as link:
            found = {group: find_coordinator(link, group) for group in GROUPS}
        return [group for group, one in found.items() if (one.host, one.port) == at]

    def a_coordinator(self) -> tuple[int, list[str]] | None:
        """The first node that coordinates groups, and these; leadership need not be shared out."""
        for number, address in enumerate(self.addresses, 1):
            if groups := self.coordinated_by(address):
                return number, groups
        return None

    def _is_committed(self, group: str, value: int, asked: Sequence[Address]) -> bool:
        for address in asked:
            try:
                with RawConnection(address, PATIENCE_S) as link:
                    found = find_coordinator(link, group)
                if found.error or (found.host, found.port) not in asked:
                    continue
                with RawConnection((found.host, found.port), PATIENCE_S) as link:
                    if commit_with_metadata(link, group, TOPIC, value) == NO_ERROR:
                        return True
            except (Closed, OSError):
                continue
        return False


def told_by_a_replaced_coordinator(
    settings: Mapping[str, str],
) -> tuple[Mapping[str, Sequence[Read]], Counter[int]]:
    """What a node answers that slept while others took over and acknowledged newer commits."""
    few = {"offsets.topic.num.partitions": "6", **settings}
    with Cluster(3, settings=few) as cluster, ClusterView(cluster.zookeeper) as view:
        nodes = Nodes(cluster, view)
        nodes.commit(GROUPS, OLD, nodes.addresses)
        nodes.await_rest()
        number, groups = eventually(nodes.a_coordinator, what="a node with groups") or (1, [])
        sleeper = nodes.addresses[number - 1]
        cluster.pause(number)
        try:
            nodes.commit(
                groups, NEW, [address for address in nodes.addresses if address != sleeper]
            )
            late = LateQuestions(sleeper, TOPIC, groups)
        finally:
            cluster.resume(number)
        return late.answers()


@pytest.mark.parametrize("beacons", ["true", "false"])
def test_a_coordinator_that_wakes_up_replaced_answers_with_an_error(beacons: str) -> None:
    reads, codes = told_by_a_replaced_coordinator({"beacon.enable": beacons})
    assert codes
    assert set(codes) <= {NO_ERROR, COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR}
    assert {read.value for many in reads.values() for read in many} <= {NEW}


def test_without_leases_it_may_tell_what_is_out_of_date_so_the_check_is_not_blind() -> None:
    for _ in range(10):
        reads, _codes = told_by_a_replaced_coordinator({"offsets.read.lease.ms": "0"})
        if OLD in {read.value for many in reads.values() for read in many}:
            return
    raise AssertionError("the schedule shows no stale answer even where leases are off")
