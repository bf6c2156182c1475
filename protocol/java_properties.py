"""Java's properties format: names and values, as server.properties and client.properties have them.

Source: java.util.Properties.load; docs/spec/users.md §2.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_SEPARATOR = re.compile(r"(?<!\\)[=:\s]")
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
        found = _SEPARATOR.search(line)
        name, rest = (line, "") if found is None else (line[: found.start()], line[found.start() :])
        value = _unescaped(re.sub(r"^\s*[=:]?\s*", "", rest, count=1)).rstrip()
        yield _unescaped(name), value, number


def property_line(name: str, value: str) -> str:
    """The line, newline included, that is read as this name and value but for spaces around it."""
    return f"{_escaped(name)}={_escaped(value)}\n"


def _escaped(text: str) -> str:
    return _SPECIAL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _logical_lines(text: str) -> Iterable[tuple[int, str]]:
    """Lines that go on are one; each with the number of its first."""
    pending, first = "", 0
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.lstrip()
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

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", replace, text)
