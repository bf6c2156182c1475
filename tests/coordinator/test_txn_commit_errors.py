"""What TxnOffsetCommit refuses, and what becomes of appends that fail.

Source: docs/spec/transactions.md §4.1 to §4.3, checks T4.1, T4.2 and T4.7, and its traps T8.10,
T8.19 and T8.23.
"""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.coordinator.group_state import GroupState
from barnabas.protocol.errors import ErrorCode
from tests.coordinator.coordinator_harness import (
    NONE,
    UNSTABLE,
    CoordinatorHarness,
    G,
    Make,
    codes_of,
    of_many,
    stable_codes,
)

# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (0, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (4, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
def test_while_loading_old_producers_are_told_something_they_know(
    make_harness: Make, version: int, code: ErrorCode
) -> None:
    """T4.1."""
    harness = make_harness(is_elected=False)
    harness.topics.may_be_led.add(G)
    assert codes_of(harness.txn_commit(1, version=version)) == [code]
    harness.elect(G, 1)
    harness.turn()
    harness.verification.code = ErrorCode.NETWORK_EXCEPTION
    assert codes_of(harness.txn_commit(1, version=version)) == [code]


def test_a_generation_fences_who_lost_the_partition(harness: CoordinatorHarness) -> None:
    """T4.2 (KIP-447)."""
    (member,) = harness.stable()
    generation = harness.group().generation
    fields: dict[str, Any] = {"member_id": member, "generation_id": generation}
    assert codes_of(harness.txn_commit(1, **fields)) == [NONE]
    stale = {**fields, "generation_id": generation - 1}
    assert codes_of(harness.txn_commit(2, **stale)) == [ErrorCode.ILLEGAL_GENERATION]
    foreign = {**fields, "member_id": "x"}
    assert codes_of(harness.txn_commit(2, **foreign)) == [ErrorCode.UNKNOWN_MEMBER_ID]
    unknown = {**fields, "group_instance_id": "nobody"}
    assert codes_of(harness.txn_commit(2, **unknown)) == [ErrorCode.UNKNOWN_MEMBER_ID]
    without_generation: dict[str, Any] = {"member_id": "x"}
    assert codes_of(harness.txn_commit(2, **without_generation)) == [ErrorCode.UNKNOWN_MEMBER_ID]
    harness.end_transaction()
    assert harness.committed() == 1


def test_an_instance_that_was_replaced_is_fenced(harness: CoordinatorHarness) -> None:
    """T4.2."""
    joined = harness.join(version=5, group_instance_id="i")
    old = joined.answer.member_id
    harness.sync(old, joined.answer.generation_id, {old: b""}, version=3, group_instance_id="i")
    harness.join(version=5, group_instance_id="i")
    asked = harness.txn_commit(
        1, member_id=old, generation_id=joined.answer.generation_id, group_instance_id="i"
    )
    assert codes_of(asked) == [ErrorCode.FENCED_INSTANCE_ID]


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_who_says_nothing_of_itself_may_in_any_state(
    harness: CoordinatorHarness, version: int
) -> None:
    """T4.2: versions below 3 cannot (aiokafka)."""
    harness.stable()
    assert codes_of(harness.txn_commit(1, version=version)) == [NONE]


def test_a_rebalance_refuses_nobody_of_the_current_generation(harness: CoordinatorHarness) -> None:
    """No 27, unlike a plain commit."""
    member = harness.join().answer.member_id
    assert harness.group().state is GroupState.COMPLETING
    generation = harness.group().generation
    asked = harness.txn_commit(1, member_id=member, generation_id=generation)
    assert codes_of(asked) == [NONE]


def test_a_commit_in_a_transaction_is_no_sign_of_life(harness: CoordinatorHarness) -> None:
    (member,) = harness.stable()
    generation = harness.group().generation
    harness.wait(6)
    harness.txn_commit(1, member_id=member, generation_id=generation)
    harness.wait(6)
    assert not harness.group().members


def test_a_group_nobody_knows_is_made_with_the_append_and_not_before(
    harness: CoordinatorHarness,
) -> None:
    harness.verification.code = ErrorCode.INVALID_TXN_STATE
    harness.txn_commit(1)
    harness.verification.code = NONE
    refused = harness.txn_commit(1, generation_id=3, member_id="x")
    assert codes_of(refused) == [ErrorCode.UNKNOWN_MEMBER_ID]
    harness.log.append_fails_with = ErrorCode.NOT_ENOUGH_REPLICAS
    assert codes_of(harness.txn_commit(1)) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert "g" not in harness.coordinator.registry.groups
    harness.log.append_fails_with = None
    assert codes_of(harness.txn_commit(1)) == [NONE]
    assert "g" in harness.coordinator.registry.groups


