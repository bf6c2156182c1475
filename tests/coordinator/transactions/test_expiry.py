"""Ids that nobody uses are forgotten: check T3.9, T2.9, traps T8.1 and T8.20.

Source: docs/spec/transactions.md §3.7.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

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
MAY_EXPIRE = [STATE.EMPTY, STATE.COMPLETE_COMMIT, STATE.COMPLETE_ABORT]


@pytest.fixture
def transactions(make_transactions: Callable[..., TransactionsHarness]) -> TransactionsHarness:
    """Ids live for ten seconds, and are looked at each second."""
    return make_transactions(expiration_ms=10_000, expiration_check_interval_ms=1000)


@pytest.mark.parametrize("state", MAY_EXPIRE)
@pytest.mark.parametrize("is_reloaded", [True, False])
def test_an_id_that_is_not_used_is_forgotten_with_a_tombstone(
    transactions: TransactionsHarness, state: TransactionState, is_reloaded: bool
) -> None:
    """T3.9."""
    reach(transactions, state)
    if is_reloaded:
        transactions.reload()
    transactions.wait(9.5)
    assert transactions.coordinator.registry.term_of("t").find("t") is not None
    transactions.wait(2.0)
    assert transactions.states()[-1] == "-"
    assert transactions.coordinator.registry.find("t") is None
    assert transactions.coordinator.expiration.expired == 1
    transactions.reload(2)
    assert transactions.coordinator.registry.find("t") is None


@pytest.mark.parametrize("is_reloaded", [True, False])
@pytest.mark.parametrize("state", [STATE.ONGOING, STATE.PREPARE_COMMIT, STATE.PREPARE_ABORT])
def test_a_transaction_that_is_not_over_never_expires(
    transactions: TransactionsHarness, state: TransactionState, is_reloaded: bool
) -> None:
    """T3.9."""
    reach(transactions, state)
    if is_reloaded:
        transactions.reload()
    transactions.wait(50.0)
    assert transactions.state() is state
    assert "-" not in transactions.states()


def test_use_keeps_an_id_alive(transactions: TransactionsHarness) -> None:
    for epoch in range(4):
        assert transactions.begin() == (1001, epoch)
        transactions.wait(8.0)
    assert "-" not in transactions.states()


def test_an_id_whose_first_epoch_was_never_committed_expires_as_well(
    transactions: TransactionsHarness,
) -> None:
    """KAFKA-14880: epoch -1."""
    transactions.log.append_fails_with = ErrorCode.NOT_ENOUGH_REPLICAS
    transactions.init()
    assert transactions.metadata().producer_epoch == -1
    transactions.log.append_fails_with = None
    transactions.wait(12.0)
    assert transactions.coordinator.registry.find("t") is None


def test_while_the_tombstone_is_on_its_way_the_id_is_busy_and_not_shown(
    transactions: TransactionsHarness,
) -> None:
    """T3.9: a concurrent InitProducerId is told 51."""
    producer = transactions.begin()
    transactions.wait(9.0)
    transactions.log.is_replicated = False
    transactions.wait(2.5)
    assert transactions.transaction().pending is STATE.DEAD
    assert identity(transactions.init())[0] is ErrorCode.CONCURRENT_TRANSACTIONS
    assert set(codes(transactions.add(producer)).values()) == {ErrorCode.CONCURRENT_TRANSACTIONS}
    assert transactions.describe("t")[0].error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    transactions.log.replicate(T)
    transactions.log.is_replicated = True
    assert transactions.begin() == (1002, 0)


@pytest.mark.parametrize("failure", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.MESSAGE_TOO_LARGE])
def test_a_tombstone_that_cannot_be_appended_leaves_the_id_usable(
    transactions: TransactionsHarness, failure: ErrorCode
) -> None:
    """T8.1 (KAFKA-7519); the next round tries again."""
    transactions.begin()
    transactions.log.append_fails_with = failure
    transactions.wait(15.0)
    assert transactions.transaction().pending is None
    transactions.log.append_fails_with = None
    transactions.wait(1.5)
    assert transactions.coordinator.registry.find("t") is None


def test_a_producer_that_comes_back_is_told_49_and_begins_anew(
    transactions: TransactionsHarness,
) -> None:
    """T2.9, T8.20: also with the producer id that it had."""
    producer = transactions.begin()
    transactions.wait(12.0)
    mapping = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert transactions.commit(producer) is mapping
    assert set(codes(transactions.add(producer)).values()) == {mapping}
    assert transactions.begin(producer=producer) == (1002, 0)


def test_many_ids_expire_in_few_batches(transactions: TransactionsHarness) -> None:
    """KAFKA-13099: nor is a batch too large for the topic."""
    names = [f"producer-{number}" for number in range(300)]
    for name in names:
        transactions.hand_in_init(name)
    transactions.turn()
    transactions.log.appends.clear()
    transactions.log.bytes_max = 4000
    transactions.wait(12.0)
    assert transactions.coordinator.expiration.expired == len(names)
    assert sum(count for _, count in transactions.log.appends) == len(names)
    assert 2 < len(transactions.log.appends) < 20


def test_a_tombstone_of_a_former_term_removes_nothing_from_the_present_one(
    transactions: TransactionsHarness,
) -> None:
    transactions.begin()
    transactions.wait(9.0)
    transactions.log.is_replicated = False
    transactions.wait(2.5)
    transactions.resign(T, 1)
    transactions.log.partition(T).truncate(1)
    transactions.log.is_replicated = True
    transactions.elect(T, 2)
    transactions.turn()
    assert transactions.begin() == (1001, 1)


# -- clocks that jump -----------------------------------------------------------------------------

HOUR_MS = 3_600_000


@pytest.mark.parametrize("is_reloaded", [True, False])
def test_a_clock_that_jumps_forwards_expires_idle_ids_and_no_open_transaction(
    transactions: TransactionsHarness, is_reloaded: bool
) -> None:
    """An id's age is told by the wall clock, as it is kept in the log."""
    idle, open_one = transactions.begin("idle"), transactions.begin("open")
    transactions.add(open_one, name="open")
    if is_reloaded:
        transactions.reload()
    transactions.clock_jump_ms = HOUR_MS
    transactions.wait(1.5)
    assert transactions.coordinator.registry.find("idle") is None
    assert transactions.commit(idle, name="idle") is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert transactions.begin("idle", producer=idle) == (1003, 0)
    assert transactions.state("open") is STATE.ONGOING
    assert transactions.commit(open_one, name="open") is ErrorCode.NONE
    assert transactions.states("open")[-1] == "CompleteCommit"


