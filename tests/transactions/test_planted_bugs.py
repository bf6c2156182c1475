"""The checker finds what is planted in a cluster in memory, and nothing in a sound one.

Source: docs/spec/reliability.md §1.1.
"""

from __future__ import annotations

from collections import Counter

import pytest

from .checker import Kind, check
from .history import Outcome
from .model_cluster import Bug
from .model_jobs import RECORDS, SOURCES, World

SEEDS = range(15)
SYMPTOMS = {
    Bug.MARKER_LOST: {Kind.STUCK, Kind.FRACTURED, Kind.LOST},
    Bug.COMMIT_BEFORE_MARKERS: {Kind.FRACTURED, Kind.LOST, Kind.G1A},
    Bug.STABLE_TOO_HIGH: {Kind.G1B},
    Bug.PENDING_VISIBLE: {Kind.G1A},
    Bug.NOT_FENCED: {Kind.UNFENCED, Kind.DUPLICATED},
}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_sound_cluster_has_a_clean_history(seed: int) -> None:
    history = World(seed).run()
    assert check(history) == []
    copied = sum(len(log.committed) for (topic, _), log in history.logs.items() if topic == "out")
    assert copied == RECORDS * len(SOURCES)


def test_sound_histories_have_everything_that_may_go_wrong() -> None:
    """Aborts, outcomes that nobody was told, fenced instances, readers: or they show little."""
    histories = [World(seed).run() for seed in SEEDS]
    outcomes = Counter(one.outcome for history in histories for one in history.transactions)
    assert min(outcomes[outcome] for outcome in Outcome) > len(SEEDS) / 4
    for history in histories:
        assert len({(one.producer, one.instance) for one in history.transactions}) > 3
        assert len(history.readings) > 4
        assert history.offset_readings


@pytest.mark.parametrize("bug", Bug)
def test_a_planted_bug_is_found_by_what_it_does(bug: Bug) -> None:
    erred = found = 0
    for seed in SEEDS:
        world = World(seed, bug)
        history = world.run()
        kinds = {anomaly.kind for anomaly in check(history)}
        erred += world.cluster.has_erred
        found += bool(kinds & SYMPTOMS[bug])
    assert erred == len(SEEDS)
    assert found > erred / 2
