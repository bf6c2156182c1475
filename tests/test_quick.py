"""`make quick` runs unit and model tests: its list is true, and nothing in it starts a program."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.harness.listed_tests import bare, entries

ROOT = Path(__file__).parent.parent


QUICK = entries("quick.txt")
LEFT_OUT = {ROOT / entry[1:] for entry in QUICK if entry.startswith("!")}


def files(entry: str) -> list[Path]:
    """The test files that an entry stands for."""
    path = ROOT / entry
    found = [path] if path.is_file() else sorted(path.rglob("test_*.py"))
    return [file for file in found if file not in LEFT_OUT]


@pytest.mark.parametrize("entry", QUICK)
def test_every_entry_names_tests_that_exist(entry: str) -> None:
    if entry.startswith("!"):
        assert (ROOT / entry[1:]).is_file()
    else:
        assert files(entry)


def test_no_test_of_the_list_starts_a_program() -> None:
    """tests/bare.txt has whatever could; a file of a bare folder may use none of its fixtures."""
    listed = [ROOT / entry for entry in bare()]
    for path in (file for entry in QUICK if entry[0] != "!" for file in files(entry)):
        if any(path == entry or entry in path.parents for entry in listed):
            assert not re.search(r"\bkafka_(cluster|bootstrap|topic|group)\b", path.read_text())
            assert path not in listed, f"leave out {path.relative_to(ROOT)}"
