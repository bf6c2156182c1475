"""What a pass over a log knows of its transactions: which records never counted.

Source: docs/spec/log.md §5.6; §9 pitfalls P23 and P24.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from barnabas.protocol.log_files.aborted_transactions import AbortedTransaction
from barnabas.protocol.records import batch
from barnabas.protocol.records.control import Marker, parse_marker


class CleanedTransactions:
    """Transactions in the order of the log; one object serves a whole pass.

    ``aborted`` are all that reach into what the pass reads, also those whose marker lies behind.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._to_come = deque(sorted(aborted, key=lambda transaction: transaction.first_offset))
        self._aborted: dict[int, AbortedTransaction] = {}
        self._with_data: set[int] = set()
        """Producers whose transaction under way has a batch in the log."""

    def _advance(self, last_offset: int) -> None:
        while self._to_come and self._to_come[0].first_offset <= last_offset:
            transaction = self._to_come.popleft()
            self._aborted.setdefault(transaction.producer_id, transaction)

    def is_aborted(self, entry: bytes, last_offset: int) -> bool:
        """Whether a batch of data belongs to a transaction that was aborted."""
        self._advance(last_offset)
        if not batch.is_transactional(entry):
            return False
        producer_id = batch.producer_id(entry)
        self._with_data.add(producer_id)
        return producer_id in self._aborted

    def end(self, entry: bytes, last_offset: int) -> tuple[bool, AbortedTransaction | None]:
        """Take a marker into account.

        Returns whether nothing is left of its transaction, so that the marker itself may go, and
        else what the transaction index must go on saying when it was an abort.
        """
        self._advance(last_offset)
        marker = next(iter(batch.records(entry)), None)
        if marker is None:
            return True, None  # emptied by an earlier pass: it stayed for its producer's sake
        producer_id = batch.producer_id(entry)
        match parse_marker(marker.key):
            case Marker.ABORT:
                aborted = self._aborted.pop(producer_id, None)
                had_data = producer_id in self._with_data
                self._with_data.discard(producer_id)
                return (False, aborted) if had_data else (True, None)
            case Marker.COMMIT:
                had_data = producer_id in self._with_data
                self._with_data.discard(producer_id)
                return not had_data, None
            case None:
                return False, None
