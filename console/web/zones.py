"""The time zone of a page: UTC, or any IANA zone that the reader has chosen.

Source: docs/spec/console.md §4 (one zone a page, named in its head).
"""

from __future__ import annotations

import zoneinfo
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import cache
from typing import Final

UTC_NAME: Final = "UTC"
LAST_MS: Final = 253_370_764_799_999
"""The end of the year 9998: what lies behind is no time that anybody meant."""


@dataclass(frozen=True, slots=True)
class Zone:
    """A zone and its name."""

    name: str
    zone: tzinfo

    def text(self, at_ms: int) -> str:
        """A time of the day, with its date and milliseconds; the offset where it is not UTC."""
        if not 0 <= at_ms <= LAST_MS:
            return f"{at_ms} ms"
        at = datetime.fromtimestamp(at_ms // 1000, self.zone)
        offset = "Z" if self.name == UTC_NAME else f"{at:%z}"
        return f"{at:%Y-%m-%d %H:%M:%S}.{at_ms % 1000:03d}{offset}"


def zone_of(name: str) -> Zone:
    """The zone of this name; UTC for one that there is not."""
    if not name or name == UTC_NAME or name not in zone_names():
        return Zone(UTC_NAME, UTC)
    return Zone(name, zoneinfo.ZoneInfo(name))


@cache
def zone_names() -> frozenset[str]:
    """All that this machine knows; none where it has no data."""
    return frozenset(zoneinfo.available_timezones() | {UTC_NAME})


def iso_text(at_ms: int) -> str:
    """A time as ``<time datetime>`` wants it, in UTC."""
    if not 0 <= at_ms <= LAST_MS:
        return ""
    at = datetime.fromtimestamp(at_ms // 1000, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}Z"
