"""What the coordinator's tests begin with: a node that leads every offsets partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.coordinator.rig import Rig


@pytest.fixture
def make_rig() -> Iterator[Callable[..., Rig]]:
    """Make rigs with other settings; all are closed at the end."""
    made: list[Rig] = []

    def make(**settings: Any) -> Rig:
        made.append(Rig(**settings))
        return made[-1]

    yield make
    for rig in made:
        rig.close()


@pytest.fixture
def rig(make_rig: Callable[..., Rig]) -> Rig:
    return make_rig()
