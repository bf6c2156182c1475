"""Points in time and durations as kafka-consumer-groups reads them.

Source: docs/spec/users.md §2.1; Kafka 3.9 Utils.getDateTime and java.time.Duration.parse.
"""

from __future__ import annotations

import argparse
import re
from datetime import UTC, datetime
from typing import Final

_DATE_TIME: Final = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{3})?(?:Z|[+-]\d\d(?::?\d\d)?)?"
)
_NUMBER: Final = r"([-+]?\d+)"
_DURATION: Final = re.compile(
    rf"([-+]?)P(?:{_NUMBER}D)?(T(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}(?:[.,](\d{{0,9}}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)
_DAY_MS, _HOUR_MS, _MINUTE_MS, _SECOND_MS = 86_400_000, 3_600_000, 60_000, 1_000


def datetime_ms(text: str) -> int:
    """``YYYY-MM-DDTHH:mm:SS.sss`` in ms since 1970; UTC unless an offset follows.

    A type for argparse.
    """
    problem = argparse.ArgumentTypeError(
        f"{text} must read YYYY-MM-DDTHH:mm:SS.sss, perhaps with Z or an offset from UTC"
    )
    if _DATE_TIME.fullmatch(text) is None:
        raise problem
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise problem from None
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    since = at - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


def duration_ms(text: str) -> int:
    """``PnDTnHnMnS`` in ms, rounded down; negative ones lead into the future.

    A type for argparse.
    """
    found = _DURATION.fullmatch(text)
    if found is None or found[3] in ("T", "t") or (found[2] is None and found[3] is None):
        raise argparse.ArgumentTypeError(f"{text} must read PnDTnHnMnS, as PT1H30M or P1D")
    sign, days, _, hours, minutes, seconds, fraction = found.groups()
    total = (
        int(days or 0) * _DAY_MS
        + int(hours or 0) * _HOUR_MS
        + int(minutes or 0) * _MINUTE_MS
        + int(seconds or 0) * _SECOND_MS
    )
    part = int((fraction or "").ljust(3, "0")[:3])
    total += -part if (seconds or "").startswith("-") else part
    return -total if sign == "-" else total


def time_text(at_ms: int) -> str:
    """A time in ms since 1970 as ISO 8601 in UTC, with milliseconds."""
    at = datetime.fromtimestamp(at_ms // 1000, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}Z"
