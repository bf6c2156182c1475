"""Java's properties format, judged by what java.util.Properties reads (tried with OpenJDK 17).

Source: docs/spec/users.md §2.1.
"""

from __future__ import annotations

import pytest

from barnabas.protocol.java_properties import line_numbers, parse_properties


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=b\r\nc = d\re:f", {"a": "b", "c": "d", "e": "f"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a\\\\=b", {"a\\": "b"}),
        ("a b=c", {"a": "b=c"}),
        ("a", {"a": ""}),
        ("a=b \\\n   c\n", {"a": "b c"}),
        ("  ! no\n# no\na=#1", {"a": "#1"}),
        ("a=\\u00e4\\t\\z\\\\", {"a": "ä\tz\\"}),
    ],
)
def test_lines_are_read_as_java_reads_them(text: str, found: dict[str, str]) -> None:
    assert parse_properties(text) == found


@pytest.mark.parametrize("character", ["\x85", "\u2028", "\x0b", "\x1c", "\xa0"])
def test_what_only_python_takes_for_a_line_end_or_a_space_belongs_to_a_password(
    character: str,
) -> None:
    password = f"{character}geheim{character}x=1{character}"
    assert parse_properties(f"password={password}\nb=c") == {"password": password, "b": "c"}
    assert line_numbers(f"password={password}\nb=c") == {"password": 1, "b": 2}


def test_a_character_that_java_escapes_as_two_is_one() -> None:
    assert parse_properties("a=\\ud83d\\ude00") == {"a": "\U0001f600"}
    assert parse_properties("a=\\ud83d") == {"a": "\ud83d"}
