"""Orderings that are kept for a minute, so that a reader's next page follows the one before.

Source: docs/spec/console.md §2.1 (keyset pages by a value that changes).
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Final

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
