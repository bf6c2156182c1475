"""The states of a transaction as a table: what follows what, and what each answers.

Source: docs/spec/transactions.md §2.1, §2.5, §2.6 and §2.7. Pure; the drawing in
docs/transactions.md is made here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from barnabas.protocol.errors import ErrorCode


class TransactionState(Enum):
    """Where a transactional id stands; the value is Kafka's name for it, as tools show it."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    """Only ever pending: its tombstone is on its way."""
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    """Only ever pending: an abort under the next epoch, which shuts out the present producer."""

    @property
    def status(self) -> int:
        """The number that stands for it in the transaction log."""
        return _STATUS[self]


BY_STATUS: Final[tuple[TransactionState, ...]] = tuple(TransactionState)
"""The state of each number in the transaction log."""
_STATUS: Final = {state: number for number, state in enumerate(BY_STATUS)}
_EMPTY: Final = TransactionState.EMPTY
_ONGOING: Final = TransactionState.ONGOING
_PREPARE_COMMIT: Final = TransactionState.PREPARE_COMMIT
_PREPARE_ABORT: Final = TransactionState.PREPARE_ABORT
_COMPLETE_COMMIT: Final = TransactionState.COMPLETE_COMMIT
_COMPLETE_ABORT: Final = TransactionState.COMPLETE_ABORT
_DEAD: Final = TransactionState.DEAD
_PREPARE_EPOCH_FENCE: Final = TransactionState.PREPARE_EPOCH_FENCE
_ENDED: Final = frozenset({_EMPTY, _COMPLETE_COMMIT, _COMPLETE_ABORT})

PREDECESSORS: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    _EMPTY: _ENDED,
    _ONGOING: _ENDED | {_ONGOING},
    _PREPARE_COMMIT: frozenset({_ONGOING}),
    _PREPARE_ABORT: frozenset({_ONGOING, _PREPARE_EPOCH_FENCE}),
    _COMPLETE_COMMIT: frozenset({_PREPARE_COMMIT}),
    _COMPLETE_ABORT: frozenset({_PREPARE_ABORT}),
    _DEAD: _ENDED,
    _PREPARE_EPOCH_FENCE: frozenset({_ONGOING}),
}
"""From which states each may be reached; any other transition is our bug."""

PENDING_ONLY: Final = frozenset({_DEAD, _PREPARE_EPOCH_FENCE})
"""Never written to the log."""

PREPARED: Final = {_PREPARE_COMMIT: _COMPLETE_COMMIT, _PREPARE_ABORT: _COMPLETE_ABORT}
"""What follows once all markers are written."""

MAY_EXPIRE: Final = _ENDED
"""An id in one of these states is forgotten when nobody has used it for long."""


@dataclass(frozen=True, slots=True)
class StateRules:
    """What a state answers to a request that is otherwise in order.

    NONE lets it pass. ``commit`` and ``abort`` are None where the end is to be written.
    """

    add: ErrorCode
    commit: ErrorCode | None
    abort: ErrorCode | None
    verify: ErrorCode


_CONCURRENT: Final = ErrorCode.CONCURRENT_TRANSACTIONS
_INVALID: Final = ErrorCode.INVALID_TXN_STATE
_NONE: Final = ErrorCode.NONE

RULES: Final[Mapping[TransactionState, StateRules]] = {
    _EMPTY: StateRules(add=_NONE, commit=_INVALID, abort=_INVALID, verify=_NONE),
    _ONGOING: StateRules(add=_NONE, commit=None, abort=None, verify=_NONE),
    _PREPARE_COMMIT: StateRules(
        add=_CONCURRENT, commit=_CONCURRENT, abort=_INVALID, verify=_CONCURRENT
    ),
    _PREPARE_ABORT: StateRules(
        add=_CONCURRENT, commit=_INVALID, abort=_CONCURRENT, verify=_CONCURRENT
    ),
    _COMPLETE_COMMIT: StateRules(add=_NONE, commit=_NONE, abort=_INVALID, verify=_NONE),
    _COMPLETE_ABORT: StateRules(add=_NONE, commit=_INVALID, abort=_NONE, verify=_NONE),
}
"""A retried EndTxn whose answer was lost is answered 0 in the state that it led to."""


def drawing() -> str:
    """The table :data:`PREDECESSORS` as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {_EMPTY.value}"]
    for state in TransactionState:
        lines += [
            f"    {state.value} --> {after.value}"
            for after in TransactionState
            if state in PREDECESSORS[after]
        ]
    return "\n".join([*lines, f"    {_DEAD.value} --> [*]"])
