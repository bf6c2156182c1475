"""The language in which records are asked for: what it means, and that nothing in it can run.

Source: docs/spec/console.md §2.3 (records).
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.console.web.records.decoding import decode
from barnabas.console.web.records.filter_syntax import BadFilter, parse
from barnabas.console.web.records.matching import ShownRecord, matcher_of

ORDER = {"customer": {"id": "7", "age": 41}, "items": [{"sku": "a"}, {"sku": "b"}], "paid": True}


def record(value: Any = ORDER, **changed: Any) -> ShownRecord:
    data = (
        None if value is None else value if isinstance(value, bytes) else json.dumps(value).encode()
    )
    known: dict[str, Any] = {
        "partition": 3, "offset": 118_204, "timestamp_ms": 1_700_000_000_000,
        "key": decode(b"kim"), "value": decode(data),
        "headers": (("type", "payment"), ("trace.id", "x"), ("type", "second"), ("none", None)),
    }  # fmt: skip
    return ShownRecord(**{**known, **changed})


@pytest.mark.parametrize(
    ("where", "is_match"),
    [
        ("", True),
        ('key = "kim"', True),
        ('key != "kim"', False),
        ('value.customer.id = "7"', True),
        ("value.customer.id = 7", True),
        ("value.customer.age > 40", True),
        ("value.customer.age <= 40", False),
        ('value.customer.age > "40"', False),
        ('value.items.1.sku = "b"', True),
        ('value.items.2.sku = "b"', False),
        ("value.paid = true", True),
        ("value.paid = 1", False),
        ('value."customer"."id" = "7"', True),
        ('value contains "sku"', True),
        ('value ~ "*customer*age*"', True),
        ('value ~ "*.*"', False),
        ('header.type ~ "pay*"', True),
        ('header.type = "second"', True),
        ('header."trace.id" = "x"', True),
        ("header.none = null", True),
        ("partition = 3 and offset >= 118204", True),
        ("offset < 118204", False),
        ('time >= "2023-11-14T22:13:20" and time < "2023-11-14T22:13:21"', True),
        ("size > 10", True),
        ("value.missing != 1", False),
        ("not value.missing = 1", True),
        ("partition = 1 or partition = 2 or partition = 3", True),
        ('partition = 3 and partition = 2 or key = "kim"', True),
        ('partition = 3 and (partition = 2 or key = "tom")', False),
        ("not (partition = 2) and not not partition = 3", True),
    ],
)
def test_a_filter_means_what_it_says(where: str, is_match: bool) -> None:
    assert matcher_of(parse(where))(record()) is is_match


def test_a_value_that_is_null_is_matched_as_such() -> None:
    assert matcher_of(parse("value = null"))(record(None))
    assert not matcher_of(parse('value contains "x"'))(record(None))


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("value", "at the end: one of ="),
        ("value =", "at the end"),
        ("value = kim", "a text in quotes"),
        ('valeu = "x"', "'valeu' is no field"),
        ('header = "x"', "header wants a name"),
        ("offset.x = 1", "has no parts"),
        ("(partition = 1", "a closing parenthesis"),
        ("partition = 1)", "the end was expected"),
        ("partition = 1 partition = 2", "the end was expected"),
        ("value ~ 7", "wants a text"),
        ('value = "open', "is not understood"),
        ("value =~ /a+/", "is not understood"),
        ('time > "yesterday"', "must read YYYY"),
        ("(" * 30 + "partition = 1" + ")" * 30, "within each other"),
        ("not " * 100 + "partition = 1", "within each other"),
        (" or ".join(["partition = 1"] * 65), "at most 64"),
        ("x" * 2001, "at most 2000"),
    ],
)
def test_a_filter_that_cannot_be_read_is_told_where(where: str, words: str) -> None:
    with pytest.raises(BadFilter, match=words.replace("(", r"\(")):
        matcher_of(parse(where))


@given(st.text(max_size=200))
def test_whatever_is_typed_is_read_or_refused(text: str) -> None:
    try:
        matcher_of(parse(text))(record())
    except BadFilter:
        pass


WORDS = st.sampled_from(
    ["key", "value", ".a", "header", ".b", "=", "!=", "<", "~", "contains", "and", "or", "not",
     "(", ")", '"x*"', "7", "null", "offset", "time"]
)  # fmt: skip


@given(st.lists(WORDS, max_size=30).map(" ".join))
def test_whatever_the_words_the_answer_is_yes_or_no(text: str) -> None:
    try:
        found = matcher_of(parse(text))(record())
    except BadFilter:
        return
    assert found in (True, False)


def test_no_pattern_hangs_the_console() -> None:
    hostile = "*a" * 900 + "b"
    assert not matcher_of(parse(f'value ~ "{hostile}"'))(record(b"a" * 500_000))
