"""Globs with stars, matched in linear time: no pattern that somebody types can hang the console.

Source: docs/spec/console.md §2.1 and §2.3.
"""

from __future__ import annotations

from collections.abc import Callable


def glob_matcher(pattern: str) -> Callable[[str], bool]:
    """What a pattern matches as a whole; ``*`` stands for any text, nothing else is special."""
    first, *rest = pattern.split("*")
    if not rest:
        return lambda text: text == pattern
    *middle, last = rest

    def matches(text: str) -> bool:
        if len(text) < len(first) + len(last):
            return False
        if not (text.startswith(first) and text.endswith(last)):
            return False
        at, end = len(first), len(text) - len(last)
        for part in middle:
            found = text.find(part, at, end)
            if found < 0:
                return False
            at = found + len(part)
        return True

    return matches


def search_matcher(pattern: str) -> Callable[[str], bool]:
    """What ``q`` lets pass: names that contain it, or that it matches where it has a star."""
    if "*" in pattern:
        return glob_matcher(pattern)
    return lambda name: pattern in name
