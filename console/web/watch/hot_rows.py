"""Rows that are on somebody's screen: asked for together, and kept fresh only while they are seen.

A page is not held up for what is known from a moment ago: what it asks for is there when it asks
again. Source: docs/spec/console.md §2.1 (hot and sweep) and §5 (budgets).
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from .reading import FAILURES, GLANCE_S, PATIENCE_S, RETRY_S, Problem, Reading, now_ms, problem_of

K = TypeVar("K")
V = TypeVar("V")

MOST: Final = 2_000
"""The most recently looked at rows that are kept."""


@dataclass(slots=True)
class _Row(Generic[V]):
    value: V | None = None
    at_ms: int | None = None
    problem: Problem | None = None
    due: float = 0.0


class HotRows(Generic[K, V]):
    """Asks for many rows with few requests, for each at most every ``fresh_s`` seconds.

    ``ask`` gets names and gives a value for each, or a failure in its stead.
    """

    def __init__(
        self, ask: Callable[[Sequence[K]], Awaitable[Mapping[K, V | Exception]]], fresh_s: float
    ) -> None:
        self._ask = ask
        self._fresh_s = fresh_s
        self._rows: OrderedDict[K, _Row[V]] = OrderedDict()
        self._under_way: dict[K, asyncio.Task[None]] = {}

    async def look(
        self, keys: Collection[K], is_known: Callable[[K], bool] = lambda key: False
    ) -> None:
        """Have rows asked for that are due.

        Waits for GLANCE_S if every one of them is known from before, here or elsewhere
        (``is_known``), and for PATIENCE_S otherwise.
        """
        now = time.monotonic()
        due = [key for key in keys if self._is_due(key, now)]
        if due:
            task = asyncio.create_task(self._renew(due), name="console rows")
            self._under_way.update(dict.fromkeys(due, task))
        waited = {self._under_way[key] for key in keys if key in self._under_way}
        if not waited:
            return
        is_told = all(self.known(key).at_ms is not None or is_known(key) for key in keys)
        done, _ = await asyncio.wait(waited, timeout=GLANCE_S if is_told else PATIENCE_S)
        for task in done:
            if not task.cancelled():
                task.result()  # what the cluster says is kept; a mistake of ours is told

    def known(self, key: K) -> Reading[V]:
        """What is known of one row, without asking anybody."""
        row = self._rows.get(key)
        return Reading(None, None, None) if row is None else Reading(
            row.value, row.at_ms, row.problem
        )  # fmt: skip

    def expire(self) -> None:
        """Something was changed: nothing that is kept counts any more."""
        self._rows.clear()

    def close(self) -> None:
        """Give up what is being asked."""
        for task in self._under_way.values():
            task.cancel()

    def _is_due(self, key: K, now: float) -> bool:
        if key in self._under_way:
            return False
        row = self._rows.get(key)
        return row is None or now >= row.due

    async def _renew(self, keys: Sequence[K]) -> None:
        found: Mapping[K, V | Exception]
        try:
            found = await self._ask(keys)
        except FAILURES as error:
            found = dict.fromkeys(keys, error)
        finally:
            for key in keys:
                self._under_way.pop(key, None)
        now = time.monotonic()
        for key in keys:
            if key in found:
                self._keep(key, found[key], now)
        while len(self._rows) > MOST:
            self._rows.popitem(last=False)

    def _keep(self, key: K, found: V | Exception, now: float) -> None:
        row = self._rows.setdefault(key, _Row())
        self._rows.move_to_end(key)
        if isinstance(found, Exception):
            row.problem = problem_of(found, row.problem.since_ms if row.problem else None)
            row.due = now + RETRY_S
        else:
            row.value, row.at_ms, row.problem = found, now_ms(), None
            row.due = now + self._fresh_s
