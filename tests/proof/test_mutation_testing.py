"""The simulations are not blind: each planted bug is found (docs/spec/reliability.md §5)."""

from __future__ import annotations

from typing import Final

import pytest

from tests.proof.finders import FINDERS, found_by
from tests.proof.mutation_testing import main
from tests.proof.planted_bugs import PLANTED_BUGS
from tests.proof.planting import Change, Moved, PlantedBug, planted

SEEDS: Final = range(1, 51)
KNOWN: Final = {
    "ack-before-isr": 9,
    "no-epoch-check-on-fetch": 6,
    "truncate-to-high-watermark": 3,
    "no-generation-check": 9,
    "expiry-on-wall-jump": 5,
    "cache-before-high-watermark": 3,
}
"""Seeds tried first; they found the bug once, and where code changes others may have to."""

FIRST: Final = {"copies": range(1, 4)}
"""Simulations that must find their bugs in so few seeds: these have every blow at every moment."""


@pytest.mark.parametrize("plant", PLANTED_BUGS, ids=lambda plant: plant.name)
def test_each_planted_bug_is_found(plant: PlantedBug) -> None:
    finder = FINDERS[plant.finder]
    for seed in FIRST.get(plant.finder, (KNOWN.get(plant.name, 1), *SEEDS)):
        with planted(plant):
            if found_by(finder, seed) is not None:
                return
    pytest.fail(f"{plant.finder} is blind: {plant.breaks}")


@pytest.mark.nightly
def test_nothing_but_the_planted_bug_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", str(len(SEEDS))]) == 0, capsys.readouterr().out


def test_twenty_four_bugs_are_planted_each_once() -> None:
    assert len({plant.name for plant in PLANTED_BUGS}) == len(PLANTED_BUGS) == 24


@pytest.mark.parametrize(
    "place",
    ["broker.nothing:Log.append", "broker.storage.log.log:Log.no", "broker.storage.log.log:no"],
)
def test_a_plant_whose_place_has_moved_is_an_error(place: str) -> None:
    plant = PlantedBug("x", "Nothing.", "log", (Change(place, lambda original: original),))
    with pytest.raises(Moved, match=place), planted(plant):
        pass


def test_what_was_planted_is_gone_afterwards() -> None:
    places = [change for plant in PLANTED_BUGS for change in plant.changes]
    before = [_standing(change.place) for change in places]
    for plant in PLANTED_BUGS:
        with planted(plant):
            pass
    assert [_standing(change.place) for change in places] == before


def _standing(place: str) -> object:
    standing: list[object] = []

    def look(original: object) -> object:
        standing.append(original)
        return original

    with planted(PlantedBug("look", "Nothing.", "log", (Change(place, look),))):
        return standing[0]
