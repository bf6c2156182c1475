"""A transition is appended, and applied when the log has it.

Source: docs/spec/transactions.md §2.2, §2.3 and §3.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from barnabas.protocol.errors import ErrorCode

from .config import TransactionConfig
from .journal import APPEND_ERRORS, TransactionJournal
from .transaction import Identity, Metadata, Transaction
from .transaction_record import key_of, value_of
from .transaction_state import TransactionState

OnDone: TypeAlias = Callable[[ErrorCode], None]
"""The end of a transition, once, with what a client is told. NONE: it is committed and applied."""


APPEND_LEAST_MS: Final = 500
"""An append may wait for so long, however short the time-out of the transaction is."""


class Transitions:
    """Writes what a transition leads to; each either is applied or leaves nothing behind."""

    def __init__(self, journal: TransactionJournal, config: TransactionConfig) -> None:
        self._journal = journal
        self._config = config

    def write(
        self,
        transaction: Transaction,
        pending: TransactionState,
        metadata: Metadata,
        on_done: OnDone,
        identity: Identity | None = None,
    ) -> None:
        """Append ``metadata``; ``identity`` is what InitProducerId gives with it.

        The transition is pending from now on, and is not when ``on_done`` is called: a pending one
        that nobody ends would have every later request told 51, for ever (KAFKA-5351).
        """
        transaction.begin(pending)
        term = transaction.term

        def on_decided(code: ErrorCode) -> None:
            if code:
                transaction.take_back()
            elif not term.keeps(transaction):
                transaction.take_back()
                code = ErrorCode.NOT_COORDINATOR
            elif identity is not None:
                transaction.apply_identity(identity, metadata)
            else:
                transaction.apply(metadata)
            on_done(APPEND_ERRORS.get(code, code))

        entry = key_of(transaction.transactional_id), value_of(metadata)
        timeout_ms = self.timeout_ms(transaction, metadata)
        self._journal.write(term, entry, timeout_ms, on_decided)

    def timeout_ms(self, transaction: Transaction, metadata: Metadata) -> int:
        """How long the append of ``metadata`` may wait for its replicas.

        Kafka waits as long as the transaction may take: EndTxn hangs for a quarter of an hour. But
        not the millisecond that older clients of Java fence an id with (KAFKA-16047): no replica
        answers so soon, and whoever came next would find it in the metadata.
        """
        longer_ms = max(transaction.metadata.timeout_ms, metadata.timeout_ms, APPEND_LEAST_MS)
        return min(longer_ms, self._config.request_timeout_ms)
