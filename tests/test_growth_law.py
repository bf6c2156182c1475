"""The law that a cost follows: exponents found again, noise allowed for, and what is told of it."""

from __future__ import annotations

import asyncio
import random

import pytest

from benchmarks import growth_beacons
from benchmarks.growth_law import Law, fitted, sizes, table


@pytest.mark.parametrize("exponent", [0.5, 1.0, 1.5, 2.0])
@pytest.mark.parametrize("fixed", [0.0, 3.0])
def test_an_exponent_is_found_beside_a_fixed_cost_and_noise(exponent: float, fixed: float) -> None:
    chance = random.Random(1)
    law = Law(fixed, 0.5, exponent)
    points = [(size, law.at(size) * chance.uniform(0.97, 1.03)) for size in sizes(10, 10_000)]
    found = fitted(points)
    assert found is not None
    assert found.exponent == pytest.approx(exponent, abs=0.1)
    assert found.is_worse_than_linear is (exponent > 1.15)


def test_a_cost_that_does_not_grow_has_an_exponent_of_nothing() -> None:
    found = fitted([(10, 5.0), (100, 5.1), (1000, 4.9)])
    assert found is not None
    assert found.exponent == pytest.approx(0.0, abs=0.1)


def test_too_few_points_or_zeros_have_no_law() -> None:
    assert fitted([(1, 1.0), (10, 10.0)]) is None
    assert fitted([(1, 1.0), (10, 0.0), (100, 4.0)]) is None


def test_sizes_are_powers_of_ten_and_the_last_one() -> None:
    assert list(sizes(10, 3000)) == [10, 100, 1000, 3000]
    assert list(sizes(10, 10)) == [10]


def test_the_table_says_what_is_worse_than_linear() -> None:
    told = table("n", ("a", "b"), [(size, (size**2.0, float(size))) for size in (10, 100, 1000)])
    assert told.splitlines()[-1] == "| exponent | 2.00 (worse than linear) | 1.00 |"


async def test_beacons_of_the_controller_grow_as_the_cluster_and_those_of_others_slower() -> None:
    """docs/benchmarks.md, "Growth"."""
    few, many = growth_beacons.costs(5), growth_beacons.costs(20)
    await asyncio.sleep(0)
    assert few[0] == 20 * 3 * 4, "to each other node a beacon and an echo, and one from it"
    assert many[0] == 20 * 3 * 19
    assert few[2] == pytest.approx(20 * 3 + 2 * 3 * 20 / 3, rel=0.2)
    assert many[2] < few[2] * 19 / 4
