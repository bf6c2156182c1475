"""What is told of the transactions that a node coordinates.

Source: docs/spec/transactions.md §6; Kafka's transaction-coordinator-metrics, and more.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.coordinator.terms import LoadState
from barnabas.coordinator.transactions.service import TransactionCoordinator
from barnabas.coordinator.transactions.statistics import TransactionCounts, count_transactions

from .exposition import family
from .process_families import rows


def transaction_coordinator_families(
    coordinator: TransactionCoordinator, now_ms: int
) -> Iterator[str]:
    """Ids, what is open or decided, how old the oldest is, and how transactions ended."""
    counts = TransactionCounts()
    for _ in count_transactions(coordinator.registry, counts):
        yield ""  # so that the scrape may pause
    yield from family(
        "barnabas_transactions",
        "gauge",
        "Transactions coordinated here: open, or decided and without all of their markers.",
        [({"state": "open"}, counts.open), ({"state": "prepared"}, counts.prepared)],
    )
    yield from family(
        "barnabas_transaction_age_seconds",
        "gauge",
        "Age of the oldest of these, since its start or its decision.",
        [
            ({"state": "open"}, _age_s(counts.oldest_open_ms, now_ms)),
            ({"state": "prepared"}, _age_s(counts.oldest_prepared_ms, now_ms)),
        ],
    )
    yield from family(
        "barnabas_transaction_ends_total",
        "counter",
        "Ends that were decided here.",
        [({"cause": cause.value}, count) for cause, count in coordinator.ends.counts.items()],
    )
    yield from rows("barnabas", ("transactional_ids", "gauge", "Ids coordinated here.", counts.ids))
    yield from _partitions(coordinator)
    yield from _totals(coordinator)


def _totals(coordinator: TransactionCoordinator) -> Iterator[str]:
    completions, loader = coordinator.completions, coordinator.loader
    yield from rows(
        "barnabas",
        (
            "transactional_ids_expired_total",
            "counter",
            "Ids that nobody used.",
            coordinator.expiration.expired,
        ),
        (
            "transaction_completions_total",
            "counter",
            "Transactions whose markers are all written.",
            completions.completed,
        ),
        (
            "transaction_completion_seconds_total",
            "counter",
            "Time from their decisions until then.",
            completions.seconds,
        ),
        (
            "transaction_completion_seconds_max",
            "gauge",
            "The longest of these.",
            completions.seconds_longest,
        ),
        (
            "transaction_coordinator_loads_total",
            "counter",
            "Partitions of the transaction log loaded.",
            loader.loads,
        ),
        (
            "transaction_coordinator_load_seconds_total",
            "counter",
            "Time of all loads.",
            loader.seconds,
        ),
        (
            "transaction_coordinator_load_seconds_max",
            "gauge",
            "Longest load.",
            loader.seconds_longest,
        ),
    )


def _partitions(coordinator: TransactionCoordinator) -> Iterator[str]:
    states = dict.fromkeys((LoadState.OWNED, LoadState.LOADING, LoadState.FAILED), 0)
    for term in coordinator.registry.terms():
        states[term.load_state] += 1
    yield from family(
        "barnabas_transaction_coordinator_partitions",
        "gauge",
        "Partitions of the transaction log led here: owned, loading, or failed to load.",
        [({"state": state.value}, count) for state, count in states.items()],
    )


def _age_s(since_ms: int | None, now_ms: int) -> float:
    """0 where there is none; no less where clocks differ."""
    return 0.0 if since_ms is None else max(now_ms - since_ms, 0) / 1000
