"""kill -9 of every node, and a start from what is on the disks."""

from __future__ import annotations

import struct
from collections import Counter

from tests.harness.confluent_client import Confluent
from tests.harness.coordinators import coordinator
from tests.harness.deployments import Deployment, create_topic, is_apache_kafka
from tests.harness.fixtures import Deploy
from tests.harness.raw_calls import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    NO_ERROR,
    NOT_COORDINATOR,
    OFFSET_COMMIT,
    commit_request,
)
from tests.harness.raw_connection import RawConnection, request_frame
from tests.harness.records import assert_as_acknowledged
from tests.harness.traffic import Committer, IdempotentProducer, OffsetReader
from tests.harness.waiting import eventually

PARTITIONS = 6
MANY_COMMITS = 100_000
IN_FLIGHT = 64
PATIENT = {NO_ERROR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR}


def fill_one_group(cluster: Deployment, group: str, topic: str, commits: int) -> int:
    """Commit that often, the requests pipelined; returns the last offset."""
    frames = [
        request_frame(OFFSET_COMMIT, 2, commit_request(group, topic, {0: number}), number)
        for number in range(commits)
    ]
    with RawConnection(coordinator(cluster.addresses, group)) as link:
        for first in range(0, commits, IN_FLIGHT):
            batch = frames[first : first + IN_FLIGHT]
            link.send(b"".join(batch))
            for _ in batch:
                assert link.receive()[-2:] == struct.pack(">h", NO_ERROR)
    return commits - 1


def test_what_was_acknowledged_survives_the_kill_of_every_node(
    deploy_fresh: Deploy, topic: str
) -> None:
    cluster = deploy_fresh(3)
    library = Confluent()
    create_topic(cluster, library, topic, PARTITIONS)
    groups = [f"group-{number}" for number in range(30)]
    with IdempotentProducer(cluster.bootstrap, topic, PARTITIONS) as producer:
        with Committer(cluster, groups, topic) as committer:
            eventually(lambda: min(committer.acknowledged.values()) >= 20, within_s=240)
            eventually(lambda: len(producer.acknowledged) >= 2_000, within_s=240)
            cluster.kill_all()
        before = len(producer.acknowledged)
        cluster.start_all()
        eventually(lambda: len(producer.acknowledged) >= before + 2_000, within_s=240)
    assert producer.refused == []

    found = library.read(cluster.bootstrap, topic, dict.fromkeys(range(PARTITIONS), "beginning"))
    assert_as_acknowledged(found, producer.acknowledged)
    for group in groups:
        offset = library.committed(cluster.bootstrap, group)[0]
        assert committer.acknowledged[group] <= offset <= committer.sent[group]


def test_while_offsets_load_a_coordinator_says_so_and_never_that_there_are_none(
    deploy_fresh: Deploy, topic: str, group: str
) -> None:
    cluster = deploy_fresh(1)
    create_topic(cluster, Confluent(), topic, 1)
    last = fill_one_group(cluster, group, topic, MANY_COMMITS)
    cluster.kill_all()
    with OffsetReader(cluster.addresses[0], [group], topic) as reader:
        cluster.start_all()
        eventually(lambda: reader.codes[NO_ERROR] >= 100, within_s=240)
    assert Counter(offset for _, offset in reader.offsets) == {last: reader.codes[NO_ERROR]}
    assert set(reader.codes) <= PATIENT
    if not is_apache_kafka():  # which may be done before the first question comes
        assert reader.codes[COORDINATOR_LOAD_IN_PROGRESS] > 0


def test_an_orderly_stop_keeps_everything_too(deploy_fresh: Deploy, topic: str) -> None:
    cluster = deploy_fresh(2)
    library = Confluent()
    create_topic(cluster, library, topic, PARTITIONS)
    with (
        IdempotentProducer(cluster.bootstrap, topic, PARTITIONS) as producer,
        Committer(cluster, ["one", "two"], topic) as committer,
    ):
        eventually(lambda: min(committer.acknowledged.values()) >= 20, within_s=240)
        eventually(lambda: len(producer.acknowledged) >= 500, within_s=240)
    cluster.stop_nodes()
    cluster.start_all()
    found = library.read(cluster.bootstrap, topic, dict.fromkeys(range(PARTITIONS), "beginning"))
    assert_as_acknowledged(found, producer.acknowledged)
    for group, offset in committer.acknowledged.items():
        assert library.committed(cluster.bootstrap, group) == {0: offset}
