"""A bit of __consumer_offsets turned over on a real disk: copied anew from the others, at no loss.

The simulation tells the same story with many seeds (tests/sim/test_damaged_replicas.py).
Source: docs/decisions/0009.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.protocol.records import batch
from tests.harness.coordinators import coordinator
from tests.harness.deployments import OwnCluster, create_topic, is_apache_kafka
from tests.harness.fixtures import Deploy
from tests.harness.own_client import Own
from tests.harness.raw_calls import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    NO_ERROR,
    NOT_COORDINATOR,
    commit_offsets,
    fetch_offsets,
)
from tests.harness.raw_connection import RawConnection
from tests.harness.steady_settings import STEADY
from tests.harness.waiting import eventually

LOG = Path("data/__consumer_offsets-0/00000000000000000000.log")
GROUPS = [f"group-{number}" for number in range(20)]
ASKED_AGAIN = (COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR)
BODY = 70
"""Somewhere in the first record of a batch."""


def commit_all(cluster: OwnCluster, offset: int) -> None:
    for group in GROUPS:

        def is_committed(group: str = group) -> bool:
            # The leader may change while the nodes that came back settle: clients ask again.
            with RawConnection(coordinator(cluster.addresses, group)) as link:
                code = commit_offsets(link, group, "orders", {0: offset})[0]
            assert code in (NO_ERROR, *ASKED_AGAIN)
            return code == NO_ERROR

        eventually(is_committed, what=f"a commit of {group}")


def committed(cluster: OwnCluster) -> set[int | None]:
    offsets: set[int | None] = set()
    for group in GROUPS:

        def found(group: str = group) -> int | None:
            with RawConnection(coordinator(cluster.addresses, group)) as link:
                answers, code = fetch_offsets(link, group, "orders", [0])
            assert code in (NO_ERROR, *ASKED_AGAIN)
            return answers[0].offset if code == NO_ERROR else None

        offsets.add(eventually(found, what=f"the offset of {group}"))
    return offsets


def turn_over(path: Path) -> None:
    """Flip one bit of a batch in the middle of the file."""
    data = bytearray(path.read_bytes())
    places = list(batch.iterate(memoryview(bytes(data))))
    data[places[len(places) // 2][0] + BODY] ^= 0x04
    path.write_bytes(data)


@pytest.mark.skipif(is_apache_kafka(), reason="Kafka does not mend itself")
def test_a_replica_whose_disk_turned_a_bit_over_is_copied_anew_and_no_offset_is_lost(
    deploy_fresh: Deploy,
) -> None:
    cluster = deploy_fresh(3, {"offsets.topic.num.partitions": "1", **STEADY})
    assert isinstance(cluster, OwnCluster)
    create_topic(cluster, Own(), "orders", 1)
    for turn, is_leader in enumerate((False, True), start=1):
        commit_all(cluster, turn)
        port = coordinator(cluster.addresses, "group-0")[1]
        node = next(member for member in cluster.nodes if (member.port == port) is is_leader)
        node.stop()
        turn_over(node.directory / LOG)
        node.spawn()
        node.let_serve()
        node.wait_ready()

        def are_alike() -> bool:
            files = [member.directory / LOG for member in cluster.nodes]
            try:
                return len({file.read_bytes() for file in files}) == 1
            except FileNotFoundError:  # the damaged log is gone, the new one not there yet
                return False

        eventually(are_alike, within_s=120, what="the copies are alike")
        assert "fetches anew what is damaged" in node.log.read_text()
        assert committed(cluster) == {turn}
    cluster.stop_nodes()
    for member in cluster.nodes:  # whoever leads next can load all of it
        data = (member.directory / LOG).read_bytes()
        assert all(batch.crc_is_valid(data, *one) for one in batch.iterate(memoryview(data)))
