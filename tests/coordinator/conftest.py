"""What the coordinator's tests begin with: a node that leads every offsets partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.coordinator.coordinator_harness import CoordinatorHarness


@pytest.fixture
def make_harness() -> Iterator[Callable[..., CoordinatorHarness]]:
    """Make harnesses with other settings; all are closed at the end."""
    made: list[CoordinatorHarness] = []

    def make(**settings: Any) -> CoordinatorHarness:
        made.append(CoordinatorHarness(**settings))
        return made[-1]

    yield make
    for harness in made:
        harness.close()


@pytest.fixture
def harness(make_harness: Callable[..., CoordinatorHarness]) -> CoordinatorHarness:
    return make_harness()
