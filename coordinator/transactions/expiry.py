"""Ids that nobody has used for long are forgotten, with a tombstone in the log.

Source: docs/spec/transactions.md §3.7. An id with an open transaction, or one that is about to end,
never expires: its markers would be lost with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from barnabas.coordinator.loader import SLICE_S
from barnabas.coordinator.terms import LoadState
from barnabas.protocol.errors import ErrorCode

from .config import TransactionConfig
from .journal import TransactionJournal
from .transaction import Transaction
from .transaction_record import key_of, state_of, updated_ms_in
from .transaction_registry import TransactionRegistry, TransactionTerm
from .transaction_state import MAY_EXPIRE, TransactionState

log = logging.getLogger(__name__)


class TransactionExpiration:
    """Looks at every id now and then, in slices that leave the loop to others."""

    def __init__(
        self,
        registry: TransactionRegistry,
        journal: TransactionJournal,
        config: TransactionConfig,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
    ) -> None:
        self._registry = registry
        self._journal = journal
        self._config = config
        self._loop = loop
        self._now_ms = now_ms
        self._slice_ends = 0.0
        self.expired = 0
        """How many ids were forgotten so far."""

    async def run(self) -> None:
        """Look at every id each ``transaction.remove.expired.transaction.cleanup.interval.ms``."""
        while True:
            await asyncio.sleep(self._config.expiration_check_interval_ms / 1000)
            await self._round()

    async def _round(self) -> None:
        self._slice_ends = self._loop.time() + SLICE_S
        for term in self._registry.terms():
            for key in list(term.stored):
                value = term.stored.get(key)
                if value is not None and self._has_expired_value(value):
                    transaction = term.find_by_key(key)
                    if transaction is not None:
                        self._forget(term, transaction)
                await self._give_way()
            for transaction in list(term.transactions.values()):
                if transaction.may_expire and self._is_old(transaction.metadata.updated_ms):
                    self._forget(term, transaction)
                await self._give_way()

    async def _give_way(self) -> None:
        if self._loop.time() >= self._slice_ends:
            await asyncio.sleep(0)
            self._slice_ends = self._loop.time() + SLICE_S

    def _has_expired_value(self, value: bytes) -> bool:
        """Looked at as bytes: most are not old enough, and stay bytes."""
        return self._is_old(updated_ms_in(value)) and state_of(value) in MAY_EXPIRE

    def _is_old(self, updated_ms: int) -> bool:
        return updated_ms <= self._now_ms() - self._config.expiration_ms

    def _forget(self, term: TransactionTerm, transaction: Transaction) -> None:
        """Have its tombstone written; until that is committed the id is there, and busy."""
        if term.load_state is not LoadState.OWNED or not term.keeps(transaction):
            return
        transaction.begin(TransactionState.DEAD)

        def on_decided(code: ErrorCode) -> None:
            if code:
                transaction.take_back()  # or it would be busy for ever (KAFKA-7519)
            else:
                term.remove(transaction)
                self.expired += 1

        entry = key_of(transaction.transactional_id), None
        self._journal.write(term, entry, self._config.request_timeout_ms, on_decided)
