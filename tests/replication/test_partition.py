"""One replica: appends, the high watermark, whoever waits for it, and what readers may see."""

from __future__ import annotations

import pytest

from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.records import batch
from tests.replication.logs import ManualLogManager, a_batch, follow, lead


@pytest.fixture
def partition(replicas: ReplicaManager) -> Partition:
    lead(replicas, "t", epoch=4)
    return replicas.led("t", 0)


class Listening:
    def __init__(self) -> None:
        self.bytes = 0
        self.is_over = False

    def grew(self, count: int) -> None:
        self.bytes += count

    def end(self) -> None:
        self.is_over = True


def read(partition: Partition, offset: int, *, is_follower: bool = False) -> bytes:
    return partition.read(offset, bytes_max=10_000, at_least_one=True, is_follower=is_follower)


def test_with_one_replica_an_append_is_committed_at_once(partition: Partition) -> None:
    appended = partition.append(a_batch(3), acks=-1, is_client=True)
    assert (appended.base_offset, appended.last_offset) == (0, 2)
    assert partition.high_watermark == 3
    told: list[ErrorCode] = []
    partition.when_committed(3, told.append)
    assert told == [ErrorCode.NONE]


def test_the_leader_writes_offset_and_epoch_into_the_batch(partition: Partition) -> None:
    partition.append(a_batch(), acks=1, is_client=True)
    partition.append(a_batch(2), acks=1, is_client=True)
    stored = read(partition, 1)
    assert batch.base_offset(stored) == 1
    assert batch.leader_epoch(stored) == 4
    assert batch.crc_is_valid(stored, 0, len(stored))


def test_a_replica_that_is_not_led_takes_no_append_and_gives_no_data(
    replicas: ReplicaManager,
) -> None:
    follow(replicas, "t")
    partition = replicas.get("t", 0)
    assert partition is not None
    with pytest.raises(Refused, match="NOT_LEADER"):
        partition.append(a_batch(), acks=1, is_client=True)
    with pytest.raises(Refused, match="NOT_LEADER"):
        read(partition, 0)
    told: list[ErrorCode] = []
    partition.when_committed(0, told.append)
    assert told == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_acks_of_all_need_as_many_replicas_as_the_topic_asks(
    replicas: ReplicaManager, shelf: ManualLogManager
) -> None:
    shelf.settings = {"min.insync.replicas": "2"}
    lead(replicas, "one")
    replicas.led("one", 0).append(a_batch(), acks=-1, is_client=True)
    lead(replicas, "two", replicas=[1, 2])
    partition = replicas.led("two", 0)
    with pytest.raises(Refused, match="NOT_ENOUGH_REPLICAS"):
        partition.append(a_batch(), acks=-1, is_client=True)
    assert partition.log.end_offset == 0
    partition.append(a_batch(), acks=1, is_client=True)


def test_the_high_watermark_stays_while_others_of_the_isr_have_not_fetched(
    replicas: ReplicaManager,
) -> None:
    lead(replicas, "t", replicas=[1, 2], isr=[1, 2])
    partition = replicas.led("t", 0)
    partition.append(a_batch(), acks=-1, is_client=True)
    assert (partition.high_watermark, partition.log.end_offset) == (0, 1)
    assert read(partition, 0) == b""
    assert read(partition, 0, is_follower=True) != b""


async def test_where_each_record_must_be_on_disk_the_flush_commits(
    replicas: ReplicaManager, shelf: ManualLogManager
) -> None:
    shelf.settings = {"flush.messages": "1"}
    lead(replicas, "t")
    partition = replicas.led("t", 0)
    told: list[tuple[int, ErrorCode]] = []
    for end in (2, 4):
        partition.append(a_batch(2), acks=-1, is_client=True)
        partition.when_committed(end, lambda code, end=end: told.append((end, code)))  # type: ignore[misc]
    assert (partition.high_watermark, told) == (0, [])
    assert read(partition, 0) == b""
    await shelf.flush()
    assert partition.high_watermark == 4
    assert told == [(2, ErrorCode.NONE), (4, ErrorCode.NONE)]


def test_whoever_waits_is_told_when_leadership_is_lost(
    replicas: ReplicaManager, shelf: ManualLogManager
) -> None:
    shelf.settings = {"flush.messages": "1"}
    lead(replicas, "t")
    partition = replicas.led("t", 0)
    partition.append(a_batch(), acks=-1, is_client=True)
    told: list[ErrorCode] = []
    partition.when_committed(1, told.append)
    reader = Listening()
    partition.fetch_waiters.wait(reader, is_committed=False)
    follow(replicas, "t")
    assert told == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert reader.is_over


def test_a_reader_is_told_how_much_further_it_can_read(partition: Partition) -> None:
    reader, gone = Listening(), Listening()
    partition.fetch_waiters.wait(reader, is_committed=False)
    partition.fetch_waiters.wait(gone, is_committed=False)
    partition.fetch_waiters.forget(gone)
    sizes = [len(a_batch(count)) for count in (1, 5)]
    for count in (1, 5):
        partition.append(a_batch(count), acks=1, is_client=True)
    assert reader.bytes == sum(sizes)
    assert gone.bytes == 0


async def test_a_reader_is_not_told_before_what_it_waits_for_is_committed(
    replicas: ReplicaManager, shelf: ManualLogManager
) -> None:
    shelf.settings = {"flush.messages": "1"}
    lead(replicas, "t")
    partition, reader = replicas.led("t", 0), Listening()
    partition.fetch_waiters.wait(reader, is_committed=False)
    partition.append(a_batch(), acks=1, is_client=True)
    assert reader.bytes == 0
    await shelf.flush()
    assert reader.bytes == len(a_batch())


def test_a_batch_sent_again_is_answered_with_its_first_offsets(partition: Partition) -> None:
    sent = [
        batch.build_batch(
            [(None, b"v")],
            timestamp_ms=1,
            producer_id=7,
            producer_epoch=0,
            base_sequence=0,
        )
        for _ in range(2)
    ]
    first, again = (partition.append(one, acks=-1, is_client=True) for one in sent)
    assert (first.is_duplicate, again.is_duplicate) == (False, True)
    assert again.base_offset == first.base_offset == 0
    assert partition.log.end_offset == 1


@pytest.mark.parametrize(("claimed", "code"), [(-1, None), (4, None), (3, 74), (5, 75)], ids=str)
def test_a_reader_with_another_leader_epoch_is_told_so(
    partition: Partition, claimed: int, code: int | None
) -> None:
    if code is None:
        partition.check_epoch(claimed)
        return
    with pytest.raises(Refused) as refused:
        partition.check_epoch(claimed)
    assert refused.value.code == code


def test_reading_outside_of_the_log_is_refused(partition: Partition) -> None:
    partition.append(a_batch(2), acks=1, is_client=True)
    assert read(partition, 2) == b""
    for offset in (-1, 3):
        with pytest.raises(Refused, match="OFFSET_OUT_OF_RANGE"):
            read(partition, offset)
