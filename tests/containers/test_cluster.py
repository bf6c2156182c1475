"""Daemons in containers, and clients of this machine that reach them through published ports."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient

from tests.containers.deployment import CLIENT_PORT, ContainerCluster, NodeContainer
from tests.harness.client_libraries import ClientLibrary
from tests.harness.confluent_client import Confluent
from tests.harness.consumer_groups import ConsumerGroup
from tests.harness.fixtures import LIBRARIES
from tests.harness.records import numbered

PARTITIONS = 4
RECORDS = 200


def read_and_commit(
    cluster: ContainerCluster, library: ClientLibrary, group: str, topic: str, count: int
) -> None:
    """One member of the group reads that many records more, and commits."""
    with ConsumerGroup(library, cluster.bootstrap, group, topic, members=1) as members:
        assert len(members.read(count)) == count


def committed(cluster: ContainerCluster, group: str) -> int:
    """The sum of the group's offsets, asked of a new client."""
    return sum(Confluent().committed(cluster.bootstrap, group).values())


def coordinator_of(cluster: ContainerCluster, group: str) -> NodeContainer:
    """The daemon that serves the group now."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    found = admin.describe_consumer_groups([group])[group].result(60)
    return cluster.node(found.coordinator.id)


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)
def test_clients_commit_and_fetch_through_published_ports(
    cluster: ContainerCluster, library: ClientLibrary, topic: str, group: str
) -> None:
    library.create_topic(cluster.bootstrap, topic, PARTITIONS)
    library.produce(cluster.bootstrap, topic, numbered(0, RECORDS))
    read_and_commit(cluster, library, group, topic, RECORDS)
    assert sum(library.committed(cluster.bootstrap, group).values()) == RECORDS


def test_a_group_goes_on_after_docker_kill_of_its_coordinator(
    cluster: ContainerCluster, topic: str, group: str
) -> None:
    library = Confluent()
    library.create_topic(cluster.bootstrap, topic, PARTITIONS)
    library.produce(cluster.bootstrap, topic, numbered(0, RECORDS))
    read_and_commit(cluster, library, group, topic, RECORDS)
    killed = coordinator_of(cluster, group)
    killed.kill()
    try:
        assert committed(cluster, group) == RECORDS
        library.produce(cluster.bootstrap, topic, numbered(RECORDS, RECORDS))
        read_and_commit(cluster, library, group, topic, RECORDS)
        assert committed(cluster, group) == 2 * RECORDS
    finally:
        killed.run_again()
    assert committed(cluster, group) == 2 * RECORDS


def test_a_group_goes_on_while_its_coordinator_is_frozen_and_after(
    cluster: ContainerCluster, topic: str, group: str
) -> None:
    library = Confluent()
    library.create_topic(cluster.bootstrap, topic, PARTITIONS)
    library.produce(cluster.bootstrap, topic, numbered(0, RECORDS))
    read_and_commit(cluster, library, group, topic, RECORDS)
    frozen = coordinator_of(cluster, group)
    frozen.pause()
    try:
        library.produce(cluster.bootstrap, topic, numbered(RECORDS, RECORDS))
        read_and_commit(cluster, library, group, topic, RECORDS)
    finally:
        frozen.resume()
    assert committed(cluster, group) == 2 * RECORDS


def test_a_rolling_restart_loses_no_record_and_no_offset(
    cluster: ContainerCluster, topic: str, group: str
) -> None:
    library = Confluent()
    library.create_topic(cluster.bootstrap, topic, PARTITIONS)
    total = 0
    for node in cluster.nodes:
        library.produce(cluster.bootstrap, topic, numbered(total, RECORDS))
        read_and_commit(cluster, library, group, topic, RECORDS)
        total += RECORDS
        node.restart()
        assert committed(cluster, group) == total


def test_a_daemon_can_be_told_after_its_start_what_to_advertise(
    cluster: ContainerCluster,
) -> None:
    with cluster.broker_told_later(9) as late:
        address = f"127.0.0.1:{late.get_exposed_port(CLIENT_PORT)}"
        assert "serving" not in late.said()
        late.advertise(address)
        late.wait_healthy()
        brokers = AdminClient({"bootstrap.servers": address}).list_topics(timeout=60).brokers
        assert f"{brokers[9].host}:{brokers[9].port}" == address
