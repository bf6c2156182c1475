"""Lines over time as the parts of an SVG, which a template draws: no script and no style is needed.

Source: docs/spec/console.md §3 (every plot is a server's SVG) and §4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

WIDTH: Final = 900
HEIGHT: Final = 200
LEFT: Final = 84
RIGHT: Final = 14
TOP: Final = 12
BOTTOM: Final = 26
TICKS: Final = 4


def plot(
    times: Sequence[int], lines: Sequence[tuple[str, Sequence[int]]], *, from_zero: bool
) -> dict[str, Any]:
    """Each line by its name, with what stands at the axes; ``times`` ascend, all equally long."""
    values = [value for _, line in lines for value in line]
    low, high = (0 if from_zero else min(values)), max(values)
    high = max(high, low + 1)
    first, last = times[0], max(times[-1], times[0] + 1)

    def x(at: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * (at - first) / (last - first), 1)

    def y(value: float) -> float:
        return round(TOP + (HEIGHT - TOP - BOTTOM) * (1 - (value - low) / (high - low)), 1)

    return {
        "width": WIDTH,
        "height": HEIGHT,
        "left": LEFT,
        "right": WIDTH - RIGHT,
        "top": TOP,
        "base": HEIGHT - BOTTOM,
        "lines": [
            {"name": name, "points": " ".join(
                f"{x(at)},{y(value)}" for at, value in zip(times, line, strict=True))}
            for name, line in lines
        ],
        "rows": [
            {"y": y(value), "value": round(value)}
            for value in (low, (low + high) / 2, high)
        ],
        "columns": [
            {"x": x(at), "at_ms": round(at)}
            for at in (first + (last - first) * number / TICKS for number in range(TICKS + 1))
        ],
    }  # fmt: skip


def place_of(plotted: dict[str, Any], times: Sequence[int], at: int) -> float | None:
    """Where a time lies in a plot; None for one outside of it."""
    first, last = times[0], max(times[-1], times[0] + 1)
    if not first <= at <= last:
        return None
    left, right = float(plotted["left"]), float(plotted["right"])
    return round(left + (right - left) * (at - first) / (last - first), 1)
