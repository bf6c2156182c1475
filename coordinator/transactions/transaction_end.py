"""How the end of a transaction is decided: PrepareCommit or PrepareAbort is committed.

Source: docs/spec/transactions.md §2.4 and §2.6. From then on it never ends otherwise, whatever
fails: markers leave only after it, and the next coordinator finds it in the log.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.protocol.errors import ErrorCode

from .completion import Completions
from .transaction import Transaction
from .transaction_state import TransactionState
from .transitions import OnDone, Transitions


class TransactionEnd:
    """Ends open transactions: for their producer, for its successor, or because of their age."""

    def __init__(
        self, transitions: Transitions, completions: Completions, now_ms: Callable[[], int]
    ) -> None:
        self._transitions = transitions
        self._completions = completions
        self._now_ms = now_ms

    def decide(self, transaction: Transaction, on_done: OnDone, *, is_commit: bool) -> None:
        """End an open transaction as its producer wants it; ``on_done`` before the markers go."""
        self._decide(transaction, on_done, is_commit=is_commit, is_fence=False)

    def fence(self, transaction: Transaction, on_done: OnDone) -> None:
        """Abort an open transaction under the next epoch, which shuts its producer out.

        The epoch stays what it is until that is committed. Kafka bumps it in memory before: after
        a failed append it stays bumped, and the producer is fenced by an abort that never was
        (KAFKA-9666).
        """
        self._decide(transaction, on_done, is_commit=False, is_fence=True)

    def _decide(
        self, transaction: Transaction, on_done: OnDone, *, is_commit: bool, is_fence: bool
    ) -> None:
        metadata = transaction.prepared(
            is_commit=is_commit, is_fence=is_fence, now_ms=self._now_ms()
        )
        pending = TransactionState.PREPARE_EPOCH_FENCE if is_fence else metadata.state

        def on_written(code: ErrorCode) -> None:
            try:
                on_done(code)
            finally:
                if not code:
                    self._completions.begin(transaction)

        self._transitions.write(transaction, pending, metadata, on_written)
