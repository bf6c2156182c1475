"""Requests of a partition that loads wait, and nothing is vouched for without the lease: T10.2.

Source: docs/spec/transactions.md §10.2 and §10.3.
"""

from __future__ import annotations

import pytest

from barnabas.coordinator.transactions.gate import HOLD_S
from barnabas.coordinator.transactions.transaction_state import TransactionState
from barnabas.protocol.errors import ErrorCode
from tests.coordinator.transactions.test_end_txn import reach
from tests.coordinator.transactions.transactions_harness import (
    TransactionsHarness,
    codes,
    identity,
    partition_of,
)

STATE = TransactionState
T = partition_of("t")
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def load(transactions: TransactionsHarness, epoch: int = 2) -> None:
    """Have the partition of "t" elected here again, and stop short of the end of the load."""
    transactions.resign(T, epoch - 1)
    transactions.log.partition(T).high_watermark -= 1
    transactions.elect(T, epoch)
    transactions.turn()


def test_a_request_waits_for_the_end_of_the_load(transactions: TransactionsHarness) -> None:
    producer = reach(transactions, STATE.ONGOING)
    load(transactions)
    asked = transactions.end(producer)
    transactions.wait(HOLD_S - 0.1)
    assert not asked.is_answered
    transactions.log.replicate(T)
    transactions.turn()
    assert asked.code is ErrorCode.NONE


@pytest.mark.parametrize("api", ["init", "add", "add_offsets", "end", "verify"])
def test_after_a_second_it_is_told_that_the_partition_loads(
    transactions: TransactionsHarness, api: str
) -> None:
    producer = reach(transactions, STATE.ONGOING)
    load(transactions)
    asked = {
        "init": lambda: transactions.init(),
        "add": lambda: transactions.add(producer),
        "add_offsets": lambda: transactions.add_offsets(producer),
        "end": lambda: transactions.end(producer),
        "verify": lambda: transactions.verify(producer, {"orders": [0]}),
    }[api]()
    transactions.wait(HOLD_S - 0.1)
    assert not asked.is_answered
    transactions.wait(0.2)
    told = set(codes(asked).values()) if api in ("add", "verify") else {asked.code}
    assert told == {LOADING}


def test_requests_go_on_in_the_order_in_which_they_came(
    transactions: TransactionsHarness,
) -> None:
    """Or an end that was given up on would end the producer's next transaction."""
    producer = reach(transactions, STATE.ONGOING)
    load(transactions)
    first = transactions.end(producer, is_commit=False)
    second = transactions.end(producer, is_commit=True)
    transactions.log.replicate(T)
    third = transactions.hand_in_end(producer, is_commit=True)
    transactions.turn()
    assert first.code is ErrorCode.NONE
    assert {second.code, third.code} == {ErrorCode.CONCURRENT_TRANSACTIONS}
    assert [one[3] for one in transactions.markers.written] == [False]


def test_a_resignation_answers_whoever_waits(transactions: TransactionsHarness) -> None:
    producer = reach(transactions, STATE.ONGOING)
    load(transactions)
    asked = transactions.end(producer)
    transactions.resign(T, 3)
    assert asked.code is ErrorCode.NOT_COORDINATOR
    assert len(transactions.coordinator._gate) == 0


def test_a_stop_answers_whoever_waits(transactions: TransactionsHarness) -> None:
    producer = reach(transactions, STATE.ONGOING)
    load(transactions)
    asked = transactions.end(producer)
    transactions.coordinator.stop()
    assert asked.code is ErrorCode.NOT_COORDINATOR


def test_a_node_that_may_be_about_to_lead_lets_requests_wait(
    transactions: TransactionsHarness,
) -> None:
    producer = reach(transactions, STATE.ONGOING)
    transactions.topics.may_be_led.add(T)
    transactions.resign(T, 1)
    asked = transactions.end(producer)
    transactions.wait(0.5)
    assert not asked.is_answered
    transactions.elect(T, 2)
    transactions.turn()
    assert asked.code is ErrorCode.NONE


def test_when_somebody_else_turns_out_to_lead_it_says_so_at_once(
    transactions: TransactionsHarness,
) -> None:
    producer = reach(transactions, STATE.ONGOING)
    transactions.topics.may_be_led.add(T)
    transactions.resign(T, 1)
    asked = transactions.end(producer)
    transactions.coordinator.topics_changed()
    assert not asked.is_answered
    transactions.topics.may_be_led.clear()
    transactions.coordinator.topics_changed()
    assert asked.code is ErrorCode.NOT_COORDINATOR


def test_tools_do_not_wait(transactions: TransactionsHarness) -> None:
    reach(transactions, STATE.ONGOING)
    load(transactions)
    assert transactions.describe("t")[0].error_code == LOADING
    assert transactions.list().error_code == LOADING


# -- the lease -----------------------------------------------------------------------------------


@pytest.mark.parametrize("problem", [LOADING, ErrorCode.NOT_COORDINATOR])
def test_nothing_is_answered_out_of_memory_without_the_lease(
    transactions: TransactionsHarness, problem: ErrorCode
) -> None:
    """T10.2: known partitions, a retried end, a verification; and no producer is fenced."""
    producer = reach(transactions, STATE.ONGOING)
    other = transactions.begin("u")
    transactions.add(other, name="u")
    transactions.commit(other, name="u")
    transactions.turn()
    transactions.lease_problem = problem
    assert set(codes(transactions.add(producer)).values()) == {problem}
    assert transactions.commit(other, name="u") is problem
    assert set(codes(transactions.verify(producer, {"orders": [0]})).values()) == {problem}
    assert transactions.commit((1001, 7)) is problem
    assert transactions.commit((7, 7)) is problem
    assert identity(transactions.init(producer=(999, 1)))[0] is problem
    transactions.lease_problem = ErrorCode.NONE
    assert set(codes(transactions.add(producer)).values()) == {ErrorCode.NONE}
    assert transactions.commit(other, name="u") is ErrorCode.NONE


def test_tools_are_answered_without_the_lease(transactions: TransactionsHarness) -> None:
    reach(transactions, STATE.ONGOING)
    transactions.lease_problem = LOADING
    assert transactions.describe("t")[0].transaction_state == "Ongoing"
    assert len(transactions.list().transaction_states) == 1
