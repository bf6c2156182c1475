"""A cluster at work for long loses nothing, and what grows in it is seen to grow."""

from __future__ import annotations

import pytest

from tests.chaos.endurance import ALLOWANCES, LONG_LIVED, growth, run, thirds


def tell(line: str) -> None:
    print(line)  # noqa: T201 - pytest shows it when the test fails


def test_what_keeps_growing_is_found_and_what_stays_is_not() -> None:
    flat = {what: {LONG_LIVED: [100.0, 101.0, 99.0] * 20} for what in ALLOWANCES}
    assert growth(flat) == []
    for what in ALLOWANCES:
        rising = {**flat, what: {LONG_LIVED: [100.0 * 1.1**step for step in range(60)]}}
        assert [finding.startswith(what) for finding in growth(rising)] == [True]


def test_the_thirds_of_few_values_are_these_values() -> None:
    assert thirds([5.0]) == (5.0, 5.0)
    assert thirds([1.0, 2.0, 3.0]) == (2.0, 3.0)


@pytest.mark.nightly
def test_nothing_is_lost_while_nodes_restart_and_logs_are_compacted() -> None:
    assert run(2.0, tell).findings == []
