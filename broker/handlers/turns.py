"""Answers to long requests, made over several turns of the loop.

A client may ask about 200,000 partitions in one request, which takes a second: others are served
in between. A short request is answered within its call and never becomes a task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, Final, TypeVar

T = TypeVar("T")

TURN_STEPS: Final = 2_000
"""Partitions or names looked up in one turn: 5 ms or so."""


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


async def to_the_end(steps: Generator[None, None, T]) -> T:
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
    return await to_the_end(steps)
