"""DescribeTransactions and ListTransactions.

Source: docs/spec/transactions.md §2.8; tests/golden/txn-data.json.
"""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.coordinator.ports import TRANSACTION_TOPIC
from barnabas.coordinator.transactions.transaction_state import TransactionState
from barnabas.protocol.errors import ErrorCode
from tests.coordinator.transactions.test_end_txn import reach
from tests.coordinator.transactions.transactions_harness import (
    TransactionsHarness,
    partition_of,
)

STATE = TransactionState


def names(answer: Any) -> list[str]:
    assert answer.error_code == 0
    return sorted(one.transactional_id for one in answer.transaction_states)


# -- DescribeTransactions ------------------------------------------------------------------------


def test_an_open_transaction_is_described_with_its_partitions(
    transactions: TransactionsHarness,
) -> None:
    producer = transactions.begin(timeout_ms=7000)
    began_ms = transactions.now_ms()
    transactions.add(producer, {"orders": [2, 1], "clicks": [0]})
    [described] = transactions.describe("t")
    assert (described.error_code, described.transactional_id) == (0, "t")
    assert (described.producer_id, described.producer_epoch) == producer
    assert described.transaction_state == "Ongoing"
    assert described.transaction_timeout_ms == 7000
    assert described.transaction_start_time_ms == began_ms
    assert [(topic.topic, list(topic.partitions)) for topic in described.topics] == [
        ("orders", [2, 1]),
        ("clicks", [0]),
    ]


@pytest.mark.parametrize(
    ("state", "has_start"),
    [(STATE.EMPTY, False), (STATE.COMPLETE_COMMIT, True), (STATE.COMPLETE_ABORT, True)],
)
def test_the_start_is_that_of_the_last_transaction(
    transactions: TransactionsHarness, state: TransactionState, has_start: bool
) -> None:
    reach(transactions, state)
    [described] = transactions.describe("t")
    assert described.transaction_state == state.value
    assert (described.transaction_start_time_ms > 0) == has_start
    assert described.topics == []


def test_each_id_is_answered_by_itself(transactions: TransactionsHarness) -> None:
    transactions.begin()
    transactions.resign(1 - partition_of("t"), 1)
    elsewhere = next(name for name in "abc" if partition_of(name) != partition_of("t"))
    unknown = next(name for name in "uvwxyz" if partition_of(name) == partition_of("t"))
    found = transactions.describe("t", unknown, "", elsewhere)
    assert [one.error_code for one in found] == [
        ErrorCode.NONE,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NOT_COORDINATOR,
    ]
    assert [one.transactional_id for one in found] == ["t", unknown, "", elsewhere]
    for one in found[1:]:
        assert (one.transaction_state, one.transaction_timeout_ms, one.producer_id) == ("", 0, 0)
        assert (one.producer_epoch, one.transaction_start_time_ms, one.topics) == (0, 0, [])


# -- ListTransactions ----------------------------------------------------------------------------


@pytest.fixture
def known(transactions: TransactionsHarness) -> TransactionsHarness:
    """Ids in several states: e is Empty, o Ongoing, c CompleteCommit."""
    transactions.begin("e")
    for name in ("o", "c"):
        transactions.add(transactions.begin(name), name=name)
    transactions.wait(10.0)
    transactions.commit((1003, 0), name="c")
    transactions.turn()
    return transactions


@pytest.mark.parametrize("is_reloaded", [True, False])
@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({}, "ceo"),
        ({"version": 0}, "ceo"),
        ({"states": ["Ongoing"]}, "o"),
        ({"states": ["Ongoing", "Empty"]}, "eo"),
        ({"states": ["ongoing"]}, ""),
        ({"states": ["Dead"]}, ""),
        ({"states": ["Ongoing", "Nix"]}, "o"),
        ({"producers": [1001, 1003]}, "ce"),
        ({"producers": [7]}, ""),
        ({"states": ["Empty"], "producers": [1001]}, "e"),
        ({"states": ["Empty"], "producers": [1002]}, ""),
        ({"duration_ms": 9000}, "ceo"),
        ({"duration_ms": 60_000}, "e"),
        ({"duration_ms": 60_000, "states": ["Ongoing"]}, ""),
    ],
    ids=str,
)
def test_an_id_is_listed_when_it_passes_every_filter(
    known: TransactionsHarness, filters: dict[str, Any], found: str, is_reloaded: bool
) -> None:
    """An id that never had a transaction passes every duration, as in Kafka."""
    if is_reloaded:
        known.reload()
    assert names(known.list(**filters)) == list(found)


def test_unknown_states_come_back(known: TransactionsHarness) -> None:
    answer = known.list(states=["Nix", "Ongoing", "ongoing"])
    assert answer.unknown_state_filters == ["Nix", "ongoing"]
    assert known.list(states=["Dead", "PrepareEpochFence"]).unknown_state_filters == []


def test_what_is_listed_is_what_is_known_of_an_id(known: TransactionsHarness) -> None:
    [listed] = known.list(states=["Ongoing"]).transaction_states
    assert (listed.transactional_id, listed.producer_id, listed.transaction_state) == (
        "o",
        1002,
        "Ongoing",
    )


def test_only_ids_of_this_node_are_listed(known: TransactionsHarness) -> None:
    known.resign(partition_of("o"), 1)
    here = [name for name in "ceo" if partition_of(name) != partition_of("o")]
    assert names(known.list()) == here


def test_in_a_new_cluster_there_are_no_ids(transactions: TransactionsHarness) -> None:
    """Of a topic that is there, and of which nothing was heard yet, that is not known."""
    transactions.coordinator.topic_lost()
    assert transactions.list().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    del transactions.topics.counts[TRANSACTION_TOPIC]
    assert names(transactions.list()) == []


def test_very_many_ids_are_listed_in_turns_each_once(
    transactions: TransactionsHarness,
) -> None:
    many = [f"id-{number:04}" for number in range(1500)]
    for name in many:
        transactions.hand_in_init(name)
    transactions.turn()
    transactions.reload()
    asked = transactions.hand_in_list()
    assert not asked.is_answered
    transactions.begin("id-1499")  # asked for in between: it is among the others from then on
    transactions.turn()
    assert names(asked.answer) == many


def test_an_id_that_is_gone_in_between_is_not_listed(transactions: TransactionsHarness) -> None:
    many = [f"id-{number:04}" for number in range(1500)]
    for name in many:
        transactions.hand_in_init(name)
    transactions.turn()
    asked = transactions.hand_in_list()
    assert not asked.is_answered
    for partition in range(2):
        transactions.resign(partition, 1)
    transactions.turn()
    assert len(names(asked.answer)) < len(many)
