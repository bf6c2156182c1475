"""Orderings of long lists: kept for a reader's next page, and made once for all readers.

Source: docs/spec/console.md §2.1 (keyset pages by a value that changes) and §5 (budgets).
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from operator import itemgetter
from typing import Any, Final

KEPT_S: Final = 60.0
MOST: Final = 64


class Orderings:
    """Names in the order in which somebody saw them first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, tuple[float, Sequence[str]]] = OrderedDict()

    def keep(self, key: Hashable, names: Sequence[str]) -> None:
        """A first page was shown."""
        self._kept[key] = time.monotonic(), names
        self._kept.move_to_end(key)
        while len(self._kept) > MOST:
            self._kept.popitem(last=False)

    def kept(self, key: Hashable) -> Sequence[str] | None:
        """The ordering of less than a minute ago; None when there is none."""
        at, names = self._kept.get(key, (-KEPT_S, ()))
        return names if time.monotonic() - at < KEPT_S else None


class PreparedOrders:
    """The names of a list by each column, sorted anew only when there is something new to sort."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, bool], tuple[Hashable, Sequence[str]]] = {}

    def order(
        self,
        column: str,
        is_downward: bool,
        names: Sequence[str],
        value_of: Callable[[str], Any],
        state: Hashable,
    ) -> Sequence[str]:
        """``names`` by ``value_of``; ``state`` is another one when either has changed."""
        key = column, is_downward
        kept = self._kept.get(key)
        if kept is None or kept[0] != state:
            kept = self._kept[key] = state, sorted_by(names, value_of, is_downward)
        return kept[1]


def sorted_by(
    names: Sequence[str], value_of: Callable[[str], Any], is_downward: bool
) -> Sequence[str]:
    """Names by their values, equal ones by name; those without a value last, either way."""
    pairs = [(name, value_of(name)) for name in sorted(names)]
    known = [pair for pair in pairs if pair[1] is not None]
    known.sort(key=itemgetter(1), reverse=is_downward)
    return [name for name, _ in known] + [name for name, value in pairs if value is None]
