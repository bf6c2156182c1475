"""What metrics tell of the groups that are coordinated here: docs/spec/users.md §4."""

from __future__ import annotations

from barnabas.broker.metrics.group_families import coordinator_families
from barnabas.broker.metrics.group_lag_monitor import LagReport
from tests.coordinator.conftest import harness as harness
from tests.coordinator.conftest import make_harness as make_harness
from tests.coordinator.coordinator_harness import CoordinatorHarness, of_many, partition_of
from tests.coordinator.test_txn_deletions import forget
from tests.metrics.test_transaction_families import samples


def staged(harness: CoordinatorHarness) -> tuple[float, float]:
    """Offsets inside of transactions, and producers of these."""
    found = samples(coordinator_families(harness.coordinator, LagReport()))
    return found["barnabas_staged_offsets"], found["barnabas_staged_offsets_producers"]


def test_offsets_inside_of_transactions_are_counted_until_a_marker_comes(
    harness: CoordinatorHarness,
) -> None:
    other = next(name for name in "abcdefgh" if partition_of(name) != partition_of("g"))
    harness.commit(1)
    assert staged(harness) == (0, 0)
    rows = of_many("g", ("orders", 0, 5), ("orders", 1, 6), ("clicks", 0, 7))
    harness.ask("txn_offset_commit", rows, 3)
    harness.txn_commit(8, producer_id=8)
    harness.txn_commit(9, producer_id=8)  # in place of the former
    harness.txn_commit(3, group=other)
    assert staged(harness) == (5, 3)  # producer 7 is in two partitions
    harness.reload()
    assert staged(harness) == (5, 3)
    harness.end_transaction(producer_id=8)
    assert staged(harness) == (4, 2)
    forget(harness, 1)
    assert staged(harness) == (3, 2)
    harness.end_transaction(is_commit=False)
    harness.end_transaction(group=other)
    assert staged(harness) == (0, 0)


def test_what_was_deleted_of_a_transaction_leaves_no_producer_behind(
    harness: CoordinatorHarness,
) -> None:
    harness.txn_commit(5)
    forget(harness)
    assert staged(harness) == (0, 0)