@pytest.mark.parametrize("is_reloaded", [True, False])
def test_a_clock_that_jumps_backwards_keeps_ids_until_it_has_caught_up(
    transactions: TransactionsHarness, is_reloaded: bool
) -> None:
    transactions.begin()
    transactions.clock_jump_ms = -HOUR_MS
    if is_reloaded:
        transactions.reload()
    transactions.wait(30)
    assert transactions.coordinator.registry.find("t") is not None
    transactions.clock_jump_ms = 0
    transactions.wait(1.5)
    assert transactions.coordinator.registry.find("t") is None


def test_an_id_that_was_used_under_a_clock_that_was_ahead_lives_longer_and_goes_on(
    transactions: TransactionsHarness,
) -> None:
    transactions.clock_jump_ms = HOUR_MS
    producer = transactions.begin()
    transactions.clock_jump_ms = 0
    transactions.wait(30)
    transactions.add(producer)
    assert transactions.commit(producer) is ErrorCode.NONE
    transactions.turn()
    assert transactions.list().transaction_states[0].transaction_state == "CompleteCommit"
    transactions.wait(8)
    assert transactions.coordinator.registry.find("t") is not None
    transactions.wait(4)
    assert transactions.coordinator.registry.find("t") is None


def test_a_jump_there_and_back_between_two_looks_changes_nothing(
    transactions: TransactionsHarness,
) -> None:
    producer = transactions.begin()
    transactions.wait(0.3)
    for jump_ms in (HOUR_MS, -HOUR_MS, 0):
        transactions.clock_jump_ms = jump_ms
        transactions.wait(0.1)
    transactions.wait(5)
    assert set(codes(transactions.add(producer)).values()) == {ErrorCode.NONE}
