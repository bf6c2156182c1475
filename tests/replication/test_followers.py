"""The in-sync set of one partition: who counts, who joins, who leaves, and since when.

Source: docs/spec/cluster.md §3.2, §3.6 and §3.7; §3.11 checks R2, R3 and R8; §6 pitfalls 14, 15,
16, 17 and 22.
"""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.replication.followers import Followers
from barnabas.broker.replication.isr import maybe_shrink_isr
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.protocol.errors import ErrorCode, Refused
from tests.replication.logs import FakePartitionContext, ManualLogManager, a_batch, follow, lead

THREE: dict[str, Any] = {"replicas": [1, 2, 3], "isr": [1, 2, 3]}


@pytest.fixture
def partition(replicas: ReplicaManager) -> Partition:
    lead(replicas, "t", epoch=4, **THREE)
    return replicas.led("t", 0)


def append(partition: Partition, count: int = 1, acks: int = -1) -> list[ErrorCode]:
    appended = partition.append(a_batch(count), acks=acks, is_client=True)
    told: list[ErrorCode] = []
    partition.when_committed(appended.last_offset + 1, told.append)
    return told


def fetch(partition: Partition, offset: int, *nodes: int) -> None:
    for node in nodes:
        partition.follower_fetched(node, offset, 0)


def test_a_record_is_committed_when_every_replica_in_sync_has_it(partition: Partition) -> None:
    told = append(partition, 3)
    fetch(partition, 3, 2)
    assert (partition.high_watermark, told) == (0, [])
    fetch(partition, 2, 3)
    assert partition.high_watermark == 2
    fetch(partition, 3, 3)
    assert (partition.high_watermark, told) == (3, [ErrorCode.NONE])


def test_the_high_watermark_never_falls_when_a_follower_begins_anew(partition: Partition) -> None:
    append(partition, 3)
    fetch(partition, 3, 2, 3)
    fetch(partition, 1, 2)
    assert partition.high_watermark == 3


def test_nothing_is_known_of_a_follower_until_it_fetches_from_this_leader(
    replicas: ReplicaManager, partition: Partition
) -> None:
    append(partition)
    fetch(partition, 1, 2, 3)
    follow(replicas, "t", epoch=5)
    lead(replicas, "t", epoch=6, partition_epoch=6, **THREE)
    append(partition)
    fetch(partition, 2, 2)
    assert partition.high_watermark == 1
    fetch(partition, 2, 3)
    assert partition.high_watermark == 2


def test_a_leader_that_leads_on_in_a_new_epoch_remembers_positions(
    replicas: ReplicaManager, partition: Partition
) -> None:
    append(partition, 2)
    fetch(partition, 2, 2)
    lead(replicas, "t", epoch=5, partition_epoch=1, **THREE)
    assert partition.high_watermark == 0
    fetch(partition, 2, 3)
    assert partition.high_watermark == 2


def test_a_replica_that_stays_behind_leaves_the_set_and_counts_until_that_is_written(
    partition: Partition, context: FakePartitionContext
) -> None:
    append(partition)
    fetch(partition, 1, 2, 3)
    context.time += 31
    told = append(partition)
    fetch(partition, 2, 2)
    maybe_shrink_isr(partition)
    [change] = context.proposed
    assert list(change.isr) == [1, 2]
    assert (change.leader_epoch, change.controller_epoch, change.zk_version) == (4, 1, 0)
    assert (partition.high_watermark, told) == (1, [])
    context.write()
    assert (partition.high_watermark, told) == (2, [ErrorCode.NONE])
    assert (partition.isr, partition.zk_version) == ((1, 2), 1)


def test_an_idle_partition_keeps_its_set(
    partition: Partition, context: FakePartitionContext
) -> None:
    append(partition)
    fetch(partition, 1, 2, 3)
    context.time += 1000
    maybe_shrink_isr(partition)
    assert context.proposed == []


def test_a_replica_that_never_fetched_leaves_after_its_time(
    partition: Partition, context: FakePartitionContext
) -> None:
    context.time += 29
    maybe_shrink_isr(partition)
    assert context.proposed == []
    context.time += 2
    maybe_shrink_isr(partition)
    [change] = context.proposed
    assert list(change.isr) == [1]


def test_a_busy_follower_that_has_what_was_there_at_its_last_fetch_is_caught_up() -> None:
    followers = Followers()
    followers.begin([2], [2], 0.0, is_new_leader=True)
    for second in range(1, 100):
        followers.fetched(2, 10 * (second - 1), 0, 10 * second, float(second))
    known = followers.get(2)
    assert known is not None
    assert known.caught_up_at == 98.0
    assert followers.lagging([2], 1000, 99.0 - 30) == []
    followers.fetched(2, 400, 0, 1010, 100.0)
    assert known.caught_up_at == 98.0


def test_a_replica_joins_when_it_has_what_is_committed_and_counts_before_that_is_written(
    replicas: ReplicaManager, context: FakePartitionContext
) -> None:
    lead(replicas, "t", replicas=[1, 2, 3], isr=[1, 2])
    partition = replicas.led("t", 0)
    append(partition, 2)
    fetch(partition, 2, 2)
    assert partition.high_watermark == 2
    fetch(partition, 1, 3)
    assert context.proposed == []
    fetch(partition, 2, 3)
    [change] = context.proposed
    assert list(change.isr) == [1, 2, 3]
    append(partition, acks=1)
    fetch(partition, 3, 2)
    assert partition.high_watermark == 2
    context.write()
    assert partition.isr == (1, 2, 3)
    fetch(partition, 3, 3)
    assert partition.high_watermark == 3


