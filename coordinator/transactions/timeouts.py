"""Open transactions whose producer has not ended them in time are aborted, under the next epoch.

Source: docs/spec/transactions.md §3.6. One deadline for each open transaction (timer.py), on the
loop's own clock: a wall clock that jumps ends none early. Only a takeover looks at the wall clock,
because the start in the log is all it has; it was another node's clock, so that no more than the
whole timeout is waited, and no less than none.

More partitions do not extend it (KAFKA-14638).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from barnabas.coordinator.terms import LoadState
from barnabas.coordinator.timer import Deadline, TimerQueue
from barnabas.protocol.errors import ErrorCode

from .config import TransactionConfig
from .transaction import Transaction
from .transaction_end import EndCause, TransactionEnd
from .transaction_state import TransactionState

log = logging.getLogger(__name__)


class Timeouts:
    """Watches the open transactions of a node."""

    def __init__(
        self,
        timers: TimerQueue,
        transaction_end: TransactionEnd,
        config: TransactionConfig,
        now_ms: Callable[[], int],
    ) -> None:
        self._timers = timers
        self._end = transaction_end
        self._config = config
        self._now_ms = now_ms

    def begin(self, transaction: Transaction) -> None:
        """Its first partitions were added just now."""
        self._start(transaction, transaction.metadata.timeout_ms)

    def resume(self, transaction: Transaction) -> None:
        """It was open when this node took its partition over."""
        known = transaction.metadata
        left_ms = known.started_ms + known.timeout_ms - self._now_ms()
        self._start(transaction, min(max(left_ms, 0), known.timeout_ms))

    def end(self, transaction: Transaction) -> None:
        """The term of this one is over."""
        if transaction.deadline is not None:
            self._timers.end(transaction.deadline)
            transaction.deadline = None

    def _start(self, transaction: Transaction, after_ms: int) -> None:
        if transaction.deadline is None:
            transaction.deadline = Deadline(lambda: self._on_expired(transaction))
        self._timers.start(transaction.deadline, after_ms)

    def _on_expired(self, transaction: Transaction) -> None:
        term = transaction.term
        is_open = (
            term.load_state is LoadState.OWNED
            and term.keeps(transaction)
            and transaction.state is TransactionState.ONGOING
        )
        if not is_open:
            transaction.deadline = None  # it ended in time, and the next one has its own: no cycle
            return
        if transaction.pending is not None:
            self._start(transaction, self._config.abort_check_interval_ms)  # see what becomes of it
            return

        def on_done(code: ErrorCode) -> None:
            if code:
                self._start(transaction, self._config.abort_check_interval_ms)
                return
            log.info(
                "aborted a transaction that timed out id=%s producer=%d epoch=%d timeout_ms=%d",
                transaction.transactional_id,
                transaction.metadata.producer_id,
                transaction.metadata.producer_epoch,
                transaction.metadata.timeout_ms,
            )

        self._end.decide(transaction, EndCause.TIMED_OUT, on_done)
