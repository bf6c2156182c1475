"""OffsetCommit and OffsetFetch of version 0 keep offsets in ZooKeeper, as before Kafka 0.8.2.

Source: docs/spec/coordinator.md §1.6 and §1.7.
"""

from __future__ import annotations

import pytest

from tests.harness.confluent_client import Confluent
from tests.harness.coordinators import coordinator
from tests.harness.deployments import Deployment, create_topic
from tests.harness.raw_calls import (
    NO_ERROR,
    UNKNOWN_TOPIC_OR_PARTITION,
    Fetched,
    commit_offsets_to_zookeeper,
    fetch_offsets,
)
from tests.harness.raw_connection import RawConnection
from tests.harness.znodes import data


@pytest.fixture
def made_topic(cluster: Deployment, topic: str) -> str:
    create_topic(cluster, Confluent(), topic, 2)
    return topic


def test_a_commit_of_version_0_is_a_znode_that_every_node_reads(
    cluster: Deployment, made_topic: str, group: str
) -> None:
    with RawConnection(cluster.addresses[0]) as link:
        accepted = commit_offsets_to_zookeeper(link, group, made_topic, {0: 17, 1: 2**40})
    assert accepted == {0: NO_ERROR, 1: NO_ERROR}
    path = f"/consumers/{group}/offsets/{made_topic}"
    assert data(cluster.zookeeper, f"{path}/0") == b"17"
    assert data(cluster.zookeeper, f"{path}/1") == str(2**40).encode()
    for address in cluster.addresses:
        with RawConnection(address) as link:
            found, _ = fetch_offsets(link, group, made_topic, [0, 1], version=0)
        assert found == {0: Fetched(17, "", NO_ERROR), 1: Fetched(2**40, "", NO_ERROR)}


def test_a_later_commit_of_version_0_replaces_the_earlier(
    cluster: Deployment, made_topic: str, group: str
) -> None:
    for address, offset in zip(cluster.addresses, (5, 6, 4), strict=False):
        with RawConnection(address) as link:
            accepted = commit_offsets_to_zookeeper(link, group, made_topic, {0: offset})
        assert accepted == {0: NO_ERROR}
    assert data(cluster.zookeeper, f"/consumers/{group}/offsets/{made_topic}/0") == b"4"


def test_what_was_never_committed_is_an_unknown_partition_in_version_0(
    cluster: Deployment, made_topic: str, group: str
) -> None:
    with RawConnection(cluster.addresses[0]) as link:
        found, _ = fetch_offsets(link, group, made_topic, [0, 7], version=0)
        refused = commit_offsets_to_zookeeper(link, group, made_topic, {7: 1})
    nothing = Fetched(-1, "", UNKNOWN_TOPIC_OR_PARTITION)
    assert found == {0: nothing, 7: nothing}
    assert refused == {7: UNKNOWN_TOPIC_OR_PARTITION}


def test_offsets_in_zookeeper_and_offsets_in_the_log_do_not_mix(
    cluster: Deployment, made_topic: str, group: str
) -> None:
    with RawConnection(cluster.addresses[0]) as link:
        commit_offsets_to_zookeeper(link, group, made_topic, {0: 17})
    with RawConnection(coordinator(cluster.addresses, group)) as link:
        found, _ = fetch_offsets(link, group, made_topic, [0])
    assert found == {0: Fetched(-1, "", NO_ERROR)}
