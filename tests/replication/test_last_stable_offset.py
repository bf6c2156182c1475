"""Readers of committed records: how far they see, and when they are told: docs/spec/log.md §7.3."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.storage.retention import TimeAndSize
from barnabas.protocol.errors import Refused
from barnabas.protocol.records.batch import build_batch
from barnabas.protocol.records.control import Marker, encode_marker
from tests.replication.logs import NOW_MS, ManualLogManager, a_batch, follow, lead


class Listening:
    """A waiter that counts."""

    def __init__(self, partition: Partition, *, is_committed: bool) -> None:
        self.bytes = 0
        self.is_over = False
        partition.fetch_waiters.wait(self, is_committed=is_committed)

    def grew(self, count: int) -> None:
        self.bytes += count

    def end(self) -> None:
        self.is_over = True


def in_transaction(producer: int, sequence: int = 0, *, epoch: int = 0) -> bytearray:
    return build_batch(
        [(b"key", b"value")],
        timestamp_ms=NOW_MS,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=True,
    )


def marker(
    producer: int, kind: Marker = Marker.COMMIT, *, epoch: int = 0, coordinator_epoch: int = 0
) -> bytearray:
    return build_batch(
        [encode_marker(kind, coordinator_epoch)],
        timestamp_ms=NOW_MS,
        producer_id=producer,
        producer_epoch=epoch,
        is_transactional=True,
        is_control=True,
    )


def append(partition: Partition, *batches: bytearray) -> None:
    for each in batches:
        partition.append(each, acks=1, is_client=False)


@pytest.fixture
def partition(replicas: ReplicaManager) -> Partition:
    lead(replicas, "t")
    return replicas.led("t", 0)


def read(partition: Partition, offset: int, **more: Any) -> bytes:
    return partition.read(offset, bytes_max=10_000, at_least_one=True, **more)


def test_committed_records_end_where_an_open_transaction_begins(partition: Partition) -> None:
    append(partition, a_batch(2), in_transaction(7), a_batch())
    assert (partition.high_watermark, partition.last_stable_offset) == (4, 2)
    assert read(partition, 0, is_committed=True) == read(partition, 0)[: len(a_batch(2))]
    assert read(partition, 2, is_committed=True) == b""
    assert read(partition, 3, is_committed=True) == b""
    append(partition, marker(7))
    assert partition.last_stable_offset == 5
    assert read(partition, 0, is_committed=True) == read(partition, 0)


async def test_a_marker_counts_when_it_is_committed(
    replicas: ReplicaManager, shelf: ManualLogManager
) -> None:
    shelf.settings = {"flush.messages": "1"}
    lead(replicas, "t")
    partition = replicas.led("t", 0)
    append(partition, a_batch(), in_transaction(7))
    await shelf.flush()
    append(partition, marker(7))
    assert (partition.high_watermark, partition.last_stable_offset) == (2, 1)
    await shelf.flush()
    assert (partition.high_watermark, partition.last_stable_offset) == (3, 3)


def test_a_reader_of_committed_records_sleeps_until_the_transaction_ends(
    partition: Partition,
) -> None:
    consumer = Listening(partition, is_committed=False)
    committed = Listening(partition, is_committed=True)
    append(partition, a_batch())
    assert consumer.bytes == committed.bytes == len(a_batch())
    append(partition, in_transaction(7), a_batch(), in_transaction(7, 1))
    assert committed.bytes == len(a_batch()) < consumer.bytes
    append(partition, marker(7))
    assert committed.bytes > consumer.bytes


def test_it_is_told_when_the_earlier_of_two_transactions_ends(partition: Partition) -> None:
    append(partition, in_transaction(7), in_transaction(8), a_batch())
    committed = Listening(partition, is_committed=True)
    append(partition, marker(8), a_batch())
    assert committed.bytes == 0
    append(partition, in_transaction(8, 1))
    append(partition, marker(7))
    assert committed.bytes > 0
    assert partition.last_stable_offset == 5


def test_after_the_last_transaction_it_is_told_of_bytes_again(partition: Partition) -> None:
    append(partition, in_transaction(7), marker(7))
    committed = Listening(partition, is_committed=True)
    append(partition, a_batch())
    assert committed.bytes == len(a_batch())
    append(partition, in_transaction(7, 1))
    assert committed.bytes == len(a_batch())


def test_a_new_leader_knows_what_its_log_holds_back(replicas: ReplicaManager) -> None:
    lead(replicas, "t")
    append(replicas.led("t", 0), in_transaction(7), a_batch())
    follow(replicas, "t")
    lead(replicas, "t", epoch=2, partition_epoch=2)
    partition = replicas.led("t", 0)
    committed = Listening(partition, is_committed=True)
    append(partition, a_batch())
    assert (partition.last_stable_offset, committed.bytes) == (0, 0)
    append(partition, marker(7))
    assert partition.last_stable_offset == 4
    assert committed.bytes > 0


def test_a_follower_forgets_what_ended_below_its_mark(replicas: ReplicaManager) -> None:
    lead(replicas, "t")
    partition = replicas.led("t", 0)
    append(partition, *(a_batch() for _ in range(3)))
    follow(replicas, "t")
    log = partition.log
    for sequence in range(3):
        for each in (in_transaction(7, sequence), marker(7)):
            each[:8] = log.end_offset.to_bytes(8, "big")
            log.append_as_follower(bytes(each))
    assert partition.last_stable_offset == 3
    assert log.producers.transactions
    partition.follow_high_watermark(log.end_offset)
    assert not log.producers.transactions


def test_whoever_waits_is_told_of_the_end_of_leadership_once(replicas: ReplicaManager) -> None:
    lead(replicas, "t")
    partition = replicas.led("t", 0)
    waiting = [Listening(partition, is_committed=flag) for flag in (False, True)]
    partition.fetch_waiters.forget(waiting[1])
    follow(replicas, "t")
    assert [each.is_over for each in waiting] == [True, False]


async def test_deleted_records_of_an_open_transaction_hold_nobody_back(
    partition: Partition,
) -> None:
    """The last stable offset is never below the log's start; the transaction stays open."""
    append(partition, a_batch(), in_transaction(7), in_transaction(7, 1), a_batch())
    partition.log.advance_start(3)
    assert partition.last_stable_offset == 3
    assert read(partition, 3, is_committed=True) == b""
    append(partition, marker(7, Marker.ABORT))
    assert partition.last_stable_offset == 5
    assert [one.first_offset for one in partition.log.aborted_in(3, 200)] == [1]
    append(partition, in_transaction(7, 2))
    assert partition.last_stable_offset == 5


