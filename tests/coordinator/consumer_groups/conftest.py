"""A coordinator in memory whose groups are assigned at once, and one with Kafka's interval."""

from __future__ import annotations

import pytest

from tests.coordinator.consumer_groups.beats import Beats
from tests.coordinator.coordinator_harness import Make


@pytest.fixture
def beats(make_harness: Make) -> Beats:
    """The assignment interval is 0: a target is computed with each change."""
    return Beats(make_harness(consumer_assignment_interval_ms=0))


@pytest.fixture
def slow_beats(make_harness: Make) -> Beats:
    """The assignment interval is a second, as it is where nobody changes it."""
    return Beats(make_harness())
