"""What is told of a node's transactions: how many, how old, and how they ended.

Source: docs/spec/transactions.md §6.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from .transaction_registry import TransactionRegistry
from .transaction_state import PREPARED, TransactionState

IDS_A_LOOK: Final = 250


@dataclass(slots=True)
class TransactionCounts:
    """What a node coordinates at a moment."""

    ids: int = 0
    """Transactional ids, whatever they do."""
    open: int = 0
    """Of these, with an open transaction."""
    prepared: int = 0
    """With an end that is decided and not complete."""
    oldest_open_ms: int | None = None
    """When the oldest open transaction began; None without one."""
    oldest_prepared_ms: int | None = None
    """When the oldest end was decided that is not complete; None without one."""


def count_transactions(registry: TransactionRegistry, counts: TransactionCounts) -> Iterator[None]:
    """Fill in ``counts``; yields often, so that others have the loop in between.

    Only what is open or about to end is looked at: a node may know a million ids.
    """
    for term in registry.terms():
        counts.ids += len(term)
        for number, transaction in enumerate(list(term.unfinished)):
            if number % IDS_A_LOOK == IDS_A_LOOK - 1:
                yield
            metadata = transaction.metadata
            if metadata.state is TransactionState.ONGOING:
                counts.open += 1
                counts.oldest_open_ms = _older(counts.oldest_open_ms, metadata.started_ms)
            elif metadata.state in PREPARED:
                counts.prepared += 1
                counts.oldest_prepared_ms = _older(counts.oldest_prepared_ms, metadata.updated_ms)
        yield


def _older(known_ms: int | None, found_ms: int) -> int:
    return found_ms if known_ms is None else min(known_ms, found_ms)
