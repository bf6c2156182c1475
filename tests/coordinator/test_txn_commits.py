"""TxnOffsetCommit and the ends of transactions, as a client and the receiver of markers see them.

Source: docs/spec/transactions.md §4, checks T4.3, T4.4, T4.8 and T4.9.
"""

from __future__ import annotations

import json

import pytest

from barnabas.coordinator.group_state import GroupState
from barnabas.coordinator.offsets import TransactionalCommit
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    offset_commit,
    offset_delete,
)
from barnabas.protocol.offsets_topic import OffsetKey, offset_value, parse_key
from barnabas.protocol.records import batch
from barnabas.protocol.records.batch import build_batch
from barnabas.protocol.records.record import Record
from tests.coordinator.coordinator_harness import (
    NONE,
    UNSTABLE,
    CoordinatorHarness,
    G,
    Make,
    codes_of,
    of_many,
    partition_of,
    stable_codes,
)
from tests.records.vectors import GOLDEN

# -- a transaction's way --------------------------------------------------------------------------


@pytest.mark.parametrize(("is_commit", "served"), [(True, 9), (False, 5)])
def test_a_staged_offset_is_served_when_its_transaction_commits(
    harness: CoordinatorHarness, is_commit: bool, served: int
) -> None:
    """T4.3: before, the old value, and 88 for who requires a stable one."""
    harness.commit(5)
    assert codes_of(harness.txn_commit(9)) == [NONE]
    assert harness.committed() == 5
    assert stable_codes(harness, 0, 1) == [UNSTABLE, NONE]
    harness.end_transaction(is_commit=is_commit)
    assert harness.committed() == served
    assert stable_codes(harness) == [NONE]
    harness.reload()
    assert harness.committed() == served


def test_all_offsets_of_a_group_leave_out_what_only_a_transaction_has(
    harness: CoordinatorHarness,
) -> None:
    harness.commit(5)
    harness.txn_commit(9)
    harness.txn_commit(9, index=1)
    (topic,) = harness.fetch(topics=None, is_stable=True).answer.topics
    assert [(p.partition_index, p.error_code) for p in topic.partitions] == [(0, UNSTABLE)]


def test_two_producers_may_stage_the_same_partition_and_the_later_record_wins(
    harness: CoordinatorHarness,
) -> None:
    harness.txn_commit(8, producer_id=8)
    harness.txn_commit(9, producer_id=7)
    harness.end_transaction(producer_id=7)
    assert harness.committed() == 9
    assert stable_codes(harness) == [UNSTABLE]
    harness.end_transaction(producer_id=8)
    assert harness.committed() == 9
    assert stable_codes(harness) == [NONE]


def test_of_several_commits_in_one_transaction_the_last_counts(harness: CoordinatorHarness) -> None:
    for offset in (3, 9, 6):
        harness.txn_commit(offset)
    harness.end_transaction()
    assert harness.committed() == 6


def test_a_plain_commit_between_record_and_marker_stays(harness: CoordinatorHarness) -> None:
    """T4.4: Kafka's "ordered": 10 in the transaction, 6 plainly, then the transaction commits."""
    harness.txn_commit(10)
    harness.commit(6)
    harness.end_transaction()
    assert harness.committed() == 6
    harness.reload()
    assert harness.committed() == 6


def test_a_marker_touches_the_groups_of_its_own_partition_only(harness: CoordinatorHarness) -> None:
    other = next(name for name in "abcdefgh" if partition_of(name) != G)
    harness.txn_commit(4)
    harness.txn_commit(4, group=other)
    harness.end_transaction()
    assert harness.committed() == 4
    assert harness.committed(group=other) == -1


def test_a_marker_that_is_repeated_changes_nothing(harness: CoordinatorHarness) -> None:
    harness.txn_commit(4)
    harness.end_transaction()
    harness.commit(2)
    harness.end_transaction()
    harness.end_transaction(is_commit=False)
    assert harness.committed() == 2


def test_a_marker_of_a_partition_that_is_not_owned_is_left_to_the_load(
    harness: CoordinatorHarness,
) -> None:
    harness.txn_commit(4)
    harness.coordinator.on_resigned(G, None)
    harness.end_transaction()
    harness.elect(G, 3)
    harness.turn()
    assert harness.committed() == 4


def test_a_group_with_staged_offsets_alone_is_there_after_a_load(
    harness: CoordinatorHarness,
) -> None:
    harness.txn_commit(4)
    harness.reload()
    assert harness.group().state is GroupState.EMPTY
    assert stable_codes(harness) == [UNSTABLE]
    harness.end_transaction()
    assert harness.committed() == 4


@pytest.mark.parametrize("is_commit", [True, False])
def test_the_next_transaction_is_not_ended_by_the_marker_of_this_one(
    harness: CoordinatorHarness, is_commit: bool
) -> None:
    """T4.8 (KAFKA-17507): its commit is appended before that marker is committed."""
    harness.txn_commit(1)
    harness.log.is_replicated = False
    harness.txn_commit(2)
    harness.end_transaction(is_commit=is_commit)
    harness.txn_commit(3)
    harness.txn_commit(4, index=1)
    harness.log.replicate(G)
    assert harness.committed() == (2 if is_commit else -1)
    assert stable_codes(harness, 0, 1) == [UNSTABLE, UNSTABLE]
    harness.end_transaction(is_commit=False)
    harness.log.replicate(G)
    assert harness.committed() == (2 if is_commit else -1)
    assert stable_codes(harness, 0, 1) == [NONE, NONE]
    harness.reload()
    assert harness.committed() == (2 if is_commit else -1)