def test_a_replica_that_lacks_what_former_leaders_wrote_does_not_join(
    replicas: ReplicaManager, context: FakePartitionContext
) -> None:
    lead(replicas, "t", epoch=1, replicas=[1, 2, 3], isr=[1, 2])
    partition = replicas.led("t", 0)
    append(partition, 5, acks=1)
    follow(replicas, "t", epoch=2)
    lead(replicas, "t", epoch=3, partition_epoch=3, replicas=[1, 2, 3], isr=[1, 2])
    assert (partition.high_watermark, partition.epoch_start) == (0, 5)
    fetch(partition, 4, 3)
    assert context.proposed == []
    fetch(partition, 5, 3)
    assert len(context.proposed) == 1


@pytest.mark.parametrize("live", [{1, 2}, set()])
def test_a_replica_whose_node_is_gone_does_not_join(
    replicas: ReplicaManager, context: FakePartitionContext, live: set[int]
) -> None:
    lead(replicas, "t", replicas=[1, 2, 3], isr=[1, 2])
    context.live = live
    fetch(replicas.led("t", 0), 0, 3)
    assert context.proposed == []


def test_one_change_is_under_way_at_a_time_and_a_new_order_ends_it(
    replicas: ReplicaManager, context: FakePartitionContext
) -> None:
    lead(replicas, "t", replicas=[1, 2, 3], isr=[1])
    partition = replicas.led("t", 0)
    fetch(partition, 0, 2, 3)
    [change] = context.proposed
    assert list(change.isr) == [1, 2]
    lead(replicas, "t", epoch=1, partition_epoch=1, replicas=[1, 2, 3], isr=[1])
    context.write()
    assert (partition.isr, partition.zk_version) == ((1,), 1)
    fetch(partition, 0, 3)
    assert [list(change.isr) for change in context.proposed] == [[1, 3]]


def test_with_too_few_in_sync_nothing_is_appended_for_all_and_nothing_is_committed(
    replicas: ReplicaManager, shelf: ManualLogManager, context: FakePartitionContext
) -> None:
    shelf.settings = {"min.insync.replicas": "2"}
    lead(replicas, "t", replicas=[1, 2, 3], isr=[1, 2])
    partition = replicas.led("t", 0)
    told = append(partition)
    context.time += 31
    maybe_shrink_isr(partition)
    context.write()
    assert (partition.isr, partition.high_watermark, told) == ((1,), 0, [])
    with pytest.raises(Refused, match="NOT_ENOUGH_REPLICAS"):
        append(partition)
    assert partition.log.end_offset == 1
    append(partition, acks=1)
    assert partition.high_watermark == 0
    fetch(partition, 2, 2)
    context.write()
    assert (partition.isr, partition.high_watermark, told) == ((1, 2), 2, [ErrorCode.NONE])


def test_no_more_replicas_are_asked_for_than_there_are(
    replicas: ReplicaManager, shelf: ManualLogManager
) -> None:
    shelf.settings = {"min.insync.replicas": "3"}
    lead(replicas, "t", replicas=[1, 2], isr=[1, 2])
    partition = replicas.led("t", 0)
    told = append(partition)
    fetch(partition, 1, 2)
    assert told == [ErrorCode.NONE]


def test_a_follower_takes_the_high_watermark_as_far_as_its_log_goes(
    replicas: ReplicaManager, shelf: ManualLogManager
) -> None:
    follow(replicas, "t")
    partition = replicas.get("t", 0)
    assert partition is not None
    batch = a_batch(3)
    shelf.log("t").append(batch, leader_epoch=1, is_client=True)
    for told, known in ((2, 2), (9, 3), (1, 3)):
        partition.follow_high_watermark(told)
        assert partition.high_watermark == known


def test_a_follower_forgets_what_the_leader_deleted_if_it_is_committed(
    replicas: ReplicaManager, shelf: ManualLogManager
) -> None:
    follow(replicas, "t")
    partition = replicas.get("t", 0)
    assert partition is not None
    for _ in range(3):
        shelf.log("t").append(a_batch(1), leader_epoch=1, is_client=True)
    partition.follow_log_start(2)
    assert partition.log.start_offset == 0
    partition.follow_high_watermark(2)
    partition.follow_log_start(2)
    assert partition.log.start_offset == 2


def test_who_caught_up_during_another_change_joins_when_that_is_through(
    replicas: ReplicaManager, context: FakePartitionContext
) -> None:
    lead(replicas, "t", replicas=[1, 2, 3], isr=[1])
    partition = replicas.led("t", 0)
    fetch(partition, 0, 2, 3)
    assert [list(change.isr) for change in context.proposed] == [[1, 2]]
    context.write()
    assert [list(change.isr) for change in context.proposed] == [[1, 2, 3]]
    context.write()
    assert partition.isr == (1, 2, 3)
