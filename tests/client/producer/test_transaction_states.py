"""The table of a transactional producer's states, pair by pair, and which calls each allows."""

from __future__ import annotations

import pytest

from barnabas.client.cluster import Cluster
from barnabas.client.producer.producer_config import ProducerConfig
from barnabas.client.producer.transaction_manager import TransactionManager
from barnabas.client.producer.transaction_states import (
    ALLOWED,
    NEXT,
    ApplicationCall,
    TransactionState,
    drawing,
)

_S = TransactionState
LEGAL = {
    ("UNINITIALIZED", "INITIALIZING"),
    ("INITIALIZING", "READY"),
    ("READY", "IN_TRANSACTION"),
    ("IN_TRANSACTION", "COMMITTING"),
    ("IN_TRANSACTION", "ABORTING"),
    ("COMMITTING", "READY"),
    ("ABORTING", "READY"),
    ("ABORTING", "INITIALIZING"),
    ("INITIALIZING", "ABORTABLE_ERROR"),
    ("IN_TRANSACTION", "ABORTABLE_ERROR"),
    ("COMMITTING", "ABORTABLE_ERROR"),
    ("ABORTABLE_ERROR", "ABORTING"),
    *((state.name, "FATAL_ERROR") for state in _S if state is not _S.FATAL_ERROR),
}
"""docs/spec/transactions.md §7; INITIALIZING behind ABORTING is the bump of the epoch."""


@pytest.mark.parametrize("before", list(_S))
@pytest.mark.parametrize("after", list(_S))
def test_a_state_follows_another_where_the_table_says(
    before: TransactionState, after: TransactionState
) -> None:
    assert ((before.name, after.name) in LEGAL) == (after in NEXT[before])


def test_every_state_has_a_row_and_is_reached() -> None:
    assert NEXT.keys() == set(_S)
    assert set().union(*NEXT.values()) == set(_S) - {_S.UNINITIALIZED}


def test_every_call_is_allowed_somewhere_and_none_after_a_fatal_error() -> None:
    assert ALLOWED.keys() == set(ApplicationCall)
    assert all(ALLOWED.values())
    assert not any(_S.FATAL_ERROR in states for states in ALLOWED.values())


async def test_an_illegal_move_is_a_bug() -> None:
    config = ProducerConfig(transactional_id="x")
    manager = TransactionManager(Cluster("localhost:1"), config)
    with pytest.raises(AssertionError, match="UNINITIALIZED -> READY"):
        manager._become(_S.READY)


def test_the_drawing_has_every_move() -> None:
    lines = [line.split(" -> ") for line in drawing().splitlines()]
    drawn = {(before.strip(), after) for before, rest in lines for after in rest.split(", ")}
    assert drawn == LEGAL