async def test_retention_takes_segments_of_an_open_transaction(
    replicas: ReplicaManager, shelf: ManualLogManager
) -> None:
    shelf.settings = {"segment.bytes": "1000", "retention.bytes": "1000"}
    lead(replicas, "t")
    partition = replicas.led("t", 0)
    append(partition, in_transaction(7))
    for _ in range(6):
        append(partition, a_batch(value=b"v" * 900))
    count = partition.log.count_deletable(TimeAndSize(), partition.high_watermark, NOW_MS)
    partition.log.delete_oldest(count)
    assert partition.last_stable_offset == partition.log.start_offset > 0
    append(partition, marker(7))
    assert partition.last_stable_offset == partition.log.end_offset


def test_a_second_marker_of_a_later_epoch_fences_and_ends_nothing(partition: Partition) -> None:
    """See docs/spec/transactions.md §5.2: it counts for epochs and time only."""
    append(partition, in_transaction(7), marker(7, Marker.ABORT))
    append(partition, marker(7, Marker.ABORT, epoch=1, coordinator_epoch=3))
    assert partition.last_stable_offset == 3
    assert len(partition.log.aborted_in(0, 300)) == 1
    with pytest.raises(Refused, match="INVALID_PRODUCER_EPOCH"):
        append(partition, in_transaction(7, 1))
    with pytest.raises(Refused, match="COORDINATOR_FENCED"):
        append(partition, marker(7, epoch=1, coordinator_epoch=2))
