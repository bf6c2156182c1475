"""Lists: filters, orders, and pages that follow each other by key while names come and go."""

from __future__ import annotations

import fnmatch
import re
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.console.web.glob_pattern import glob_matcher, search_matcher
from barnabas.console.web.page import Page, as_csv
from barnabas.console.web.query import BadQuery, Query
from barnabas.console.web.rows import Slice, cut
from barnabas.console.web.watch.orderings import Orderings

NAMES = [f"topic-{number:03}" for number in range(120)]
WORDS = st.text(alphabet="ab*", max_size=12)


@given(WORDS, st.text(alphabet="ab", max_size=12))
def test_a_glob_matches_what_the_shell_would(pattern: str, text: str) -> None:
    assert glob_matcher(pattern)(text) == fnmatch.fnmatchcase(text, pattern)


def test_a_glob_of_many_stars_ends() -> None:
    assert not glob_matcher("*a" * 5_000 + "b")("a" * 30_000)


def test_without_a_star_a_part_of_the_name_is_enough() -> None:
    assert search_matcher("rd")("orders")
    assert not search_matcher("rd*")("orders")


def by_size(name: str) -> int | None:
    number = int(name[-3:])
    return None if number % 40 == 0 else number % 7


def page(query: Query, orderings: Orderings, names: list[str]) -> Slice:
    return cut(query, orderings, names, {"name": lambda name: name, "size": by_size})


@pytest.mark.parametrize("sort", ["name", "-name", "size", "-size"])
@pytest.mark.parametrize("forget", [True, False])
def test_pages_hold_every_name_once_whether_the_ordering_is_kept_or_not(
    sort: str, forget: bool
) -> None:
    orderings = Orderings()
    query = Query("/t", {"sort": sort, "n": "17"})
    seen: list[str] = []
    while True:
        part = page(query, orderings, NAMES)
        seen += part.names
        assert part.total == len(NAMES)
        if part.next_url is None:
            break
        query = Query("/t", dict(parse_qsl(urlsplit(part.next_url).query)))
        orderings = Orderings() if forget else orderings
    assert sorted(seen) == NAMES
    values = [by_size(name) for name in seen]
    if "size" in sort:
        known = [value for value in values if value is not None]
        assert known == sorted(known, reverse=sort[0] == "-")
        assert values[len(known) :] == [None] * (len(NAMES) - len(known)), "unknown ones last"


def test_a_name_that_goes_between_two_pages_hides_no_other() -> None:
    first = page(Query("/t", {"n": "10"}), Orderings(), NAMES)
    after = dict(parse_qsl(urlsplit(first.next_url or "").query))
    left = [name for name in NAMES if name != first.names[-1]]
    second = page(Query("/t", after), Orderings(), left)
    assert second.names[0] == "topic-010"


@pytest.mark.parametrize(
    "given_query",
    [
        {"sort": "weight"},
        {"n": "0"},
        {"n": "501"},
        {"n": "1e3"},
        {"n": "9" * 400},
        {"after": "x"},
        {"after": "[1]"},
        {"after": "[[],[]]"},
        {"after": "[" * 100_000},
        {"after": '["text","b"]', "sort": "size"},
    ],
)
def test_a_query_that_makes_no_sense_is_told(given_query: dict[str, str]) -> None:
    with pytest.raises(BadQuery):
        page(Query("/t", given_query), Orderings(), NAMES)


@pytest.mark.parametrize("text", ["=1+1", "+cmd", "-2+3", "@SUM(A1)", "\tx"])
def test_no_text_becomes_a_formula_of_a_spreadsheet(text: str) -> None:
    rows: list[dict[str, Any]] = [{"a": text, "b": -5}]
    csv = as_csv(Page(title="", template="", columns=("a", "b"), rows=rows))
    assert re.search(r"'" + re.escape(text), csv)
    assert csv.endswith(",-5\r\n")
