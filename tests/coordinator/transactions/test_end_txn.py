"""EndTxn: checks T2.2, T2.4, T2.8, T3.7 and the traps T8.3 and T8.5.

Source: docs/spec/transactions.md §2.6.
"""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.coordinator.transactions.transaction_state import TransactionState
from barnabas.protocol.errors import ErrorCode
from tests.coordinator.transactions.transactions_harness import (
    TransactionsHarness,
    codes,
    identity,
    partition_of,
)

STATE = TransactionState
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
INVALID = ErrorCode.INVALID_TXN_STATE
NONE = ErrorCode.NONE


def reach(transactions: TransactionsHarness, state: TransactionState) -> tuple[int, int]:
    """An id in this state; a prepared one waits for its markers."""
    producer = transactions.begin()
    if state is STATE.EMPTY:
        return producer
    transactions.add(producer)
    if state is STATE.ONGOING:
        return producer
    transactions.markers.is_prompt = state in (STATE.COMPLETE_COMMIT, STATE.COMPLETE_ABORT)
    is_commit = state in (STATE.PREPARE_COMMIT, STATE.COMPLETE_COMMIT)
    assert transactions.end(producer, is_commit=is_commit).code is NONE
    transactions.turn()
    assert transactions.state() is state
    return producer


@pytest.mark.parametrize(
    ("state", "commit", "abort"),
    [
        (STATE.EMPTY, INVALID, INVALID),
        (STATE.ONGOING, NONE, NONE),
        (STATE.PREPARE_COMMIT, CONCURRENT, CONCURRENT),  # its completion is pending
        (STATE.PREPARE_ABORT, CONCURRENT, CONCURRENT),
        (STATE.COMPLETE_COMMIT, NONE, INVALID),
        (STATE.COMPLETE_ABORT, INVALID, NONE),
    ],
)
@pytest.mark.parametrize("is_commit", [True, False])
def test_each_state_answers_as_the_table_says(
    transactions: TransactionsHarness,
    state: TransactionState,
    commit: ErrorCode,
    abort: ErrorCode,
    is_commit: bool,
) -> None:
    """T2.2."""
    producer = reach(transactions, state)
    before = len(transactions.records())
    assert transactions.end(producer, is_commit=is_commit).code is (commit if is_commit else abort)
    if state is not STATE.ONGOING:
        assert len(transactions.records()) == before


@pytest.mark.parametrize(
    ("state", "commit", "abort"),
    [
        (STATE.PREPARE_COMMIT, CONCURRENT, INVALID),
        (STATE.PREPARE_ABORT, INVALID, CONCURRENT),
    ],
)
def test_a_prepared_end_without_a_pending_completion_answers_by_its_state(
    transactions: TransactionsHarness,
    state: TransactionState,
    commit: ErrorCode,
    abort: ErrorCode,
) -> None:
    """T2.2: a moment that nobody sees, but the table has it."""
    producer = reach(transactions, state)
    transactions.transaction().pending = None
    assert transactions.commit(producer) is commit
    assert transactions.abort(producer) is abort
    transactions.transaction().pending = STATE.COMPLETE_COMMIT


@pytest.mark.parametrize(
    ("version", "code"), [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)]
)
@pytest.mark.parametrize("epoch", [0, 2])
def test_another_epoch_lower_or_higher_is_fenced(
    transactions: TransactionsHarness, version: int, code: ErrorCode, epoch: int
) -> None:
    """T2.4 for EndTxn, T8.3: a higher epoch is not taken."""
    transactions.begin()
    transactions.add(transactions.begin())
    assert transactions.commit((1001, epoch), version=version) is code
    assert transactions.state() is STATE.ONGOING


@pytest.mark.parametrize("version", [0, 4])
def test_an_unknown_id_or_another_producer_id_is_49(
    transactions: TransactionsHarness, version: int
) -> None:
    """T8.20: also after the id has expired."""
    producer = transactions.begin()
    mapping = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert transactions.commit(producer, name="nobody", version=version) is mapping
    assert transactions.commit((999, 0), version=version) is mapping


