"""A node of Apache Kafka 3.9 joins a cluster of ours and leaves it: consumer groups stand still.

Nobody joins such a group while it is there, members go on with what they have, and afterwards
everything is as before. Source: docs/spec/consumer-groups.md §1, C1, C3, C5.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from barnabas.console.development.cluster import Cluster
from barnabas.console.development.ports import LOOPBACK
from tests.harness.consumer_protocol_clusters import SESSION_MS
from tests.harness.consumer_protocol_clusters import SETTINGS as TIMERS
from tests.harness.kafka_peers import SHARED, Tree, kafka_peer
from tests.harness.protocol_members import CONFLUENT, OWN
from tests.harness.raw_calls import api_versions
from tests.harness.raw_connection import Address, RawConnection
from tests.harness.shared_groups import Group, Load, group_at
from tests.harness.waiting import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.nightly]

CONSUMER_GROUP_HEARTBEAT: Final = 68
SETTINGS: Final = {**TIMERS, **SHARED, "offsets.topic.replication.factor": "2"}


class Ours(Cluster):
    """Two nodes, as tests of groups want them."""

    @property
    def addresses(self) -> Sequence[Address]:
        """Where each node listens."""
        return [(LOOPBACK, node.port) for node in self.nodes]


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[Ours]:
    with Ours(2, tmp_path / "ours", settings=SETTINGS) as cluster:
        yield cluster


def await_offered(cluster: Ours, *, is_offered: bool) -> None:
    """Return when each node offers the protocol, or none does."""

    def agree() -> bool:
        for address in cluster.addresses:
            with RawConnection(address) as link:
                if (CONSUMER_GROUP_HEARTBEAT in api_versions(link)) is not is_offered:
                    return False
        return True

    eventually(agree, what=f"consumer groups are {'on' if is_offered else 'off'}")


def await_longer_than_a_session(group: Group, load: Load) -> None:
    """Return when members whose sessions ran would have lost them; they read meanwhile."""
    until = time.monotonic() + 1.5 * SESSION_MS / 1000
    group.await_that(lambda: time.monotonic() > until, "a session is over")
    sent = load.sent
    group.await_that(lambda: group.ledger.read() >= sent, "members read on")


def test_members_go_on_while_a_node_of_kafka_is_there_and_others_join_when_it_has_left(
    ours: Ours, tmp_path: Path
) -> None:
    tree = Tree(ours.zookeeper)
    kafka = kafka_peer(3, tmp_path / "kafka", ours.zookeeper, secret=ours.secret)
    with group_at(ours, factor=2) as group, Load(ours.bootstrap, group.topic) as load:  # type: ignore[arg-type]
        await_offered(ours, is_offered=True)
        first, second = group.join(OWN), group.join(CONFLUENT)
        group.await_shared(first, second)
        had = group.ledger.owned()
        try:
            kafka.start()
            tree.await_registered({1, 2, 3})
            await_offered(ours, is_offered=False)
            refused = group.join(OWN)
            group.await_that(
                lambda: any(line.startswith(refused.name) for line in group.ledger.errors),
                "who joins is refused",
            )
            await_longer_than_a_session(group, load)
            assert group.ledger.owned() == had
            assert refused.is_running
            refused.kill()
        finally:
            kafka.stop()
        tree.await_registered({1, 2})
        await_offered(ours, is_offered=True)
        third = group.join(OWN)
        group.await_shared(first, second, third)
        load.__exit__(None, None, None)
        group.await_read(load.sent)
        for member in (first, second, third):
            member.close()
        assert group.ledger.lost == []
        assert group.ledger.findings() == []
