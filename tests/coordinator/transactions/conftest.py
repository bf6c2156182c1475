"""What these tests begin with: a node that leads every partition of the transaction log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.coordinator.transactions.transactions_harness import TransactionsHarness


@pytest.fixture
def make_transactions() -> Iterator[Callable[..., TransactionsHarness]]:
    """Make harnesses with other settings; all are closed at the end."""
    made: list[TransactionsHarness] = []

    def make(**settings: Any) -> TransactionsHarness:
        made.append(TransactionsHarness(**settings))
        return made[-1]

    yield make
    for harness in made:
        harness.close()


@pytest.fixture
def transactions(make_transactions: Callable[..., TransactionsHarness]) -> TransactionsHarness:
    return make_transactions()