def test_partitions_are_looked_at_before_the_group(harness: CoordinatorHarness) -> None:
    """Order of docs/spec/transactions.md §4.1: 3, then 24, then the rest."""
    known = codes_of(
        harness.ask(
            "txn_offset_commit", of_many("", ("orders", 0, 1), ("orders", 9, 1), ("no", 0, 1)), 3
        )
    )
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert sorted(known) == sorted([ErrorCode.INVALID_GROUP_ID, unknown, unknown])
    asked = harness.ask("txn_offset_commit", of_many("g", ("no", 0, 1)), 3)
    assert codes_of(asked) == [unknown]
    assert not harness.verification.asked


def test_a_node_that_has_not_heard_of_the_topics_asks_for_another_try(
    harness: CoordinatorHarness,
) -> None:
    harness.topics.are_known = False
    del harness.topics.counts["orders"]
    assert codes_of(harness.txn_commit(1)) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]


def test_a_partition_that_becomes_known_while_others_are_asked_keeps_its_refusal(
    harness: CoordinatorHarness,
) -> None:
    """A record without a key was written for it, which ended every later load of the groups."""
    harness.topics.are_known = False
    known = harness.topics.counts.pop("orders")
    harness.verification.is_held = True
    asked = harness.txn_commit(42)
    harness.topics.are_known = True
    harness.topics.counts["orders"] = known
    harness.verification.answer()
    assert codes_of(asked) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    harness.verification.is_held = False
    assert codes_of(harness.txn_commit(43)) == [NONE]
    harness.end_transaction()
    harness.reload()
    assert harness.committed() == 43


