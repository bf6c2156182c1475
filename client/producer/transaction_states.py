"""The states of a transactional producer, and which call is allowed in each of them, as tables.

Source: docs/spec/transactions.md §7; KIP-98.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class TransactionState(Enum):
    """Where a transactional producer is; the value is how it is said to people."""

    UNINITIALIZED = "not initialized"
    INITIALIZING = "being initialized"
    READY = "without an open transaction"
    IN_TRANSACTION = "in a transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORTABLE_ERROR = "in a transaction that failed"
    FATAL_ERROR = "failed for good"


_S = TransactionState

NEXT: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    _S.UNINITIALIZED: frozenset({_S.INITIALIZING, _S.FATAL_ERROR}),
    _S.INITIALIZING: frozenset({_S.READY, _S.ABORTABLE_ERROR, _S.FATAL_ERROR}),
    _S.READY: frozenset({_S.IN_TRANSACTION, _S.FATAL_ERROR}),
    _S.IN_TRANSACTION: frozenset({_S.COMMITTING, _S.ABORTING, _S.ABORTABLE_ERROR, _S.FATAL_ERROR}),
    _S.COMMITTING: frozenset({_S.READY, _S.ABORTABLE_ERROR, _S.FATAL_ERROR}),
    _S.ABORTABLE_ERROR: frozenset({_S.ABORTING, _S.FATAL_ERROR}),
    # INITIALIZING: the epoch is bumped behind the abort (KIP-360).
    _S.ABORTING: frozenset({_S.READY, _S.INITIALIZING, _S.FATAL_ERROR}),
    _S.FATAL_ERROR: frozenset(),
}
"""What may follow each state; anything else is a bug of ours."""


class ApplicationCall(Enum):
    """What an application asks for; the value is the method's name."""

    INIT = "init_transactions"
    BEGIN = "begin"
    SEND = "send"
    SEND_OFFSETS = "send_offsets"
    COMMIT = "commit"
    ABORT = "abort"


ALLOWED: Final[Mapping[ApplicationCall, frozenset[TransactionState]]] = {
    ApplicationCall.INIT: frozenset({_S.UNINITIALIZED}),
    ApplicationCall.BEGIN: frozenset({_S.READY}),
    ApplicationCall.SEND: frozenset({_S.IN_TRANSACTION}),
    ApplicationCall.SEND_OFFSETS: frozenset({_S.IN_TRANSACTION}),
    ApplicationCall.COMMIT: frozenset({_S.IN_TRANSACTION}),
    ApplicationCall.ABORT: frozenset({_S.IN_TRANSACTION, _S.ABORTABLE_ERROR}),
}
"""The states in which a call may begin; in others it is refused, and changes nothing."""

OPEN: Final = frozenset({_S.IN_TRANSACTION, _S.COMMITTING})
"""States in which partitions and offsets are still added; an abort gives those that wait up."""


def drawing() -> str:
    """The moves as lines of text, as the page about transactions shows them."""
    width = max(len(state.name) for state in TransactionState)
    return "\n".join(
        f"{state.name:<{width}} -> {', '.join(after.name for after in _S if after in NEXT[state])}"
        for state in TransactionState
        if NEXT[state]
    )
