"""Transactions that are not ended in time: check T3.8, traps T8.2, T8.3 and T8.25.

Source: docs/spec/transactions.md §3.6.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.coordinator.transactions.transaction_end import EndCause
from barnabas.coordinator.transactions.transaction_state import TransactionState
from barnabas.protocol.errors import ErrorCode
from tests.coordinator.transactions.transactions_harness import (
    TransactionsHarness,
    codes,
    partition_of,
)

STATE = TransactionState
HOUR_MS = 3_600_000
T = partition_of("t")


def begun(transactions: TransactionsHarness, timeout_ms: int = 5000) -> tuple[int, int]:
    producer = transactions.begin(timeout_ms=timeout_ms)
    transactions.add(producer)
    return producer


def test_a_transaction_that_is_not_ended_is_aborted_under_the_next_epoch(
    transactions: TransactionsHarness,
) -> None:
    """T3.8, T8.2: the old producer is fenced by the markers, and here."""
    producer = begun(transactions)
    transactions.wait(4.9)
    assert transactions.state() is STATE.ONGOING
    transactions.wait(0.2)
    assert transactions.states()[-2:] == ["PrepareAbort", "CompleteAbort"]
    assert transactions.markers.written == [(("orders", 0), 1001, 1, False)]
    assert transactions.commit(producer) is ErrorCode.PRODUCER_FENCED
    assert transactions.commit(producer, version=1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert transactions.begin() == (1001, 2)
    assert transactions.coordinator.ends.counts[EndCause.TIMED_OUT] == 1


def test_more_partitions_do_not_extend_it(transactions: TransactionsHarness) -> None:
    """T8.3."""
    producer = begun(transactions)
    for index in range(1, 5):
        transactions.wait(1.0)
        transactions.add(producer, {"orders": [index]})
    transactions.wait(1.1)
    assert transactions.state() is STATE.COMPLETE_ABORT
    assert len(transactions.markers.written) == 5


def test_each_transaction_has_its_own_time(transactions: TransactionsHarness) -> None:
    producer = begun(transactions)
    transactions.wait(3.0)
    transactions.commit(producer)
    transactions.turn()
    transactions.add(producer)
    transactions.wait(4.9)
    assert transactions.state() is STATE.ONGOING
    transactions.wait(0.2)
    assert transactions.state() is STATE.COMPLETE_ABORT


@pytest.mark.parametrize("state", ["Empty", "CompleteCommit", "PrepareCommit"])
def test_nothing_but_an_open_transaction_times_out(
    transactions: TransactionsHarness, state: str
) -> None:
    producer = transactions.begin(timeout_ms=1000)
    transactions.markers.is_prompt = state != "PrepareCommit"
    if state != "Empty":
        transactions.add(producer)
        transactions.commit(producer)
    transactions.wait(30.0)
    assert transactions.state().value == state
    assert transactions.metadata().producer_epoch == 0


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS])
def test_a_clock_that_jumps_neither_ends_a_transaction_early_nor_keeps_it(
    transactions: TransactionsHarness, jump_ms: int
) -> None:
    """T8.25."""
    producer = begun(transactions)
    transactions.clock_jump_ms = jump_ms
    transactions.wait(2.0)
    assert set(codes(transactions.add(producer, {"orders": [1]})).values()) == {ErrorCode.NONE}
    transactions.wait(2.9)
    assert transactions.state() is STATE.ONGOING
    transactions.wait(0.2)
    assert transactions.state() is STATE.COMPLETE_ABORT


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS])
def test_a_commit_after_a_jump_is_a_commit(transactions: TransactionsHarness, jump_ms: int) -> None:
    """T8.25: the start may lie in the future."""
    producer = begun(transactions)
    transactions.clock_jump_ms = jump_ms
    assert transactions.commit(producer) is ErrorCode.NONE
    transactions.turn()
    assert transactions.state() is STATE.COMPLETE_COMMIT
    assert transactions.list(duration_ms=0).error_code == 0


def test_the_time_goes_on_from_the_logged_start_after_a_takeover(
    transactions: TransactionsHarness,
) -> None:
    begun(transactions)
    transactions.wait(3.0)
    transactions.reload()
    transactions.wait(1.9)
    assert transactions.state() is STATE.ONGOING
    transactions.wait(0.2)
    assert transactions.state() is STATE.COMPLETE_ABORT


def test_what_timed_out_while_nobody_led_is_aborted_at_the_takeover(
    transactions: TransactionsHarness,
) -> None:
    begun(transactions)
    transactions.resign(T, 1)
    transactions.wait(60.0)
    transactions.elect(T, 2)
    transactions.wait(0.1)
    assert transactions.state() is STATE.COMPLETE_ABORT


def test_a_start_in_the_future_is_waited_for_no_longer_than_the_timeout(
    transactions: TransactionsHarness,
) -> None:
    """T8.25: it was another node's clock."""
    transactions.clock_jump_ms = HOUR_MS
    begun(transactions)
    transactions.clock_jump_ms = 0
    transactions.reload()
    transactions.wait(4.9)
    assert transactions.state() is STATE.ONGOING
    transactions.wait(0.2)
    assert transactions.state() is STATE.COMPLETE_ABORT


def test_an_abort_that_cannot_be_appended_is_tried_again(
    make_transactions: Callable[..., TransactionsHarness],
) -> None:
    """T3.8: within the timeout and one interval from when it is possible; T8.1."""
    harness = make_transactions(abort_check_interval_ms=2000)
    producer = begun(harness)
    harness.log.append_fails_with = ErrorCode.NOT_ENOUGH_REPLICAS
    harness.wait(60.0)
    assert (harness.state(), harness.transaction().pending) == (STATE.ONGOING, None)
    assert harness.metadata().producer_epoch == producer[1]
    harness.log.append_fails_with = None
    harness.wait(2.1)
    assert harness.state() is STATE.COMPLETE_ABORT
    assert harness.metadata().producer_epoch == 1


def test_a_deadline_that_meets_a_pending_end_leaves_it_alone(
    transactions: TransactionsHarness,
) -> None:
    producer = begun(transactions)
    transactions.wait(4.5)
    transactions.log.is_replicated = False
    asked = transactions.end(producer)
    transactions.wait(2.0)
    transactions.log.is_replicated = True
    transactions.log.replicate(T)
    transactions.wait(30.0)
    assert asked.code is ErrorCode.NONE
    assert [one[3] for one in transactions.markers.written] == [True]


def test_deadlines_end_with_their_term(transactions: TransactionsHarness) -> None:
    begun(transactions)
    transactions.resign(T, 1)
    transactions.wait(60.0)
    assert transactions.states()[-1] == "Ongoing"
