"""The model of clients is not blind: a coordinator that gives a partition to two is found out.

Source: docs/spec/consumer-groups.md §2.4; docs/spec/reliability.md §5.
"""

from __future__ import annotations

import pytest

from tests.chaos.group_plants import BY_NAME
from tests.coordinator.consumer_groups.beats import Beats
from tests.coordinator.consumer_groups.test_client_model import Model
from tests.coordinator.coordinator_harness import Make
from tests.proof.planting import planted


def walk(make_harness: Make, seed: int) -> None:
    model = Model(Beats(make_harness(consumer_assignment_interval_ms=0)), seed)
    for _ in range(150):
        model.step()
        model.check()


def test_a_partition_that_is_given_on_before_it_is_given_up_is_found(make_harness: Make) -> None:
    with planted(BY_NAME["given-on-too-early"]), pytest.raises(AssertionError, match=r"'c\d"):
        walk(make_harness, seed=1)
    walk(make_harness, seed=1)
