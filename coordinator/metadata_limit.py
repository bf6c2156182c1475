"""How long the metadata of a commit may be.

Source: docs/spec/coordinator.md §1.6, point 6: ``offset.metadata.max.bytes`` counts UTF-16 units.
"""

from __future__ import annotations

from typing import Final

STRING_BYTES_MAX: Final = 32_767
"""What a string of the offsets topic can hold, whatever the setting allows."""


def is_too_long(metadata: str, units_max: int) -> bool:
    """Whether a commit with this metadata is refused."""
    if metadata.isascii():
        return len(metadata) > min(units_max, STRING_BYTES_MAX)
    units = len(metadata.encode("utf-16-le")) // 2
    return units > units_max or len(metadata.encode()) > STRING_BYTES_MAX
