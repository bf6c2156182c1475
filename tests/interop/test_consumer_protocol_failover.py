"""Groups of the consumer protocol while the node that coordinates them is killed.

Source: docs/spec/consumer-groups.md §2.1 (C12), §7 (C77).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from tests.harness.consumer_protocol_clusters import SETTINGS
from tests.harness.coordinators import coordinator
from tests.harness.deployments import OwnCluster, await_complete
from tests.harness.protocol_members import CONFLUENT, JAVA, OWN, MemberKind
from tests.harness.shared_groups import PARTITIONS, Load, group_at

pytestmark = pytest.mark.nightly

_REPLICAS: Final = {"offsets.topic.replication.factor": "3", "min.insync.replicas": "2"}


@pytest.fixture(scope="module")
def three() -> Iterator[OwnCluster]:
    running = OwnCluster(3, {**SETTINGS, **_REPLICAS})
    yield running
    running.stop()


@pytest.mark.parametrize("kind", [OWN, CONFLUENT, JAVA], ids=lambda kind: kind.name)
def test_another_node_goes_on_while_a_member_gives_up_its_partitions(
    three: OwnCluster, kind: MemberKind
) -> None:
    with group_at(three, factor=3) as group:
        with Load(three.bootstrap, group.topic) as load:
            slow = group.join(kind, slow_s=3.0)
            group.await_that(lambda: len(slow.owns()) == PARTITIONS, "the first has all")
            group.await_that(lambda: group.ledger.read() > 0, "it reads")
            other = group.join(OWN)
            group.await_that(lambda: slow.name in group.ledger.revoking, "the first gives up")
            _, port = coordinator(three.addresses, group.topic)
            (killed,) = (node for node in three.nodes if node.port == port)
            killed.kill()
            group.await_shared(slow, other)
            killed.spawn()
            killed.let_serve()
            killed.wait_ready()
            await_complete(three.addresses)
        group.await_read(load.sent)
        slow.close()
        other.close()
        assert group.ledger.lost == []
        assert group.ledger.ownership.doubles() == []
        assert not group.ledger.repeated() or group.ledger.errors
