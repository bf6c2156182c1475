"""Answers to long requests, made over several turns of the loop.

A client may ask about 200,000 partitions in one request, which takes a second: others are served
in between. A short request is answered within its call and never becomes a task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterable
from itertools import islice
from typing import Any, Final, TypeVar

T = TypeVar("T")
U = TypeVar("U")

TURN_STEPS: Final = 500
"""Partitions or names looked up in one turn: 1 or 2 ms, for several may be served so at once."""

MESSAGE_MAX: Final = 8_000
"""Characters of an error message, which may quote what was sent; a string has 32,767 bytes."""


class Turn:
    """Counts the steps of an answer; each answer has its own."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = TURN_STEPS

    def is_over(self, steps: int = 1) -> bool:
        """Count; True when the answer has to let others run, the next turn being counted then."""
        self._left -= steps
        if self._left > 0:
            return False
        self._left = TURN_STEPS
        return True

    async def step(self, steps: int = 1) -> None:
        """Count, and let others run when the turn is over; for coroutines."""
        if self.is_over(steps):
            await asyncio.sleep(0)


def shortened(message: str) -> str:
    """The message as far as it is worth telling."""
    return message if len(message) <= MESSAGE_MAX else f"{message[:MESSAGE_MAX]}..."


async def map_in_turns(do: Callable[[T], U], items: Iterable[T], *, weight: int = 1) -> list[U]:
    """``do`` of each item, over as many turns as it takes; each is ``weight`` steps."""
    source, size = iter(items), max(1, TURN_STEPS // weight)
    done: list[U] = []
    while len(some := [do(item) for item in islice(source, size)]) == size:
        done += some
        await asyncio.sleep(0)
    return done + some


def in_turns(steps: Generator[None, None, T]) -> T | Coroutine[Any, Any, T]:
    """What ``steps`` returns: now when it never yields, else it goes on once in each turn.

    After each yield it has to look anew at whatever may have changed.
    """
    try:
        next(steps)
    except StopIteration as stop:
        answer: T = stop.value
        return answer
    return _go_on(steps)


async def run_to_end(steps: Generator[None, None, T]) -> T:
    """What ``steps`` returns, having gone on once in each turn."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            answer: T = stop.value
            return answer
        await asyncio.sleep(0)


async def _go_on(steps: Generator[None, None, T]) -> T:
    await asyncio.sleep(0)
    return await run_to_end(steps)
