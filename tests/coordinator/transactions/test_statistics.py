"""How many transactions there are, how old, and how they ended.

Source: docs/spec/transactions.md §6, T6.3 as far as it is the coordinator's.
"""

from __future__ import annotations

from barnabas.coordinator.transactions.statistics import TransactionCounts, count_transactions
from barnabas.coordinator.transactions.transaction_end import EndCause
from tests.coordinator.transactions.transactions_harness import TransactionsHarness


def counted(transactions: TransactionsHarness) -> TransactionCounts:
    counts = TransactionCounts()
    for _ in count_transactions(transactions.coordinator.registry, counts):
        pass
    return counts


def test_what_is_open_and_what_is_decided_is_counted_with_the_oldest(
    transactions: TransactionsHarness,
) -> None:
    assert counted(transactions) == TransactionCounts()
    began = []
    for name in "abcd":
        transactions.begin(name)
    for number, name in enumerate("abc"):
        transactions.wait(1.0)
        began.append(transactions.now_ms())
        transactions.add((1001 + number, 0), name=name)
    transactions.markers.is_prompt = False
    transactions.wait(1.0)
    decided_ms = transactions.now_ms()
    transactions.commit((1001, 0), name="a")
    expected = TransactionCounts(
        ids=4,
        open=2,
        prepared=1,
        oldest_open_ms=began[1],
        oldest_prepared_ms=decided_ms,
    )
    assert counted(transactions) == expected
    transactions.reload()
    assert counted(transactions) == expected
    transactions.markers.write_all()
    transactions.turn()
    assert counted(transactions) == TransactionCounts(ids=4, open=2, oldest_open_ms=began[1])
    for index in range(2):
        transactions.resign(index, 2)
    assert counted(transactions) == TransactionCounts()


def test_very_many_open_transactions_are_counted_in_turns(
    transactions: TransactionsHarness,
) -> None:
    for number in range(600):
        transactions.hand_in_init(f"id-{number}")
    transactions.turn()
    for number in range(600):
        transactions.hand_in_add((1001 + number, 0), {"orders": [0]}, name=f"id-{number}")
    transactions.turn()
    counts = TransactionCounts()
    assert len(list(count_transactions(transactions.coordinator.registry, counts))) >= 4
    assert (counts.ids, counts.open) == (600, 600)


def test_ends_are_counted_by_their_cause(transactions: TransactionsHarness) -> None:
    for name, cause in zip("abcd", EndCause, strict=True):
        producer = transactions.begin(name, timeout_ms=5000)
        transactions.add(producer, name=name)
        if cause is EndCause.FENCED:
            transactions.init(name)
        elif cause is not EndCause.TIMED_OUT:
            transactions.end(producer, is_commit=cause is EndCause.COMMITTED, name=name)
    transactions.wait(6.0)
    ends = transactions.coordinator.ends
    assert ends.counts == dict.fromkeys(EndCause, 1)
    assert transactions.coordinator.completions.completed == 4


def test_how_long_markers_take_is_told(transactions: TransactionsHarness) -> None:
    transactions.markers.is_prompt = False
    producer = transactions.begin()
    transactions.add(producer)
    transactions.commit(producer)
    transactions.wait(3.0)
    transactions.markers.write_all()
    transactions.turn()
    completions = transactions.coordinator.completions
    assert (completions.completed, completions.seconds, completions.seconds_longest) == (1, 3, 3)
