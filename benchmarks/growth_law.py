"""The law that a cost follows as something grows: cost = fixed + c * n ** exponent.

Fitted to what was measured at sizes that are ten times apart or so. An exponent of 1 is linear, 0
means that size does not matter; the fixed part is what the smallest sizes cost.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

FIXED_SHARES = tuple(share / 20 for share in range(20))
"""Of the smallest cost, how much may be fixed: the best fit of these is taken."""
POINTS_MIN = 3
WORSE_THAN_LINEAR = 1.15
"""An exponent above this is called worse than linear: noise bends a line by less."""


@dataclass(frozen=True, slots=True)
class Law:
    """What fits best."""

    fixed: float
    factor: float
    exponent: float

    def at(self, size: float) -> float:
        """The cost that it foretells."""
        return float(self.fixed + self.factor * size**self.exponent)

    @property
    def is_worse_than_linear(self) -> bool:
        """Whether ten times as much costs clearly more than ten times as much."""
        return self.exponent > WORSE_THAN_LINEAR


def fitted(points: Sequence[tuple[float, float]]) -> Law | None:
    """The law of (size, cost), least squares of logarithms; None for too few points, or zeros."""
    if len(points) < POINTS_MIN or any(size <= 0 or cost <= 0 for size, cost in points):
        return None
    least = min(cost for _, cost in points)
    return min(
        (_line(points, least * share) for share in FIXED_SHARES),
        key=lambda law: sum(
            (math.log(law.at(size)) - math.log(cost)) ** 2 for size, cost in points
        ),
    )


def _line(points: Sequence[tuple[float, float]], fixed: float) -> Law:
    logs = [(math.log(size), math.log(cost - fixed)) for size, cost in points]
    mean_x = sum(x for x, _ in logs) / len(logs)
    mean_y = sum(y for _, y in logs) / len(logs)
    spread = sum((x - mean_x) ** 2 for x, _ in logs)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in logs) / spread if spread else 0.0
    return Law(fixed, math.exp(mean_y - slope * mean_x), slope)


def sizes(least: int, most: int) -> Iterator[int]:
    """Powers of ten from one to the other, and the last one whatever it is."""
    size = least
    while size < most:
        yield size
        size *= 10
    yield most


def table(title: str, columns: Sequence[str], rows: Sequence[tuple[int, Sequence[float]]]) -> str:
    """Markdown: a row a size, and the exponents of all columns below."""
    lines = [[title, *columns], ["---"] * (len(columns) + 1)]
    lines += [[f"{size:,}", *(f"{cost:.3g}" for cost in costs)] for size, costs in rows]
    exponents = ["exponent"]
    for index in range(len(columns)):
        law = fitted([(size, costs[index]) for size, costs in rows])
        mark = " (worse than linear)" if law is not None and law.is_worse_than_linear else ""
        exponents.append("-" if law is None else f"{law.exponent:.2f}{mark}")
    return "\n".join("| " + " | ".join(line) + " |" for line in [*lines, exponents])
