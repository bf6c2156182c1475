"""What metrics tell of the transactions that are coordinated here: docs/spec/transactions.md §6."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.broker.metrics.transaction_coordinator_families import (
    transaction_coordinator_families,
)
from tests.coordinator.transactions.conftest import make_transactions as make_transactions
from tests.coordinator.transactions.transactions_harness import TransactionsHarness
from tests.metrics.test_transaction_families import samples


def told(transactions: TransactionsHarness) -> dict[str, float]:
    found = samples(
        transaction_coordinator_families(transactions.coordinator, transactions.now_ms())
    )
    return {name.removeprefix("barnabas_"): value for name, value in found.items()}


def test_transactions_are_told_by_state_age_and_end(
    make_transactions: Callable[..., TransactionsHarness],
) -> None:
    """T6.3: a leader that is stuck shows as a prepared transaction that grows old."""
    transactions = make_transactions()
    transactions.markers.is_prompt = False
    for number, name in enumerate("abc"):
        transactions.begin(name)
        transactions.add((1001 + number, 0), name=name)
    transactions.wait(5.0)
    transactions.commit((1001, 0), name="a")
    transactions.wait(3.0)
    found = told(transactions)
    assert found['transactions{state="open"}'] == 2
    assert found['transactions{state="prepared"}'] == 1
    assert found['transaction_age_seconds{state="open"}'] == 8
    assert found['transaction_age_seconds{state="prepared"}'] == 3
    assert found['transaction_ends_total{cause="committed"}'] == 1
    assert found["transactional_ids"] == 3
    assert found['transaction_coordinator_partitions{state="owned"}'] == 2
    assert found["transaction_completions_total"] == 0
    transactions.markers.write_all()
    transactions.turn()
    transactions.wait(60.0)
    transactions.markers.write_all()
    transactions.turn()
    found = told(transactions)
    assert found['transactions{state="prepared"}'] == 0
    assert found['transaction_age_seconds{state="open"}'] == 0
    assert found['transaction_ends_total{cause="timed_out"}'] == 2
    assert found["transaction_completions_total"] == 3
    assert found["transaction_completion_seconds_max"] >= 3


def test_a_partition_that_loads_or_failed_is_told(
    make_transactions: Callable[..., TransactionsHarness],
) -> None:
    transactions = make_transactions(is_elected=False)
    transactions.elect(0, 0)
    found = told(transactions)
    assert found['transaction_coordinator_partitions{state="loading"}'] == 1
    assert found['transaction_coordinator_partitions{state="owned"}'] == 0
    transactions.turn()
    assert told(transactions)['transaction_coordinator_partitions{state="owned"}'] == 1
