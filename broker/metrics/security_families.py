"""Metrics of logins. No label names a user: whoever knocks could make any number of them.

Source: docs/spec/security.md §8 (S77).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .exposition import family


def authentication_families(logins: Mapping[tuple[str, str, str], int]) -> Iterator[str]:
    """Logins by listener, mechanism (empty where none was agreed on) and result."""
    if not logins:
        return
    yield from family(
        "barnabas_authentications_total",
        "counter",
        "Logins on listeners that ask for one, those between nodes included.",
        [
            ({"listener": listener, "mechanism": mechanism, "result": result}, count)
            for (listener, mechanism, result), count in sorted(logins.items())
        ],
    )
