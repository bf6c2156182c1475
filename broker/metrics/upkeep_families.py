"""Metrics of what a node does beside requests: compaction, failovers, loads.

Source: docs/spec/console.md §6.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.broker.controller.failovers import Cause, Failovers
from barnabas.broker.runtime.latency import BOUNDS_S
from barnabas.broker.storage.compaction.cleaner import LogCleaner

from .exposition import family, histogram, single


def cleaner_families(cleaner: LogCleaner) -> Iterator[str]:
    """Compaction: what there is to do, and when it was done last."""
    if cleaner.dirty_ratio_max is not None:
        meaning = "The dirty share of the log that is dirtiest, when one was chosen last."
        ratio = cleaner.dirty_ratio_max
        yield from single("barnabas_cleaner_dirty_ratio_max", "gauge", meaning, ratio)
    meaning = "Logs that were compacted."
    yield from single("barnabas_cleaner_passes_total", "counter", meaning, cleaner.passes)
    if cleaner.last_pass_ms is not None:
        meaning = "When one was last, seconds since 1970."
        last_s = cleaner.last_pass_ms / 1000
        yield from single("barnabas_cleaner_last_pass_time_seconds", "gauge", meaning, last_s)
    meaning = "Logs that are not compacted any more, until the next start: the log says why."
    count = len(cleaner.uncleanable)
    yield from single("barnabas_cleaner_uncleanable_logs", "gauge", meaning, count)


def failover_families(failovers: Failovers) -> Iterator[str]:
    """What this node, as controller, did about nodes and disks that were lost."""
    yield from family(
        "barnabas_failovers_total",
        "counter",
        "Nodes, or disks of theirs, that were lost, by how the controller came to know.",
        [({"cause": cause.value}, failovers.counts[cause]) for cause in Cause],
    )
    yield from histogram(
        "barnabas_failover_seconds",
        "Until the loss was noticed, since the last beacon; then until others were elected.",
        BOUNDS_S,
        [
            ({"phase": "noticed"}, failovers.noticed.buckets, failovers.noticed.seconds),
            ({"phase": "elected"}, failovers.elected.buckets, failovers.elected.seconds),
        ],
    )
