"""AddPartitionsToTxn and AddOffsetsToTxn: checks T2.4, T2.6, T2.7 and the trap T8.11; verification.

Source: docs/spec/transactions.md §2.5 and §2.7.
"""

from __future__ import annotations

import pytest

from barnabas.coordinator.ports import OFFSETS_TOPIC, TRANSACTION_TOPIC
from barnabas.coordinator.transactions.transaction_state import TransactionState
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.hashing import group_partition
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    Transaction,
)
from tests.coordinator.transactions.test_end_txn import reach
from tests.coordinator.transactions.transactions_harness import (
    CODES,
    TransactionsHarness,
    codes,
    partition_of,
    topics_of,
)

STATE = TransactionState
NONE = ErrorCode.NONE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
NOT_ATTEMPTED = ErrorCode.OPERATION_NOT_ATTEMPTED
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE


def only(asked: object) -> ErrorCode:
    """The one code that every partition was answered."""
    found = set(codes(asked).values())  # type: ignore[arg-type]
    assert len(found) == 1
    return found.pop()


# -- adding --------------------------------------------------------------------------------------


def test_the_first_partitions_begin_a_transaction(transactions: TransactionsHarness) -> None:
    producer = transactions.begin()
    asked = transactions.add(producer, {"orders": [0, 3], "clicks": [1]})
    assert codes(asked) == {("orders", 0): NONE, ("orders", 3): NONE, ("clicks", 1): NONE}
    assert transactions.metadata().partitions == (("orders", 0), ("orders", 3), ("clicks", 1))
    assert transactions.states() == ["Empty", "Ongoing"]


def test_partitions_that_are_known_append_nothing(transactions: TransactionsHarness) -> None:
    """T2.7."""
    producer = transactions.begin()
    transactions.add(producer, {"orders": [0, 1]})
    assert only(transactions.add(producer, {"orders": [1]})) is NONE
    assert only(transactions.add(producer, {"orders": [0, 1]})) is NONE
    assert transactions.states() == ["Empty", "Ongoing"]
    assert only(transactions.add(producer, {"orders": [1, 2]})) is NONE
    assert transactions.states() == ["Empty", "Ongoing", "Ongoing"]
    assert transactions.metadata().partitions == (("orders", 0), ("orders", 1), ("orders", 2))


def test_an_unknown_topic_keeps_the_others_from_being_added(
    transactions: TransactionsHarness,
) -> None:
    """T2.6, T8.11."""
    producer = transactions.begin()
    asked = transactions.add(producer, {"orders": [0], "nix": [0], "clicks": [3, 4]})
    assert codes(asked) == {
        ("orders", 0): NOT_ATTEMPTED,
        ("nix", 0): UNKNOWN,
        ("clicks", 3): NOT_ATTEMPTED,
        ("clicks", 4): UNKNOWN,
    }
    assert transactions.state() is STATE.EMPTY
    assert transactions.states() == ["Empty"]


def test_a_node_that_has_not_heard_of_the_topics_asks_for_another_try(
    transactions: TransactionsHarness,
) -> None:
    producer = transactions.begin()
    transactions.topics.are_known = False
    del transactions.topics.counts["orders"]
    asked = transactions.add(producer, {"orders": [0]})
    assert codes(asked) == {("orders", 0): ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    assert transactions.states() == ["Empty"]


@pytest.mark.parametrize("topic", [OFFSETS_TOPIC, TRANSACTION_TOPIC])
def test_internal_topics_are_not_for_clients(transactions: TransactionsHarness, topic: str) -> None:
    asked = transactions.add(transactions.begin(), {topic: [0], "orders": [0]})
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert codes(asked) == {(topic, 0): refused, ("orders", 0): NOT_ATTEMPTED}


@pytest.mark.parametrize(
    ("version", "code"), [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)]
)
@pytest.mark.parametrize("epoch", [0, 2])
def test_another_epoch_lower_or_higher_is_fenced(
    transactions: TransactionsHarness, version: int, code: ErrorCode, epoch: int
) -> None:
    """T2.4 for AddPartitionsToTxn and AddOffsetsToTxn."""
    transactions.begin()
    transactions.begin()
    assert only(transactions.add((1001, epoch), version=version)) is code
    assert transactions.add_offsets((1001, epoch), version=version).code is code
    assert transactions.state() is STATE.EMPTY


@pytest.mark.parametrize("version", [0, 3])
def test_an_unknown_id_or_another_producer_id_is_49(
    transactions: TransactionsHarness, version: int
) -> None:
    producer = transactions.begin()
    mapping = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert only(transactions.add(producer, name="nobody", version=version)) is mapping
    assert only(transactions.add((2000, 0), version=version)) is mapping
    assert transactions.add_offsets((2000, 0), version=version).code is mapping


def test_an_empty_id_is_refused(transactions: TransactionsHarness) -> None:
    assert only(transactions.add((1, 0), name="")) is ErrorCode.INVALID_REQUEST
    assert transactions.add_offsets((1, 0), name="").code is ErrorCode.INVALID_REQUEST


