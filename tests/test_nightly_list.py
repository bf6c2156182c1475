"""`make test` leaves to the night what tests/nightly.txt names, and every line names something."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.harness.listed_tests import entries
from tests.harness.nightly_list import LIST, NightlyList

ROOT = Path(__file__).parents[1]
LINES = entries(LIST)


@pytest.mark.parametrize("line", LINES)
def test_every_line_names_a_file_and_a_function_that_exist(line: str) -> None:
    file, name = line.split("::", 1)
    functions = re.findall(r"^(?:async )?def (test_\w+)", (ROOT / file).read_text(), re.MULTILINE)
    assert functions
    wanted = name.split("[", 1)[0]
    assert wanted == "*" or wanted in functions


def test_a_line_means_all_parameters_or_those_it_names() -> None:
    listed = NightlyList(["a.py::test_a", "a.py::test_b[x-*", "a.py::test_c[y]", "b.py::*[kafka]"])
    assert listed.has("a.py::test_a")
    assert listed.has("a.py::test_a[1]")
    assert not listed.has("a.py::test_ab")
    assert listed.has("a.py::test_b[x-1]")
    assert not listed.has("a.py::test_b[z-1]")
    assert not listed.has("a.py::test_c[y2]")
    assert listed.has("b.py::test_d[kafka]")
    assert not listed.has("b.py::test_d[ours]")
