"""The table of states is complete, and the drawing is the table: check T2.1.

Source: docs/spec/transactions.md §2.1.
"""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from barnabas.coordinator.transactions.transaction import Metadata, Transaction
from barnabas.coordinator.transactions.transaction_registry import TransactionTerm
from barnabas.coordinator.transactions.transaction_state import (
    BY_STATUS,
    MAY_EXPIRE,
    PENDING_ONLY,
    PREDECESSORS,
    PREPARED,
    RULES,
    TransactionState,
    drawing,
)

PAGE = Path(__file__).parents[3] / "docs" / "transactions.md"
LEGAL = {
    "Empty": "Empty CompleteCommit CompleteAbort",
    "Ongoing": "Ongoing Empty CompleteCommit CompleteAbort",
    "PrepareCommit": "Ongoing",
    "PrepareAbort": "Ongoing PrepareEpochFence",
    "CompleteCommit": "PrepareCommit",
    "CompleteAbort": "PrepareAbort",
    "Dead": "Empty CompleteAbort CompleteCommit",
    "PrepareEpochFence": "Ongoing",
}
"""Legal predecessors as the specification has them."""
STORED = [state for state in TransactionState if state not in PENDING_ONLY]


def in_state(state: TransactionState) -> Transaction:
    metadata = Metadata(
        producer_id=1, producer_epoch=2, timeout_ms=3, state=state, updated_ms=4, started_ms=5
    )
    return Transaction("t", metadata, TransactionTerm(0, 0))


def test_the_numbers_of_the_states_are_kafkas() -> None:
    assert [state.value for state in BY_STATUS] == list(LEGAL)
    assert [state.status for state in BY_STATUS] == list(range(8))


def test_the_table_is_that_of_the_specification() -> None:
    table = {after.value: {state.value for state in PREDECESSORS[after]} for after in PREDECESSORS}
    assert table == {name: set(before.split()) for name, before in LEGAL.items()}
    assert {state.value for state in MAY_EXPIRE} == {"Empty", "CompleteCommit", "CompleteAbort"}


@pytest.mark.parametrize(("before", "after"), list(product(STORED, TransactionState)))
def test_every_pair_is_a_legal_transition_or_our_bug(
    before: TransactionState, after: TransactionState
) -> None:
    """T2.1, every pair; an illegal one leaves the id as it was."""
    transaction = in_state(before)
    if before in PREDECESSORS[after]:
        transaction.begin(after)
        assert transaction.pending is after
        assert transaction.state is before
    else:
        with pytest.raises(AssertionError, match=f"{before.value} -> {after.value}"):
            transaction.begin(after)
        assert transaction.pending is None
        assert transaction.state is before


def test_a_second_transition_while_one_is_pending_is_our_bug() -> None:
    transaction = in_state(TransactionState.EMPTY)
    transaction.begin(TransactionState.EMPTY)
    with pytest.raises(AssertionError, match="pending"):
        transaction.begin(TransactionState.ONGOING)


def test_what_is_applied_is_what_was_pending() -> None:
    transaction = in_state(TransactionState.ONGOING)
    transaction.begin(TransactionState.PREPARE_ABORT)
    with pytest.raises(AssertionError, match="PrepareCommit instead of PrepareAbort"):
        transaction.apply(in_state(TransactionState.PREPARE_COMMIT).metadata)
    assert transaction.state is TransactionState.ONGOING


def test_a_fence_leads_to_an_abort_only() -> None:
    transaction = in_state(TransactionState.ONGOING)
    transaction.begin(TransactionState.PREPARE_EPOCH_FENCE)
    with pytest.raises(AssertionError, match="PrepareEpochFence -> PrepareCommit"):
        transaction.apply(in_state(TransactionState.PREPARE_COMMIT).metadata)
    transaction.apply(in_state(TransactionState.PREPARE_ABORT).metadata)
    assert transaction.state is TransactionState.PREPARE_ABORT


@pytest.mark.parametrize("state", sorted(PENDING_ONLY, key=str))
def test_what_is_pending_only_never_is_the_state_of_an_id(state: TransactionState) -> None:
    with pytest.raises(AssertionError):
        in_state(state)


def test_every_state_that_an_id_can_have_has_rules() -> None:
    assert set(RULES) == set(STORED)
    assert set(PREPARED) | MAY_EXPIRE | {TransactionState.ONGOING} == set(STORED)


def test_the_drawing_in_the_docs_is_made_from_the_table() -> None:
    found = re.search(r"```mermaid\n(stateDiagram.*?)\n```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    assert found[1] == drawing()
