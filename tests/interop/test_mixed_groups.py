"""Our consumer in one group with consumers that others wrote: they understand each other."""

from __future__ import annotations

import pytest

from tests.harness.client_libraries import ClientLibrary
from tests.harness.confluent_client import Confluent
from tests.harness.consumer_groups import WAIT_S, ConsumerGroup
from tests.harness.deployments import Deployment, create_topic
from tests.harness.go_clients import FRANZ, Balanced
from tests.harness.kafka_python_client import KafkaPython
from tests.harness.own_client import Own
from tests.harness.records import numbered
from tests.harness.waiting import eventually

PARTITIONS = 6
RECORDS = 2_000
RANGE = Own(("range",))
STICKY = Own(("cooperative-sticky",))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        pytest.param(RANGE, Confluent(), id="librdkafka"),
        pytest.param(RANGE, KafkaPython(), id="kafka-python"),
        pytest.param(STICKY, Balanced(FRANZ, "cooperative"), id="franz-go-cooperative"),
    ],
)
def test_members_of_two_libraries_read_everything_once(
    cluster: Deployment, ours: Own, theirs: ClientLibrary, topic: str, group: str
) -> None:
    create_topic(cluster, ours, topic, PARTITIONS)
    with ConsumerGroup(
        ours, cluster.bootstrap, group, topic, members=1, others=[theirs]
    ) as members:
        members.await_shares(PARTITIONS)
        ours.produce(cluster.bootstrap, topic, numbered(0, RECORDS))
        found = members.read(RECORDS)

        def is_committed() -> bool:
            """Who owned other partitions when it read may have to read the ones it has now."""
            members.commit()
            return sum(ours.committed(cluster.bootstrap, group).values()) == RECORDS

        eventually(is_committed, within_s=WAIT_S, what="all of it is committed")
    expected = {record.value for record in numbered(0, RECORDS)}
    assert {record.value for record in found} == expected
    committed = ours.committed(cluster.bootstrap, group)
    assert sum(committed.values()) == RECORDS