def test_an_empty_id_is_refused(transactions: TransactionsHarness) -> None:
    assert transactions.commit((1, 0), name="") is ErrorCode.INVALID_REQUEST


def test_what_a_commit_writes(transactions: TransactionsHarness) -> None:
    """Four records, of which only the first and the last are short."""
    producer = transactions.begin()
    transactions.wait(1.0)
    began_ms = transactions.now_ms()
    transactions.add(producer, {"orders": [1, 0], "clicks": [2]})
    transactions.wait(2.0)
    decided_ms = transactions.now_ms()
    transactions.markers.is_prompt = False
    assert transactions.commit(producer) is NONE
    transactions.wait(3.0)
    transactions.markers.write_all()
    transactions.turn()
    assert transactions.states() == ["Empty", "Ongoing", "PrepareCommit", "CompleteCommit"]
    logged = [found for found in transactions.logged() if found is not None]
    parts = (("orders", 1), ("orders", 0), ("clicks", 2))
    assert [found.partitions for found in logged] == [(), parts, parts, ()]
    assert [found.started_ms for found in logged] == [-1, began_ms, began_ms, began_ms]
    assert [found.updated_ms for found in logged[1:]] == [began_ms, decided_ms, decided_ms]
    assert {(found.producer_id, found.producer_epoch) for found in logged} == {producer}


def test_the_end_is_answered_before_its_markers_are_written(
    transactions: TransactionsHarness,
) -> None:
    """T2.8, T3.7: 0 at once, then 51 until it is complete, then 0 again."""
    producer = reach(transactions, STATE.PREPARE_COMMIT)
    for _ in range(10):
        transactions.wait(1.0)
        assert transactions.commit(producer) is CONCURRENT
        assert transactions.abort(producer) is CONCURRENT
        assert set(codes(transactions.add(producer)).values()) == {CONCURRENT}
        assert identity(transactions.init())[0] is CONCURRENT
    transactions.markers.write_all()
    transactions.turn()
    assert transactions.commit(producer) is NONE
    assert transactions.commit(producer) is NONE
    assert transactions.abort(producer) is INVALID
    assert transactions.states().count("CompleteCommit") == 1


def test_no_marker_leaves_before_its_decision_is_committed(
    transactions: TransactionsHarness,
) -> None:
    producer = reach(transactions, STATE.ONGOING)
    transactions.log.is_replicated = False
    asked = transactions.end(producer)
    transactions.wait(5.0)
    assert not asked.is_answered
    assert transactions.markers.writes == []
    transactions.log.replicate(partition_of("t"))
    assert asked.code is NONE
    [write] = transactions.markers.writes
    assert (write.transaction_partition, write.coordinator_epoch) == (partition_of("t"), 0)
    assert (write.producer_id, write.producer_epoch, write.is_commit) == (1001, 0, True)


@pytest.mark.parametrize("is_commit", [True, False])
def test_ends_handed_in_within_one_turn_are_decided_one_by_one(
    transactions: TransactionsHarness, is_commit: bool
) -> None:
    producer = reach(transactions, STATE.ONGOING)
    transactions.log.is_replicated = False
    first = transactions.end(producer, is_commit=is_commit)
    second = transactions.end(producer, is_commit=not is_commit)
    assert second.code is CONCURRENT
    transactions.log.replicate(partition_of("t"))
    transactions.turn()
    assert first.code is NONE
    assert [one[3] for one in transactions.markers.written] == [is_commit]


def test_the_next_transaction_begins_under_the_same_epoch(
    transactions: TransactionsHarness,
) -> None:
    producer = reach(transactions, STATE.COMPLETE_ABORT)
    assert set(codes(transactions.add(producer, {"clicks": [1]})).values()) == {NONE}
    assert transactions.commit(producer) is NONE
    transactions.turn()
    written: list[Any] = transactions.markers.written
    assert written == [(("orders", 0), 1001, 0, False), (("clicks", 1), 1001, 0, True)]
