"""How the end of a transaction is decided: PrepareCommit or PrepareAbort is committed.

Source: docs/spec/transactions.md §2.4, §2.6 and §3.6. From then on it never ends otherwise,
whatever fails: markers leave only after it, and the next coordinator finds it in the log.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

from barnabas.protocol.errors import ErrorCode

from .completion import Completions
from .transaction import Transaction
from .transaction_state import TransactionState
from .transitions import OnDone, Transitions


class EndCause(Enum):
    """Why a transaction ends."""

    COMMITTED = "committed"
    """Its producer wants it."""
    ABORTED = "aborted"
    """Its producer does not want it."""
    FENCED = "fenced"
    """Another producer of the id begins."""
    TIMED_OUT = "timed_out"
    """Its producer did not end it in time."""


_FENCES: Final = frozenset({EndCause.FENCED, EndCause.TIMED_OUT})


class TransactionEnd:
    """Ends open transactions: for their producer, for its successor, or because of their age."""

    def __init__(
        self, transitions: Transitions, completions: Completions, now_ms: Callable[[], int]
    ) -> None:
        self._transitions = transitions
        self._completions = completions
        self._now_ms = now_ms
        self.counts = dict.fromkeys(EndCause, 0)
        """How many ends were decided here, by cause."""

    def decide(self, transaction: Transaction, cause: EndCause, on_done: OnDone) -> None:
        """End an open transaction; ``on_done`` is called before its markers go.

        Where its producer does not want that, it is aborted under the next epoch, which shuts
        the producer out. The epoch stays what it is until that is committed. Kafka bumps it in
        memory before: after a failed append it stays bumped, and the producer is fenced by an
        abort that never was (KAFKA-9666).
        """
        is_fence = cause in _FENCES
        metadata = transaction.prepared(
            is_commit=cause is EndCause.COMMITTED, is_fence=is_fence, now_ms=self._now_ms()
        )
        pending = TransactionState.PREPARE_EPOCH_FENCE if is_fence else metadata.state

        def on_written(code: ErrorCode) -> None:
            try:
                on_done(code)
            finally:
                if not code:
                    self.counts[cause] += 1
                    self._completions.begin(transaction)

        self._transitions.write(transaction, pending, metadata, on_written)
