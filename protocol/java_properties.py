"""Java's properties format: names and values, as server.properties and client.properties have them.

Source: java.util.Properties.load; docs/spec/users.md §2.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_NAME = re.compile(r"(?:[^\\=: \t\f]++|\\.?)*+", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_LINE_END = re.compile(r"\r\n|\r|\n")
"""Java knows no other, and no other spaces than these three: the rest may stand in a password."""
_SPACES = " \t\f"
_TRIMMED = " \t\f\r\n"
"""Kafka takes such off the end of a value."""
_SPECIAL = re.compile(r"\\|[^\S ]|[\x00-\x1f\x7f-\x9f]")
"""What ends a line, or a backslash that would escape something."""
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """The names and values of a Java properties file; a later line of one name wins."""
    return {name: value for name, value, _ in _properties(text)}


def line_numbers(text: str) -> dict[str, int]:
    """The line, counted from 1, where the value that holds of each name begins."""
    return {name: number for name, _, number in _properties(text)}


def _properties(text: str) -> Iterable[tuple[str, str, int]]:
    for number, line in _logical_lines(text):
        name = _NAME.match(line)
        assert name is not None, "it matches nothing, too"
        begin = _SEPARATOR.match(line, name.end())
        assert begin is not None, "so does this"
        value = _unescaped(line[begin.end() :]).rstrip(_TRIMMED)
        yield _unescaped(name[0]), value, number


def property_line(name: str, value: str) -> str:
    """The line, newline included, that is read as this name and value but for spaces around it."""
    return f"{_escaped(name)}={_escaped(value)}\n"


def _escaped(text: str) -> str:
    return _SPECIAL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _logical_lines(text: str) -> Iterable[tuple[int, str]]:
    """Lines that go on are one; each with the number of its first."""
    pending, first = "", 0
    for number, raw in enumerate(_LINE_END.split(text), start=1):
        line = raw.lstrip(_SPACES)
        if not pending:
            if not line or line[0] in "#!":
                continue
            first = number
        line = pending + line
        if _ends_open(line):
            pending = line[:-1]
            continue
        pending = ""
        yield first, line
    if pending:
        yield first, pending


def _ends_open(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescaped(text: str) -> str:
    def replace(found: re.Match[str]) -> str:
        if found[1]:
            return chr(int(found[1], 16))
        return _ESCAPES.get(found[2], found[2])

    found = re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", replace, text, flags=re.DOTALL)
    # Java's characters have sixteen bits: what is beyond is escaped as two.
    return found.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
