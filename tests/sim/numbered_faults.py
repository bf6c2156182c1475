"""Faults of a simulation are numbered, so that a failing history can be replayed with fewer.

A seed decides which faults come and in which order. Inside :func:`only_faults` all but the named
ones are skipped: a seed with a selection is one history, too. tests/proof/shrink.py uses it.
Source: docs/spec/reliability.md §5 (shrinking).
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterator


class FaultSelection:
    """Which faults are injected, and which ones were due so far."""

    def __init__(self, kept: Collection[int] | None) -> None:
        self._kept = kept
        """Numbers from 0; None: all."""
        self.due: list[str] = []
        """The name of every fault that was due, skipped ones too; its index is its number."""

    def takes(self, name: str) -> bool:
        """Whether the next fault, which has this name, is injected."""
        number = len(self.due)
        self.due.append(name)
        return self._kept is None or number in self._kept


_selections: list[FaultSelection] = []


@contextlib.contextmanager
def only_faults(kept: Collection[int] | None) -> Iterator[FaultSelection]:
    """Skip all faults but these in the histories that run inside; None skips none."""
    selection = FaultSelection(kept)
    _selections.append(selection)
    try:
        yield selection
    finally:
        _selections.remove(selection)


async def inject(name: str, fault: Callable[[], Awaitable[None]]) -> None:
    """Inject the fault, unless the selection skips it."""
    if not _selections or _selections[-1].takes(name):
        await fault()
