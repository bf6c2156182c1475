"""A loop whose timers end when the test says so, however slow the machine is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

HELD_S: Final = 3600.0


class HeldTimers:
    """Stands before a listener's loop: a timer of less than an hour takes an hour."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.delays: list[float] = []
        """What was asked for, in order."""
        self._loop = loop
        self._timers: list[tuple[asyncio.TimerHandle, Callable[[], object]]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any
    ) -> asyncio.TimerHandle:
        self.delays.append(delay)
        timer = self._loop.call_later(max(delay, HELD_S), callback, *args)
        self._timers.append((timer, partial(callback, *args)))
        return timer

    def end(self) -> None:
        """All that were begun and not cancelled are over."""
        timers, self._timers = self._timers, []
        for timer, callback in timers:
            if not timer.cancelled():
                timer.cancel()
                callback()