def test_an_unknown_partition_and_long_metadata_hold_up_no_other(make_harness: Make) -> None:
    harness = make_harness(metadata_units_max=10)
    request = of_many("g", ("orders", 0, 1), ("orders", 9, 1), ("clicks", 0, 2))
    request.topics[0].partitions[0].committed_metadata = "x" * 11
    asked = harness.ask("txn_offset_commit", request, 3)
    found = {
        (topic.name, part.partition_index): part.error_code
        for topic in asked.answer.topics
        for part in topic.partitions
    }
    assert found == {
        ("orders", 0): ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ("orders", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("clicks", 0): NONE,
    }


def test_of_a_partition_named_twice_the_last_entry_counts(harness: CoordinatorHarness) -> None:
    asked = harness.ask("txn_offset_commit", of_many("g", ("orders", 0, 5), ("orders", 0, 4)), 3)
    assert codes_of(asked) == [NONE]
    harness.end_transaction()
    assert harness.committed() == 4


def test_a_request_larger_than_a_batch_is_refused(harness: CoordinatorHarness) -> None:
    harness.log.bytes_max = 100
    asked = harness.txn_commit(1, metadata="x" * 100)
    assert codes_of(asked) == [ErrorCode.INVALID_COMMIT_OFFSET_SIZE]
    assert "g" not in harness.coordinator.registry.groups


def test_very_many_partitions_are_prepared_in_turns_and_written_at_once(
    harness: CoordinatorHarness,
) -> None:
    harness.topics.counts["orders"] = 2000
    request = of_many("g", *(("orders", index, index) for index in range(1200)))
    asked = harness.hand_in("txn_offset_commit", request, 3)
    assert not harness.verification.asked
    harness.turn()
    assert codes_of(asked) == [NONE] * 1200
    assert harness.log.appends == [(G, 1200)]
    harness.end_transaction()
    assert harness.committed(index=1199) == 1199


def test_a_topic_deleted_during_the_verification_gets_no_offset(
    harness: CoordinatorHarness,
) -> None:
    harness.verification.is_held = True
    asked = harness.txn_commit(1)
    del harness.topics.counts["orders"]
    harness.coordinator.topics_deleted(["orders"])
    harness.verification.answer()
    assert codes_of(asked) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert not harness.log.records(G)


# -- the verification -----------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
def test_what_the_verification_says_is_told_as_the_client_understands_it(
    harness: CoordinatorHarness, version: int, raw: ErrorCode, told: ErrorCode
) -> None:
    """T8.10 (KAFKA-16386): no 13. T8.23: no 48 of what passes by itself, 47 instead of 90."""
    harness.verification.code = raw
    if told is ErrorCode.TRANSACTION_ABORTABLE and version < 4:
        told = ErrorCode.INVALID_TXN_STATE
    if told is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < 2:
        told = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert codes_of(harness.txn_commit(1, version=version)) == [told]
    assert not harness.log.records(G)


def test_nothing_is_staged_before_the_verification_and_all_is_checked_after_it(
    harness: CoordinatorHarness,
) -> None:
    """T8.10 (KAFKA-15784)."""
    (member,) = harness.stable()
    generation = harness.group().generation
    harness.commit(1, member_id=member, generation_id_or_member_epoch=generation)
    written = len(harness.log.records(G))
    harness.verification.is_held = True
    asked = harness.txn_commit(2, member_id=member, generation_id=generation)
    assert stable_codes(harness) == [NONE]
    harness.leave(member)
    harness.verification.answer()
    assert codes_of(asked) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert stable_codes(harness) == [NONE]
    after = harness.log.records(G)[written:]
    assert not [r for r in after if r.key is not None and r.key[:2] == b"\0\1"]


def test_who_waits_for_a_verification_is_told_at_once_that_the_group_has_moved(
    harness: CoordinatorHarness,
) -> None:
    """T8.19: never silence, and never an answer twice."""
    harness.verification.is_held = True
    asked = harness.txn_commit(1)
    assert not asked.is_answered
    harness.log.resign(G)
    harness.coordinator.on_resigned(G, 1)
    assert codes_of(asked) == [ErrorCode.NOT_COORDINATOR]
    harness.elect(G, 2)
    harness.turn()
    harness.verification.answer()
    assert not [r for r in harness.log.records(G) if r.key is not None]


def test_who_waits_for_the_append_is_told_at_once_that_the_group_has_moved(
    harness: CoordinatorHarness,
) -> None:
    """T8.19."""
    harness.log.is_replicated = False
    asked = harness.txn_commit(1)
    harness.log.resign(G)
    harness.coordinator.on_resigned(G, 1)
    assert codes_of(asked) == [ErrorCode.NOT_COORDINATOR]


def test_without_verification_there_are_no_transactions(harness: CoordinatorHarness) -> None:
    harness.coordinator._transactional_commits._verification = None
    assert codes_of(harness.txn_commit(1)) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


# -- appends that fail ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
    ],
)
def test_of_two_commits_of_which_the_second_fails_the_first_counts(
    harness: CoordinatorHarness, failure: ErrorCode, told: ErrorCode
) -> None:
    """T4.7: Kafka forgets the first, which a reload finds again."""
    harness.txn_commit(1)
    harness.log.append_fails_with = failure
    asked = harness.ask("txn_offset_commit", of_many("g", ("orders", 0, 2), ("orders", 1, 2)), 3)
    assert codes_of(asked) == [told, told]
    harness.log.append_fails_with = None
    assert stable_codes(harness, 0, 1) == [UNSTABLE, NONE]
    harness.end_transaction()
    assert harness.committed() == 1
    assert harness.committed(index=1) == -1


def test_a_commit_whose_outcome_is_unknown_stays_until_its_marker(
    harness: CoordinatorHarness,
) -> None:
    """The record is in the log, and the marker counts it (docs/spec/transactions.md §4.3)."""
    harness.log.is_replicated = False
    asked = harness.txn_commit(3)
    harness.wait(6)
    assert codes_of(asked) == [ErrorCode.REQUEST_TIMED_OUT]
    assert stable_codes(harness) == [UNSTABLE]
    harness.end_transaction()
    assert stable_codes(harness) == [UNSTABLE]
    harness.log.replicate(G)
    assert harness.committed() == 3
    harness.reload()
    assert harness.committed() == 3


def test_a_commit_whose_outcome_is_unknown_is_gone_when_its_record_was_cut_off(
    harness: CoordinatorHarness,
) -> None:
    harness.log.is_replicated = False
    harness.txn_commit(3)
    harness.wait(6)
    harness.log.resign(G)
    harness.coordinator.on_resigned(G, 1)
    harness.log.partition(G).truncate(0)
    harness.log.is_replicated = True
    harness.elect(G, 2)
    harness.turn()
    assert stable_codes(harness) == [NONE]
    assert harness.committed() == -1
