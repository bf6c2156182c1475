"""The list of all groups as pages show it: ordered and counted once for whatever the sweep brings.

Source: docs/spec/console.md §2.3 (groups) and §5 (budgets).
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from barnabas.coordinator.group_health import Verdict

from .known_groups import KnownGroups
from .orderings import PreparedOrders
from .standings import GroupRow
from .survey import Survey

WORST: Final = 8
SORTED_BY: Final = ("lag", "seconds", "members", "last_commit_ms")
"""What only the sweep knows; groups that it has not seen yet come last."""


@dataclass(slots=True)
class _Counts:
    surveyed: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    worst: Sequence[GroupRow] = ()


class GroupTable:
    """Reads the survey when it has something new, however many pages ask."""

    def __init__(self, survey: Survey) -> None:
        self._survey = survey
        self._orders = PreparedOrders()
        self._counts = _Counts()
        self._counted: tuple[int, int] | None = None

    def order(self, groups: KnownGroups, column: str, is_downward: bool) -> Sequence[str]:
        """The names of all groups by a column of the list."""
        state = self._state(groups)
        value_of = self.values(groups)[column]
        return self._orders.order(column, is_downward, groups.names, value_of, state)

    def values(self, groups: KnownGroups) -> Mapping[str, Any]:
        """By column how to get a name's value; None where it is not known."""
        rows = self._survey.rows

        def of(column: str) -> Any:
            return lambda name: rows[name].summary[column] if name in rows else None

        return {
            "name": lambda name: name,
            "state": lambda name: groups[name].state if name in groups else None,
            "verdict": lambda name: int(rows[name].verdict or 0) if name in rows else None,
            **{column: of(column) for column in SORTED_BY},
        }

    def surveyed(self, groups: KnownGroups) -> int:
        """How many of them the sweep has seen."""
        return self._counted_of(groups).surveyed

    def verdicts(self, groups: KnownGroups) -> Counter[str]:
        """How many have which verdict."""
        return self._counted_of(groups).verdicts

    def worst(self, groups: KnownGroups) -> Sequence[GroupRow]:
        """The few that are not well and furthest behind, by verdict and seconds."""
        return self._counted_of(groups).worst

    def _state(self, groups: KnownGroups) -> tuple[int, int]:
        return groups.serial, self._survey.version

    def _counted_of(self, groups: KnownGroups) -> _Counts:
        state = self._state(groups)
        if self._counted != state:
            rows = self._survey.rows
            known = [rows[name] for name in groups if name in rows]
            ill = [row for row in known if row.verdict is not None and row.verdict > Verdict.OK]
            self._counts = _Counts(
                surveyed=len(known),
                verdicts=Counter(row.verdict.name for row in known if row.verdict is not None),
                worst=heapq.nlargest(WORST, ill, key=_badness),
            )
            self._counted = state
        return self._counts


def _badness(row: GroupRow) -> tuple[int, float, int]:
    return row.verdict or 0, row.summary["seconds"] or 0.0, row.summary["lag"]
