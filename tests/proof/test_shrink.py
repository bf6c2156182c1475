"""A failing seed shrinks to the fewest faults that still make it fail."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from functools import partial

import pytest

from tests.proof.planted_bugs import planted_bug_named
from tests.sim.numbered_faults import inject

from .finders import FINDERS, found_by
from .planting import planted
from .shrink import least, main, shortest_beginning, shrunk

UNCLEAN = "unclean-election"
SEEDS = range(1, 51)


def failing_seed() -> int:
    """One that finds the planted bug."""
    for seed in SEEDS:
        if found_by(FINDERS["controllers"], seed) is not None:
            return seed
    pytest.fail("no seed finds the planted bug")


@pytest.mark.nightly
def test_a_failing_history_shrinks_to_a_part_that_fails_without_any_of_it_to_spare(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with planted(planted_bug_named(UNCLEAN)):
        seed = failing_seed()
        found = shrunk("controllers", seed)
    assert found is not None
    assert len(found.kept) < found.count
    assert len(found.names) == len(found.kept)
    keep = f"--keep={','.join(map(str, found.kept))}"
    again = ["controllers", str(seed), keep]
    assert main([*again, "--plant", UNCLEAN]) == 1, "the part fails by itself"
    assert main(again) == 0, "and only because of the bug"
    assert "does not fail" in capsys.readouterr().out


def small_history(seed: int) -> None:
    """Ten faults; it fails when those two were injected that the seed names."""
    injected: set[int] = set()

    async def fault(number: int) -> None:
        injected.add(number)

    async def scenario() -> None:
        for number in range(10):
            await inject(f"number {number}", partial(fault, number))

    asyncio.run(scenario())
    assert not {seed, seed + 3} <= injected, "both were injected"


def test_a_small_history_shrinks_and_the_command_replays_what_is_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FINDERS, "commits", small_history)
    found = shrunk("commits", 4)
    assert found is not None
    assert (found.kept, found.count) == ((4, 7), 10)
    assert found.names == ("number 4", "number 7")
    assert main(["commits", "4"]) == 1
    assert "commits 4 --keep=4,7" in capsys.readouterr().out
    assert main(["commits", "4", "--keep=4,7"]) == 1
    assert main(["commits", "4", "--keep=4"]) == 0


def test_a_seed_that_does_not_fail_is_not_shrunk() -> None:
    assert shrunk("controllers", 1) is None


@pytest.mark.parametrize("needed", [set(), {0}, {7}, {2, 5}, {0, 3, 9}, set(range(10))])
def test_what_is_needed_is_kept_and_nothing_else(needed: set[int]) -> None:
    def fails(kept: Collection[int]) -> bool:
        return needed <= set(kept)

    beginning = shortest_beginning(10, fails)
    assert len(beginning) == max(needed, default=-1) + 1
    assert set(least(beginning, fails)) == needed


def test_a_part_that_fails_only_together_with_others_is_kept_whole() -> None:
    def fails(kept: Collection[int]) -> bool:
        return len(set(kept)) >= 4

    assert len(least(range(10), fails)) == 4