def test_topics_are_looked_at_before_the_id(transactions: TransactionsHarness) -> None:
    assert only(transactions.add((1, 0), {"nix": [0]}, name="")) is UNKNOWN


@pytest.mark.parametrize("state", [STATE.PREPARE_COMMIT, STATE.PREPARE_ABORT])
def test_a_transaction_that_ends_takes_no_partitions(
    transactions: TransactionsHarness, state: TransactionState
) -> None:
    producer = reach(transactions, state)
    assert only(transactions.add(producer)) is CONCURRENT
    assert transactions.add_offsets(producer).code is CONCURRENT


@pytest.mark.parametrize("state", [STATE.PREPARE_COMMIT, STATE.PREPARE_ABORT])
def test_nor_does_it_without_a_pending_completion(
    transactions: TransactionsHarness, state: TransactionState
) -> None:
    producer = reach(transactions, state)
    pending, transactions.transaction().pending = transactions.transaction().pending, None
    assert only(transactions.add(producer)) is CONCURRENT
    transactions.transaction().pending = pending


@pytest.mark.parametrize("state", [STATE.COMPLETE_COMMIT, STATE.COMPLETE_ABORT])
def test_after_an_end_the_next_transaction_has_its_own_partitions(
    transactions: TransactionsHarness, state: TransactionState
) -> None:
    producer = reach(transactions, state)
    transactions.wait(5.0)
    assert only(transactions.add(producer, {"clicks": [0]})) is NONE
    assert transactions.metadata().partitions == (("clicks", 0),)
    assert transactions.metadata().started_ms == transactions.now_ms()


def test_one_addition_at_a_time(transactions: TransactionsHarness) -> None:
    producer = transactions.begin()
    transactions.log.is_replicated = False
    first = transactions.add(producer, {"orders": [0]})
    assert not first.is_answered
    assert only(transactions.add(producer, {"orders": [0]})) is CONCURRENT
    assert only(transactions.add(producer, {"orders": [1]})) is CONCURRENT
    transactions.log.replicate(partition_of("t"))
    assert only(first) is NONE


# -- offsets -------------------------------------------------------------------------------------


def test_offsets_add_the_partition_of_their_group(transactions: TransactionsHarness) -> None:
    producer = transactions.begin()
    assert transactions.add_offsets(producer, "some-group").code is NONE
    assert transactions.metadata().partitions == (
        (OFFSETS_TOPIC, group_partition("some-group", 4)),
    )
    assert transactions.add_offsets(producer, "some-group").code is NONE
    assert transactions.states() == ["Empty", "Ongoing"]


def test_without_an_offsets_topic_its_creation_begins(transactions: TransactionsHarness) -> None:
    producer = transactions.begin()
    del transactions.topics.counts[OFFSETS_TOPIC]
    assert transactions.add_offsets(producer).code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert transactions.topics.creations == 1
    assert transactions.state() is STATE.EMPTY


# -- batches of nodes ----------------------------------------------------------------------------


def a_transaction(
    producer: tuple[int, int],
    name: str = "t",
    *,
    is_verification: bool = True,
    partitions: dict[str, list[int]] | None = None,
) -> Transaction:
    return Transaction(
        transactional_id=name,
        producer_id=producer[0],
        producer_epoch=producer[1],
        verify_only=is_verification,
        topics=topics_of(partitions or {"orders": [0]}),
    )


def batch_codes(answer: object) -> list[tuple[str, list[ErrorCode]]]:
    return [
        (
            result.transactional_id,
            [
                CODES[one.partition_error_code]
                for topic in result.topic_results
                for one in topic.results_by_partition
            ],
        )
        for result in answer.results_by_transaction  # type: ignore[attr-defined]
    ]


@pytest.mark.parametrize("version", [4, 5])
def test_a_batch_adds_as_a_single_one_does(transactions: TransactionsHarness, version: int) -> None:
    producer = transactions.begin()
    asked = transactions.batch(a_transaction(producer, is_verification=False), version=version)
    assert only(asked) is NONE
    assert transactions.metadata().partitions == (("orders", 0),)
    fenced = transactions.batch(a_transaction((1001, 1), is_verification=False), version=version)
    assert only(fenced) is ErrorCode.PRODUCER_FENCED


def test_a_batch_adds_no_internal_topic_and_may_verify_one(
    transactions: TransactionsHarness,
) -> None:
    producer = transactions.begin()
    partitions = {OFFSETS_TOPIC: [2]}
    asked = transactions.batch(
        a_transaction(producer, is_verification=False, partitions=partitions)
    )
    assert only(asked) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert transactions.states() == ["Empty"]
    verified = transactions.batch(a_transaction(producer, partitions=partitions))
    assert only(verified) is ABORTABLE


