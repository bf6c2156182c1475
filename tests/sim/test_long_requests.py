"""Every request that can name very much is served over many turns of the loop.

So what others ask meanwhile is served in between. A whole node is asked, small and large.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.broker.net.dispatch import LONG_BYTES
from barnabas.client.connection.connection import Connection
from barnabas.protocol.codec.compiler import encode
from barnabas.protocol.codec.wire import TURN_ELEMENTS
from barnabas.protocol.messages import (
    alter_configs,
    alter_partition_reassignments,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    elect_leaders,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    update_features,
)
from tests.sim.simulated_loop import SimulatedLoop
from tests.sim.test_daemon import HOST, SingleNodeCluster, prepared

COUNT = 17_000
TURNS = COUNT // 1000 + 2 * (COUNT // TURN_ELEMENTS + 1)
"""More than reading and writing take: so many when 1000 names are looked up in each."""


def names(count: int) -> list[str]:
    return [f"!{number:07}" for number in range(count)]


def fetching(count: int) -> fetch.FetchRequest:
    partitions = [fetch.Partition(partition=one) for one in range(2, count)]
    topics = [fetch.Topic(topic="t", partitions=partitions)]
    return fetch.FetchRequest(topics=topics, min_bytes=0, max_wait_ms=0, max_bytes=1 << 20)


ASKED: dict[str, tuple[Callable[[int], Any], int]] = {
    "alter configs": (
        lambda n: alter_configs.AlterConfigsRequest(
            resources=[
                alter_configs.Resource(resource_type=2, resource_name=name) for name in names(n)
            ]
        ),
        1,
    ),
    "incremental alter configs": (
        lambda n: incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[
                incremental_alter_configs.Resource(resource_type=2, resource_name=name)
                for name in names(n)
            ]
        ),
        1,
    ),
    "describe configs": (
        lambda n: describe_configs.DescribeConfigsRequest(
            resources=[
                describe_configs.Resource(resource_type=2, resource_name=name) for name in names(n)
            ]
        ),
        1,
    ),
    "create topics": (
        lambda n: create_topics.CreateTopicsRequest(
            topics=[create_topics.Topic(name=name) for name in names(n)], timeout_ms=1000
        ),
        4,
    ),
    "delete topics": (
        lambda n: delete_topics.DeleteTopicsRequest(topic_names=names(n), timeout_ms=1000),
        4,
    ),
    "create partitions": (
        lambda n: create_partitions.CreatePartitionsRequest(
            topics=[create_partitions.Topic(name=name) for name in names(n)], timeout_ms=1000
        ),
        1,
    ),
    "elect leaders": (
        lambda n: elect_leaders.ElectLeadersRequest(
            topic_partitions=[elect_leaders.TopicPartitions(topic="x", partitions=range(n))],
            timeout_ms=1000,
        ),
        1,
    ),
    "alter reassignments": (
        lambda n: alter_partition_reassignments.AlterPartitionReassignmentsRequest(
            topics=[
                alter_partition_reassignments.Topic(
                    name="x",
                    partitions=[
                        alter_partition_reassignments.Partition(partition_index=one, replicas=[1])
                        for one in range(n)
                    ],
                )
            ],
            timeout_ms=1000,
        ),
        0,
    ),
    "list reassignments": (
        lambda n: list_partition_reassignments.ListPartitionReassignmentsRequest(
            topics=[list_partition_reassignments.Topic(name="x", partition_indexes=range(n))]
        ),
        0,
    ),
    "describe log dirs": (
        lambda n: describe_log_dirs.DescribeLogDirsRequest(
            topics=[describe_log_dirs.Topic(topic="x", partitions=range(n))]
        ),
        1,
    ),
    "delete records": (
        lambda n: delete_records.DeleteRecordsRequest(
            topics=[
                delete_records.Topic(
                    name="x",
                    partitions=[delete_records.Partition(partition_index=i) for i in range(n)],
                )
            ],
            timeout_ms=1000,
        ),
        1,
    ),
    "describe producers": (
        lambda n: describe_producers.DescribeProducersRequest(
            topics=[describe_producers.Topic(name="x", partition_indexes=range(n))]
        ),
        0,
    ),
    "list offsets": (
        lambda n: list_offsets.ListOffsetsRequest(
            replica_id=-1,
            topics=[
                list_offsets.Topic(
                    name="x",
                    partitions=[
                        list_offsets.Partition(partition_index=i, timestamp=-1) for i in range(n)
                    ],
                )
            ],
        ),
        5,
    ),
    "leader epochs": (
        lambda n: offset_for_leader_epoch.OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=[
                offset_for_leader_epoch.Topic(
                    topic="x",
                    partitions=[offset_for_leader_epoch.Partition(partition=i) for i in range(n)],
                )
            ],
        ),
        3,
    ),
    "fetch": (fetching, 4),
    "metadata": (
        lambda n: metadata.MetadataRequest(topics=[metadata.Topic(name=one) for one in names(n)]),
        8,
    ),
    "find coordinator": (
        lambda n: find_coordinator.FindCoordinatorRequest(coordinator_keys=names(n)),
        4,
    ),
    "offset commit": (
        lambda n: offset_commit.OffsetCommitRequest(
            group_id="g",
            topics=[
                offset_commit.Topic(name=one, partitions=[offset_commit.Partition()])
                for one in names(n)
            ],
        ),
        7,
    ),
    "offset commit to zookeeper": (
        lambda n: offset_commit.OffsetCommitRequest(
            group_id="g",
            topics=[
                offset_commit.Topic(name=one, partitions=[offset_commit.Partition()])
                for one in names(n)
            ],
        ),
        0,
    ),
    "offset fetch of groups": (
        lambda n: offset_fetch.OffsetFetchRequest(
            groups=[offset_fetch.Group(group_id=one, topics=[]) for one in names(n)]
        ),
        8,
    ),
    "offset fetch of partitions": (
        lambda n: offset_fetch.OffsetFetchRequest(
            group_id="g", topics=[offset_fetch.Topic(name="t", partition_indexes=range(n))]
        ),
        7,
    ),
    "offset fetch from zookeeper": (
        lambda n: offset_fetch.OffsetFetchRequest(
            group_id="g", topics=[offset_fetch.Topic(name="x", partition_indexes=range(n))]
        ),
        0,
    ),
    "offset delete": (
        lambda n: offset_delete.OffsetDeleteRequest(
            group_id="g",
            topics=[
                offset_delete.Topic(
                    name="x",
                    partitions=[offset_delete.Partition(partition_index=i) for i in range(n)],
                )
            ],
        ),
        0,
    ),
    "delete groups": (lambda n: delete_groups.DeleteGroupsRequest(groups_names=names(n)), 1),
    "describe groups": (lambda n: describe_groups.DescribeGroupsRequest(groups=names(n)), 4),
    "list groups": (lambda n: list_groups.ListGroupsRequest(states_filter=names(n)), 4),
    "update features": (
        lambda n: update_features.UpdateFeaturesRequest(
            feature_updates=[
                update_features.FeatureUpdate(feature=one, max_version_level=1) for one in names(n)
            ]
        ),
        1,
    ),
}


class CountingLoop(SimulatedLoop):
    """Counts its turns."""

    turns = 0

    def _run_once(self) -> None:
        self.turns += 1
        super()._run_once()  # type: ignore[misc]


async def life() -> dict[str, int]:
    """By request, how many turns more a large one takes than one of the same kind that is small."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, CountingLoop)
    cluster, more = SingleNodeCluster(loop), {}
    node = await cluster.start()
    connection = await Connection.open(HOST, 9092)
    await prepared(connection)
    for asked, (make, version) in ASKED.items():
        taken = []
        for count in (3, COUNT):
            request = make(count)
            assert count < COUNT or len(encode(request, version)) > LONG_BYTES, asked
            before = loop.turns
            await connection.request(request, version)
            taken.append(loop.turns - before)
        more[asked] = taken[1] - taken[0]
    await connection.close()
    cluster.stop.set()
    await node
    return more


@pytest.fixture(scope="module")
def turns() -> dict[str, int]:
    with asyncio.Runner(loop_factory=lambda: CountingLoop(1)) as runner:
        return runner.run(life())


@pytest.mark.parametrize("asked", ASKED)
def test_a_request_that_names_very_much_gives_way_to_others(
    turns: dict[str, int], asked: str
) -> None:
    assert turns[asked] >= TURNS
