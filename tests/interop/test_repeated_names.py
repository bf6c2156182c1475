"""What is named twice in one request, and names that are none: the answers of Apache Kafka 3.9.

Every expectation was taken from Kafka 3.9.1, and holds against it
(BARNABAS_INTEROP_SERVER=kafka), but for what a test says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from barnabas.client.connection.connection import Connection
from barnabas.protocol import api
from barnabas.protocol.messages import (
    alter_partition_reassignments,
    create_partitions,
    create_topics,
    delete_records,
    describe_producers,
    fetch,
    incremental_alter_configs,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
)
from tests.harness import coordinators
from tests.harness.deployments import Deployment, create_topic, is_apache_kafka
from tests.harness.own_client import Own
from tests.harness.raw_connection import Address
from tests.harness.records import Sent

FOREVER = 2**63 - 1
ODD_NAMES = ("", ".", "..", "a/../b", "probe/partitions/0/state", "a b", "\x00", "x" * 250)
UNKNOWN, INVALID_TOPIC, INVALID_REQUEST = 3, 17, 42


def ask(address: Address, message: Any, version: int) -> Any:
    """The answer to one request."""

    async def talk() -> Any:
        connection = await Connection.open(*address)
        try:
            return await connection.request(message, version)
        finally:
            await connection.close()

    assert api.spec_of(type(message)).supports(version)
    return asyncio.run(talk())


def codes(results: Iterable[Any]) -> list[tuple[int, int]]:
    """Index and code of each partition, sorted: Kafka's order is that of a hash."""
    return sorted((one.partition_index, one.error_code) for one in results)


@pytest.fixture
def leader(cluster: Deployment, topic: str) -> Address:
    """The leader of the only partition of a topic with three records."""
    found = create_topic(cluster, Own(), topic, 1)[0]
    Own().produce(cluster.bootstrap, topic, [Sent(b"x")] * 3)
    return found


def coordinator(address: Address, group: str) -> Address:
    """Which has loaded the group, also where the offsets topic is new."""
    return coordinators.coordinator([address], group)


def commit(group: str, *entries: tuple[str, int, int], **more: Any) -> Any:
    return offset_commit.OffsetCommitRequest(
        group_id=group,
        topics=[
            offset_commit.Topic(
                name=topic,
                partitions=[offset_commit.Partition(partition_index=at, committed_offset=offset)],
            )
            for topic, at, offset in entries
        ],
        **more,
    )


def named(topic: str, *indexes: int) -> list[offset_fetch.Topic]:
    """One entry for each index, so that the topic is named twice as well."""
    return [offset_fetch.Topic(name=topic, partition_indexes=[at, at]) for at in indexes]


@pytest.mark.parametrize("version", range(1, 10))
def test_offsets_of_a_partition_named_twice_are_committed_and_fetched_once(
    leader: Address, topic: str, group: str, version: int
) -> None:
    home = coordinator(leader, group)
    again = commit(group, (topic, 0, 1), (topic, 0, 2), ("nowhere", 5, 1), ("nowhere", 5, 2))
    told = ask(home, again, version)
    while told.topics[0].partitions[0].error_code in (14, 16):
        told = ask(home, again, version)
    by_topic = {topic.name: codes(topic.partitions) for topic in told.topics}
    assert by_topic == {topic: [(0, 0)], "nowhere": [(5, UNKNOWN), (5, UNKNOWN)]}
    if version >= 8:
        asked: Any = offset_fetch.OffsetFetchRequest(
            groups=[offset_fetch.Group(group_id=group, topics=named(topic, 0, 0, 1))]
        )
        [found] = ask(home, asked, version).groups[0].topics
    else:
        asked = offset_fetch.OffsetFetchRequest(group_id=group, topics=named(topic, 0, 0, 1))
        [found] = ask(home, asked, version).topics
    offsets = {one.partition_index: one.committed_offset for one in found.partitions}
    assert offsets == {0: 2, 1: -1}
    assert len(found.partitions) == 2


@pytest.mark.parametrize("version", [2, 3, 4])
def test_a_retention_as_long_as_can_be_said_is_taken(
    leader: Address, topic: str, group: str, version: int
) -> None:
    home = coordinator(leader, group)
    for retention in (FOREVER, FOREVER - 1, 0):
        asked = commit(group, (topic, 0, 1), retention_time_ms=retention)
        while (code := ask(home, asked, version).topics[0].partitions[0].error_code) in (14, 16):
            pass
        assert code == 0
    if not is_apache_kafka():  # there the sum overflows, and the offset is gone at once
        asked = offset_fetch.OffsetFetchRequest(group_id=group, topics=named(topic, 0))
        assert ask(home, asked, 5).topics[0].partitions[0].committed_offset == 1


def test_offsets_of_a_partition_named_twice_are_deleted_once(
    leader: Address, topic: str, group: str
) -> None:
    home = coordinator(leader, group)
    while ask(home, commit(group, (topic, 0, 1)), 2).topics[0].partitions[0].error_code:
        pass
    twice = [offset_delete.Partition(partition_index=0)] * 2
    asked = offset_delete.OffsetDeleteRequest(
        group_id=group, topics=[offset_delete.Topic(name=topic, partitions=twice)] * 2
    )
    [told] = ask(home, asked, 0).topics
    assert codes(told.partitions) == [(0, 0)]


