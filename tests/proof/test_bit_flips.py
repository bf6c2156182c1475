"""A flipped bit anywhere in a data directory is found or harmless; a small part of the proof."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import pytest

from barnabas.coordinator.ports import INCREMENT, SNAPSHOT
from tests.proof.bit_flips import directory, flips, kind_of, lived, main, tried, whole
from tests.proof.client_view import COMMITTED, EVERYTHING, Reading, differences
from tests.proof.data_directory import CLEAN, GROUPS, KINDS, PLAIN, TRANSACTIONS

DELETED = "deleted a snapshot of offsets"


def test_a_directory_that_is_whole_is_told_whole_and_holds_every_kind_of_file() -> None:
    told, _ = whole()
    assert {kind_of(path) for path in directory().files} >= KINDS
    every, committed = (told.parts[TRANSACTIONS, level] for level in (EVERYTHING, COMMITTED))
    assert committed.rows.items() < every.rows.items(), "some were aborted"
    assert len(every.rows) - len(committed.rows) == 12
    assert not differences(told, told, "")


def test_the_snapshot_and_the_increment_of_the_whole_directory_are_believed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outcome, told = lived(directory(), CLEAN, ())
    assert told is not None
    assert not outcome.wrong
    assert DELETED not in caplog.text
    for name in (SNAPSHOT, INCREMENT):
        caplog.clear()
        flip = next(flip for flip in flips() if flip.path.name == name)
        assert not tried(flip).wrong
        assert f"{DELETED} file={name}" in caplog.text


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_one_flipped_bit_of_each_kind_of_file_serves_nothing_wrong(kind: str) -> None:
    for flip in islice((flip for flip in flips() if kind_of(flip.path) == kind), 2):
        assert not tried(flip).wrong, flip


def test_the_first_bits_to_be_flipped_are_of_all_kinds_and_none_comes_twice() -> None:
    first = list(islice(flips(), 2_000))
    assert {kind_of(flip.path) for flip in first[: len(KINDS)]} == KINDS
    assert len(set(first)) == len(first)
    assert first == list(islice(flips(), 2_000))


def test_what_is_told_wrongly_is_seen() -> None:
    wanted, _ = whole()
    part = wanted.parts[PLAIN, EVERYTHING]
    offset = max(part.rows)
    without = {row_offset: row for row_offset, row in part.rows.items() if row_offset != offset}
    for rows, refused, seen in (
        ({**part.rows, offset: (b"k", b"another")}, set(), True),
        ({**part.rows, offset + 9: (b"k", b"more")}, set(), True),
        (without, set(), True),
        (without, {offset}, False),
    ):
        parts = {**wanted.parts, (PLAIN, EVERYTHING): replace(part, rows=rows, refused=refused)}
        told = Reading(parts, wanted.offsets, wanted.times, wanted.epochs)
        assert bool(differences(told, wanted, "0.log")) is seen
    for lie, seen in ((-1, True), (1, True), (None, False)):
        told = Reading(
            wanted.parts, {**wanted.offsets, GROUPS[0]: lie}, wanted.times, wanted.epochs
        )
        assert bool(differences(told, wanted, "0.log")) is seen
        assert differences(told, wanted, "offsets-cache"), "no index costs an offset"


def test_the_command_counts_what_it_tried(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--cases", "2", "--first", "3"]) == 0
    assert '"cases": 2' in capsys.readouterr().out
