"""What checking and converting records may cost the loop: for one batch, and in one turn.

A batch within bounds is dealt with at once, where it came in. One that exceeds them goes to the
process of conversion_process.py; one for which this turn has nothing left waits for a later turn.
Both bounds are steps of protocol/records/work_limit.py, counted where they are taken: no header is
believed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from barnabas.protocol.records.work_limit import TooMuchWork, Work

T = TypeVar("T")

BATCH_STEPS: Final = 20_000
"""Some 20 ms at the very worst; a megabyte of most codecs takes a tenth."""
TURN_STEPS: Final = 20_000
NOTED_STEPS: Final = 2_000
"""What is below counts on with the next turn: most turns never come near and pay nothing."""


class TurnIsSpent(TooMuchWork):
    """Nothing was tried: others have to be served first."""


class InlineWork:
    """The node's allowance of steps; one for all handlers that share a loop."""

    def __init__(self) -> None:
        self._work = Work(0)
        self._spent = 0
        self._is_noted = False
        self._lane = asyncio.Lock()

    def attempt(self, do: Callable[[Work], T]) -> T:
        """Do it now; raises TurnIsSpent, or TooMuchWork when it proves to take too much."""
        if self._spent >= TURN_STEPS:
            raise TurnIsSpent
        return self._counted(do)

    async def run(self, do: Callable[[Work], T], elsewhere: Callable[[], Awaitable[T]]) -> T:
        """Do it now, or in a turn to come, or ``elsewhere`` when it proves to take too much."""
        try:
            try:
                return self.attempt(do)
            except TurnIsSpent:
                return await self._in_turn(do)
        except TooMuchWork:
            return await elsewhere()

    async def _in_turn(self, do: Callable[[Work], T]) -> T:
        """One in a turn, in the order of asking: whoever waits is served in the end."""
        async with self._lane:
            await asyncio.sleep(0)
            return self._counted(do)

    def _counted(self, do: Callable[[Work], T]) -> T:
        work = self._work
        work.left = BATCH_STEPS
        try:
            return do(work)
        finally:
            self._spent += BATCH_STEPS - max(0, work.left)
            if self._spent > NOTED_STEPS and not self._is_noted:
                self._is_noted = True
                asyncio.get_running_loop().call_soon(self._renew)

    def _renew(self) -> None:
        self._spent = 0
        self._is_noted = False