def test_a_producer_that_commits_in_a_loop_keeps_one_commit_behind_it(
    harness: CoordinatorHarness,
) -> None:
    for offset in range(20):
        harness.txn_commit(offset)
    commit = harness.group().offsets.transactional[7]["orders", 0]
    assert isinstance(commit.before, TransactionalCommit)
    assert commit.before.before is None


# -- what is written ------------------------------------------------------------------------------


def test_the_batch_is_the_one_that_kafka_writes(make_harness: Make) -> None:
    """T4.9: all of tests/golden/txn-data.json but for the times."""
    harness = make_harness(partitions=2)
    harness.topics.counts["txn-in"] = 2
    logs = json.loads((GOLDEN / "txn-data.json").read_text())["logs"]
    seen = 0
    for name, told in sorted(logs.items()):
        if not name.startswith("__consumer_offsets"):
            continue
        for found in told["batches"]:
            if not found["is_transactional"] or found["is_control"]:
                continue
            (record,) = found["records"]
            key, value = record["key"]["data"], record["value"]["data"]
            asked = harness.txn_commit(
                value["offset"],
                group=key["group"],
                topic=key["topic"],
                index=key["partition"],
                metadata=value["metadata"],
                producer_id=found["producer_id"],
                producer_epoch=found["producer_epoch"],
            )
            assert codes_of(asked) == [NONE]
            now = harness.loop.wall_ms()
            index = int(name[-1])
            written = harness.log.partition(index).batches[-1]
            # Kafka's own, with this test's time in the one place of the value and in the header.
            rebuilt = build_batch(
                [
                    (
                        bytes.fromhex(record["key_hex"]),
                        bytes.fromhex(record["value_hex"])[:-8] + now.to_bytes(8, "big"),
                    )
                ],
                timestamp_ms=now,
                producer_id=found["producer_id"],
                producer_epoch=found["producer_epoch"],
                base_sequence=found["base_sequence"],
                is_transactional=True,
            )
            batch.assign(rebuilt, batch.base_offset(written), 0)
            assert written == rebuilt
            assert len(written) == found["size"]
            seen += 1
    assert seen == 5


def test_each_request_is_a_batch_of_its_own_in_the_order_of_arrival(
    harness: CoordinatorHarness,
) -> None:
    plain = offset_commit.OffsetCommitRequest(
        group_id="g",
        topics=[
            offset_commit.Topic(
                name="orders",
                partitions=[
                    offset_commit.Partition(
                        partition_index=3, committed_offset=1, committed_metadata=""
                    )
                ],
            )
        ],
    )
    asked = [
        harness.hand_in("offset_commit", plain, 8),
        harness.hand_in("txn_offset_commit", of_many("g", ("orders", 0, 5), ("orders", 1, 6)), 3),
        harness.hand_in("txn_offset_commit", of_many("g", ("orders", 0, 7)), 3),
        harness.hand_in("offset_commit", plain, 8),
        harness.hand_in("offset_commit", plain, 8),
    ]
    harness.turn()
    assert [codes_of(one) for one in asked] == [[NONE], [NONE, NONE], [NONE], [NONE], [NONE]]
    found = [
        (batch.is_transactional(data), [key_of(r) for r in batch.records(data)])
        for data in harness.log.partition(G).batches
    ]
    assert found == [(False, [3]), (True, [0, 1]), (True, [0]), (False, [3, 3])]


def key_of(record: Record) -> int:
    key = parse_key(record.key or b"")
    assert isinstance(key, OffsetKey)
    return key.partition


def test_a_tombstone_of_the_same_turn_stays_before_the_commit_that_follows_it(
    harness: CoordinatorHarness,
) -> None:
    """The journal appends at the end of the turn, a transaction's batch at once."""
    harness.commit(1)
    request = offset_delete.OffsetDeleteRequest(
        group_id="g",
        topics=[
            offset_delete.Topic(
                name="orders", partitions=[offset_delete.Partition(partition_index=0)]
            )
        ],
    )
    harness.hand_in("offset_delete", request, 0)
    harness.hand_in("txn_offset_commit", of_many("g", ("orders", 0, 5)), 3)
    harness.turn()
    assert stable_codes(harness) == [UNSTABLE]
    harness.reload()
    assert stable_codes(harness) == [UNSTABLE]
    harness.end_transaction()
    assert harness.committed() == 5


def test_the_guard_of_the_verification_goes_to_the_log(harness: CoordinatorHarness) -> None:
    harness.txn_commit(1)
    assert harness.log.guards == [harness.verification.guard]
    assert harness.verification.asked == [(G, "t", 7, 0)]


def test_a_commit_whose_transaction_ended_since_it_was_verified_stages_nothing(
    harness: CoordinatorHarness,
) -> None:
    harness.log.outdated_guard = harness.verification.guard
    assert codes_of(harness.txn_commit(1)) == [ErrorCode.INVALID_TXN_STATE]
    assert "g" not in harness.coordinator.registry.groups
    term = harness.coordinator.registry.term_at(G)
    assert term is not None
    assert not term.open_groups


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_the_batch_is_compressed_as_the_topic_says(make_harness: Make, codec: int) -> None:
    harness = make_harness(offsets_compression_codec=codec)
    harness.txn_commit(1, metadata="x" * 500)
    assert batch.codec(harness.log.partition(G).batches[-1]) == codec
    harness.reload()
    harness.end_transaction()
    assert harness.committed() == 1


def test_the_value_of_a_record_is_of_version_3_with_the_leader_epoch(
    harness: CoordinatorHarness,
) -> None:
    harness.txn_commit(1, version=2, leader_epoch=4, metadata=None)
    now = harness.loop.wall_ms()
    (record,) = harness.log.records(G)
    assert record.value == offset_value(1, 4, "", now)
