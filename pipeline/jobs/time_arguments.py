"""Times and durations as people type them at a job: ``7d``, ``30s``, ``2026-11-21T10:00:00Z``.

Source: docs/spec/pipeline.md §4 (``--since 7d --window 30s``).
"""

from __future__ import annotations

import argparse
import re
from datetime import UTC, datetime, timedelta
from typing import Final

_UNITS_MS: Final = {
    "ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000,
}  # fmt: skip
_DURATION: Final = re.compile(r"(\d+)(ms|s|m|h|d|w)")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def duration_ms(text: str) -> int:
    """A whole number with a unit, more than nothing. A type for argparse."""
    found = _DURATION.fullmatch(text.strip())
    if found is None or int(found[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text} must read like 500ms, 30s, 15m, 1h, 7d or 2w")
    return int(found[1]) * _UNITS_MS[found[2]]


def time_ms(text: str) -> int:
    """Milliseconds since 1970, or a date and time, in UTC unless it says otherwise.

    A type for argparse.
    """
    if text.isdigit():
        return int(text)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        problem = f"{text} must read like 2026-11-21T10:00:00Z, or be milliseconds since 1970"
        raise argparse.ArgumentTypeError(problem) from None
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return (at - _EPOCH) // timedelta(milliseconds=1)


def time_text(at_ms: int) -> str:
    """A time as ISO 8601 in UTC, with milliseconds where there are any."""
    at = _EPOCH + timedelta(milliseconds=at_ms)
    fraction = f".{at_ms % 1000:03d}" if at_ms % 1000 else ""
    return f"{at:%Y-%m-%dT%H:%M:%S}{fraction}Z"
