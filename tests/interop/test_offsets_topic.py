"""How the topic of committed offsets comes to be, or not.

Source: docs/spec/coordinator.md §1.2 and §1.3.
"""

from __future__ import annotations

import asyncio

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from barnabas.client.admin.admin import Admin
from tests.harness.coordinators import coordinator
from tests.harness.fixtures import Deploy
from tests.harness.raw_calls import find_coordinator
from tests.harness.raw_connection import RawConnection

COORDINATOR_NOT_AVAILABLE = 15
TOPIC = "__consumer_offsets"


async def names_of_topics(bootstrap: str) -> dict[str, int]:
    async with Admin.of(bootstrap) as admin:
        return {topic.name: len(topic.partitions) for topic in await admin.list_topics()}


def test_a_fresh_cluster_makes_the_offsets_topic_when_asked(
    deploy_fresh: Deploy, group: str
) -> None:
    cluster = deploy_fresh(1)
    assert TOPIC not in asyncio.run(names_of_topics(cluster.bootstrap))
    with RawConnection(cluster.addresses[0]) as link:
        assert find_coordinator(link, group).error in (0, COORDINATOR_NOT_AVAILABLE)
    assert coordinator(cluster.addresses, group) == tuple(cluster.addresses[0])
    assert asyncio.run(names_of_topics(cluster.bootstrap))[TOPIC] == 50
    asked = ConfigResource(ConfigResource.Type.TOPIC, TOPIC)
    other = AdminClient({"bootstrap.servers": cluster.bootstrap})
    settings = other.describe_configs([asked])[asked].result(60)
    assert settings["cleanup.policy"].value == "compact"
    assert settings["segment.bytes"].value == "104857600"
    assert settings["compression.type"].value == "producer"


def test_with_too_few_nodes_there_is_no_coordinator_ever(deploy_fresh: Deploy, group: str) -> None:
    cluster = deploy_fresh(2, {"offsets.topic.replication.factor": "3"})
    for address in cluster.addresses:
        with RawConnection(address) as link:
            found = [find_coordinator(link, group) for _ in range(2)]
        assert [coordinator.error for coordinator in found] == [COORDINATOR_NOT_AVAILABLE] * 2
    assert TOPIC not in asyncio.run(names_of_topics(cluster.bootstrap))
