"""What JSON can say of a decoded value: dates as text, bytes as hex, keys of maps as text."""

from __future__ import annotations

import datetime
import decimal
import math
import uuid
from typing import Any

DEPTH_MOST = 200


def plain(value: Any, depth: int = 0) -> Any:
    """The same in what JSON has; raises ValueError for what is nested too deeply."""
    if depth > DEPTH_MOST:
        raise ValueError("it is nested too deeply")
    if isinstance(value, dict):
        return {str(name): plain(part, depth + 1) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part, depth + 1) for part in value]
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex(" ")
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, decimal.Decimal | uuid.UUID):
        return str(value)
    return value if isinstance(value, str | int | float | bool | None) else str(value)