def test_a_batch_is_answered_when_all_of_it_is_decided(transactions: TransactionsHarness) -> None:
    first, second = transactions.begin("a"), transactions.begin("b")
    transactions.log.is_replicated = False
    asked = transactions.batch(
        a_transaction(first, "a", is_verification=False),
        a_transaction(second, "b"),
        a_transaction(second, "nobody"),
    )
    assert not asked.is_answered
    transactions.log.replicate(partition_of("a"))
    assert batch_codes(asked.answer) == [
        ("a", [NONE]),
        ("b", [ABORTABLE]),
        ("nobody", [ErrorCode.INVALID_PRODUCER_ID_MAPPING]),
    ]
    assert asked.answer.error_code == 0


def test_an_empty_batch_is_answered(transactions: TransactionsHarness) -> None:
    assert batch_codes(transactions.batch().answer) == []


# -- verification --------------------------------------------------------------------------------


def test_a_partition_is_in_the_open_transaction_or_is_not(
    transactions: TransactionsHarness,
) -> None:
    producer = transactions.begin()
    assert codes(transactions.verify(producer, {"orders": [0]})) == {("orders", 0): ABORTABLE}
    transactions.add(producer, {"orders": [0, 1]})
    asked = transactions.verify(producer, {"orders": [0, 2]}, version=5)
    assert codes(asked) == {("orders", 0): NONE, ("orders", 2): ABORTABLE}
    assert transactions.states() == ["Empty", "Ongoing"]


def test_verification_says_why_a_producer_is_not_the_present_one(
    transactions: TransactionsHarness,
) -> None:
    transactions.begin()
    producer = transactions.begin()
    asked = {"orders": [0]}
    assert only(transactions.verify((producer[0], 0), asked)) is ErrorCode.PRODUCER_FENCED
    assert only(transactions.verify((producer[0], 2), asked)) is ErrorCode.PRODUCER_FENCED
    mapping = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert only(transactions.verify((producer[0] + 1, 1), asked)) is mapping
    assert only(transactions.verify(producer, asked, name="nobody")) is mapping
    assert only(transactions.verify(producer, asked, name="")) is ErrorCode.INVALID_REQUEST


def test_verification_of_an_unknown_partition_tries_none(
    transactions: TransactionsHarness,
) -> None:
    producer = transactions.begin()
    transactions.add(producer)
    asked = transactions.verify(producer, {"orders": [0, 8]})
    assert codes(asked) == {("orders", 0): NOT_ATTEMPTED, ("orders", 8): UNKNOWN}


@pytest.mark.parametrize("state", [STATE.PREPARE_COMMIT, STATE.PREPARE_ABORT])
def test_nothing_is_vouched_for_while_a_transaction_ends(
    transactions: TransactionsHarness, state: TransactionState
) -> None:
    producer = reach(transactions, state)
    asked = transactions.verify(producer, {"orders": [0, 1]})
    assert codes(asked) == {("orders", 0): CONCURRENT, ("orders", 1): CONCURRENT}


@pytest.mark.parametrize("state", [STATE.COMPLETE_COMMIT, STATE.COMPLETE_ABORT])
def test_nothing_is_vouched_for_after_it(
    transactions: TransactionsHarness, state: TransactionState
) -> None:
    producer = reach(transactions, state)
    assert only(transactions.verify(producer, {"orders": [0]})) is ABORTABLE


def test_verification_does_not_look_at_what_is_pending(transactions: TransactionsHarness) -> None:
    """KAFKA-14904."""
    producer = transactions.begin()
    transactions.add(producer)
    transactions.log.is_replicated = False
    transactions.add(producer, {"orders": [1]})
    asked = transactions.verify(producer, {"orders": [0, 1]})
    assert codes(asked) == {("orders", 0): NONE, ("orders", 1): ABORTABLE}


# -- very much at once -----------------------------------------------------------------------------


def test_very_many_partitions_are_added_in_turns_each_once(
    transactions: TransactionsHarness,
) -> None:
    """A node that looks them all up in one turn sends no beacon meanwhile."""
    transactions.topics.counts["wide"] = 1500
    producer = transactions.begin()
    asked = transactions.hand_in_add(producer, {"wide": [*range(1500), *range(1500)]})
    transactions.turn(2)
    assert transactions.state() is STATE.EMPTY
    transactions.turn()
    assert set(codes(asked).values()) == {NONE}
    assert transactions.metadata().partitions == tuple(("wide", index) for index in range(1500))


def test_very_many_unknown_partitions_are_refused_in_turns(
    transactions: TransactionsHarness,
) -> None:
    asked = transactions.hand_in_add(transactions.begin(), {"nix": range(3000)})
    assert not asked.is_answered
    transactions.turn(20)
    assert set(codes(asked).values()) == {UNKNOWN}


def test_a_batch_of_very_many_transactions_is_decided_in_turns(
    transactions: TransactionsHarness,
) -> None:
    producer = transactions.begin()
    transactions.add(producer)
    request = AddPartitionsToTxnRequest(transactions=[a_transaction(producer)] * 600)
    asked = transactions.hand_in("add_partitions_to_txn", request, 4)
    assert not asked.is_answered
    transactions.turn(20)
    assert {tuple(found) for _, found in batch_codes(asked.answer)} == {(NONE,)}
    assert len(asked.answer.results_by_transaction) == 600
