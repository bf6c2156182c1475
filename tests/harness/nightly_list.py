"""Which tests `make test` leaves to the night without their files saying so: tests/nightly.txt."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import pytest

from .listed_tests import entries

LIST: Final = "nightly.txt"


class NightlyList:
    """Entries, by the file that they are about."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._patterns: dict[str, list[re.Pattern[str]]] = {}
        for line in lines:
            file = line.split("::", 1)[0]
            self._patterns.setdefault(file, []).append(_pattern(line))

    def has(self, nodeid: str) -> bool:
        """Whether a line means this test."""
        patterns = self._patterns.get(nodeid.split("::", 1)[0], ())
        return any(pattern.fullmatch(nodeid) for pattern in patterns)


def mark(items: list[pytest.Item]) -> None:
    """Give the marker ``nightly`` to what the list names."""
    nightly = NightlyList(entries(LIST))
    for item in items:
        if nightly.has(item.nodeid):
            item.add_marker(pytest.mark.nightly)


def _pattern(line: str) -> re.Pattern[str]:
    text = re.escape(line).replace(r"\*", ".*")
    return re.compile(text if "[" in line else rf"{text}(\[.*)?")