def test_a_partition_named_twice_is_refused_by_list_offsets_but_in_version_0(
    leader: Address, topic: str
) -> None:
    twice = [list_offsets.Partition(timestamp=at, max_num_offsets=1) for at in (-1, -2)]
    asked = list_offsets.ListOffsetsRequest(
        replica_id=-1, topics=[list_offsets.Topic(name=topic, partitions=twice)]
    )
    for version in range(10):
        found = ask(leader, asked, version).topics[0].partitions
        assert codes(found) == [(0, INVALID_REQUEST if version else 0)] * 2
        if version == 0:
            assert [list(one.old_style_offsets) for one in found] == [[3], [0]]


def test_records_of_a_partition_named_twice_are_deleted_as_the_last_entry_says(
    leader: Address, topic: str
) -> None:
    for offsets, expected in (([3, 1], (0, 0, 1)), ([1, 99], (0, 1, -1)), ([1, 2], (0, 0, 2))):
        wishes = [delete_records.Partition(partition_index=0, offset=offset) for offset in offsets]
        asked = delete_records.DeleteRecordsRequest(
            topics=[delete_records.Topic(name=topic, partitions=[wish]) for wish in wishes],
            timeout_ms=30_000,
        )
        [told] = ask(leader, asked, 1).topics
        [found] = told.partitions
        assert (found.partition_index, found.error_code, found.low_watermark) == expected


@pytest.mark.parametrize("version", [4, 6, 11, 12])
def test_a_partition_named_twice_is_read_once(leader: Address, topic: str, version: int) -> None:
    wishes = [fetch.Partition(fetch_offset=at, partition_max_bytes=1 << 20) for at in (0, 3)]
    asked = fetch.FetchRequest(
        topics=[fetch.Topic(topic=topic, partitions=[wish, wish]) for wish in wishes]
    )
    [told] = ask(leader, asked, version).responses
    [found] = told.partitions
    assert (found.error_code, found.high_watermark, found.records or b"") == (0, 3, b"")


def controller(cluster: Deployment) -> Address:
    """The node that creates topics."""
    told = ask(cluster.addresses[0], metadata.MetadataRequest(topics=[]), 4)
    at = {node.node_id: (node.host, node.port) for node in told.brokers}
    return at[told.controller_id]


def test_a_topic_named_twice_is_refused_as_often_and_the_others_are_made(
    cluster: Deployment, topic: str
) -> None:
    names = [topic, topic, f"{topic}-other"]
    asked = create_topics.CreateTopicsRequest(
        topics=[
            create_topics.Topic(name=name, num_partitions=1, replication_factor=1) for name in names
        ],
        timeout_ms=30_000,
    )
    told = ask(controller(cluster), asked, 4).topics
    found = sorted((result.name, result.error_code) for result in told)
    assert found == [(topic, INVALID_REQUEST), (topic, INVALID_REQUEST), (f"{topic}-other", 0)]


def test_settings_of_a_topic_named_twice_are_refused_as_often(
    cluster: Deployment, leader: Address, topic: str
) -> None:
    change = incremental_alter_configs.Config(
        name="retention.ms", config_operation=0, value="100000"
    )
    resource = incremental_alter_configs.Resource(
        resource_type=2, resource_name=topic, configs=[change]
    )
    asked = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource] * 2)
    told = ask(leader, asked, 0).responses
    assert [result.error_code for result in told] == [INVALID_REQUEST] * 2


def test_a_partition_named_twice_is_moved_once(
    cluster: Deployment, leader: Address, topic: str
) -> None:
    twice = [alter_partition_reassignments.Partition(partition_index=0, replicas=[1])] * 2
    asked = alter_partition_reassignments.AlterPartitionReassignmentsRequest(
        topics=[alter_partition_reassignments.Topic(name=topic, partitions=twice)]
    )
    [told] = ask(controller(cluster), asked, 0).responses
    assert [partition.error_code for partition in told.partitions] == [0]


@pytest.mark.parametrize("name", ODD_NAMES, ids=ascii)
def test_a_name_that_no_topic_can_have_is_refused_wherever_it_is_given(
    cluster: Deployment, leader: Address, group: str, name: str
) -> None:
    ruler = controller(cluster)
    make = create_topics.CreateTopicsRequest(
        topics=[create_topics.Topic(name=name, num_partitions=1, replication_factor=1)]
    )
    assert ask(ruler, make, 4).topics[0].error_code == INVALID_TOPIC
    grow = create_partitions.CreatePartitionsRequest(
        topics=[create_partitions.Topic(name=name, count=2, assignments=None)], timeout_ms=1000
    )
    grown = ask(ruler, grow, 1).results[0].error_code
    # Kafka says -1 for what ZooKeeper's client refuses, and looks for the others
    assert grown in ((-1, UNKNOWN) if is_apache_kafka() else (INVALID_TOPIC,))
    producers = describe_producers.DescribeProducersRequest(
        topics=[describe_producers.Topic(name=name, partition_indexes=[0])]
    )
    assert ask(leader, producers, 0).topics[0].partitions[0].error_code == INVALID_TOPIC
    home = coordinator(leader, group)
    for version in (0, 2):
        told = ask(home, commit(group, (name, 0, 1)), version)
        assert codes(told.topics[0].partitions) == [(0, UNKNOWN)]
