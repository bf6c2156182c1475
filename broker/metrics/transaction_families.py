"""Metrics of transactions: verification, markers, producers and what holds readers back.

Source: docs/spec/transactions.md §6; the gauges of Kafka's that operators watch, by names like
ours (AddPartitionsToTxnManager, TransactionMarkerChannelManager, ReplicaManager).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from barnabas.broker.markers.sender import MarkerSender
from barnabas.broker.replication.partition import Partition
from barnabas.broker.runtime.latency import BOUNDS_S
from barnabas.broker.verification.verifier import TransactionVerifier

from .exposition import family, histogram
from .process_families import rows

LATE_MS: Final = 300_000
"""So much longer than any transaction may take, one hangs: nobody is going to end it."""


def verification_families(verifier: TransactionVerifier) -> Iterator[str]:
    """How long coordinators take to vouch for partitions, and how often they do not."""
    yield from histogram(
        "barnabas_transaction_verification_seconds",
        "From the question to a transaction's coordinator until its answer.",
        BOUNDS_S,
        [({}, verifier.latency.buckets, verifier.latency.seconds)],
    )
    yield from rows(
        "barnabas_transaction_verification",
        (
            "failures_total",
            "counter",
            "Partitions that no coordinator vouched for.",
            verifier.failures,
        ),
    )


def marker_families(sender: MarkerSender) -> Iterator[str]:
    """Markers on their way from this node."""
    yield from family(
        "barnabas_transaction_markers",
        "gauge",
        "Markers not written yet: all, in requests, before the next try, without a leader.",
        [
            ({"state": "open"}, sender.open_count),
            ({"state": "under_way"}, sender.under_way_count),
            ({"state": "delayed"}, sender.delayed_count),
            ({"state": "unknown_leader"}, sender.unknown_count),
        ],
    )


def producer_families(
    hosted: Iterable[Partition], now_ms: int, timeout_max_ms: int
) -> Iterator[str]:
    """Producers that the logs here know, and transactions that hold readers back for too long."""
    producers = late = open_count = 0
    for partition in list(hosted):
        known = partition.log.producers
        producers += len(known)
        oldest = known.oldest_open()
        if partition.is_leader and oldest is not None:
            open_count += 1
            late += now_ms - oldest.timestamp > timeout_max_ms + LATE_MS
        yield ""  # so that the scrape may pause
    yield from rows(
        "barnabas",
        ("producer_ids", "gauge", "Producer ids that replicas here know.", producers),
        (
            "open_transaction_partitions",
            "gauge",
            "Led here, with a transaction that is open.",
            open_count,
        ),
        (
            "late_transaction_partitions",
            "gauge",
            "Led here, with a transaction that nobody is going to end.",
            late,
        ),
    )
