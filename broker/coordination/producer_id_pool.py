"""Producer ids at hand: each is given out once, from blocks that this node owns.

    block in use   1000 ... 1899 | 1900 ... 1999      from here on the next block is fetched
    next block     4000 ... 4999                      others took blocks in between

The first block is taken at the start, the next while a tenth of the last is left. So nobody waits
for ZooKeeper, but where it is away; Kafka answers 14 to the first producer of a fresh node always
(KAFKA-14694). Source: docs/spec/transactions.md §3.8; docs/spec/cluster.md §1.4.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from barnabas.protocol.errors import ErrorCode, Refused

log = logging.getLogger(__name__)

OnId = Callable[[int, ErrorCode], None]
"""A producer id and NONE, or -1 and why there is none."""

LEFT_MIN: Final = 100
"""With no more ids left the next block is fetched: a tenth of one."""
WAIT_S: Final = 1.0
FIRST_RETRY_S: Final = 0.05
RETRY_MAX_S: Final = 1.0


class ProducerIdPool:
    """Implements coordinator.transactions.ports.ProducerIds; :meth:`run` fetches blocks."""

    def __init__(
        self, take_block: Callable[[], Awaitable[range]], loop: asyncio.AbstractEventLoop
    ) -> None:
        """``take_block`` takes the next block of the cluster; raises Refused while it cannot."""
        self._take_block = take_block
        self._loop = loop
        self._block = range(0)
        self._next_block: range | None = None
        self._waiting: deque[_Waiting] = deque()
        self._is_wanted = asyncio.Event()
        self._is_wanted.set()

    def next_id(self, on_id: OnId) -> None:
        """Call ``on_id`` once, perhaps before this returns; after a second with 14.

        COORDINATOR_LOAD_IN_PROGRESS: producers ask the same node again.
        """
        if self._block or self._next_block:
            self._give(on_id)
            return
        waiting = _Waiting(on_id)
        waiting.timer = self._loop.call_later(WAIT_S, self._give_up, waiting)
        self._waiting.append(waiting)
        self._is_wanted.set()

    async def run(self) -> None:
        """Fetch blocks until cancelled."""
        retry_s = FIRST_RETRY_S
        while True:
            await self._is_wanted.wait()
            try:
                block = await self._take_block()
            except Refused as refusal:
                if retry_s == FIRST_RETRY_S:
                    log.warning("could not take a block of producer ids: %s", refusal)
                await asyncio.sleep(retry_s)
                retry_s = min(2 * retry_s, RETRY_MAX_S)
                continue
            retry_s = FIRST_RETRY_S
            log.info("took a block of producer ids first=%d last=%d", block[0], block[-1])
            self._is_wanted.clear()
            self._next_block = block
            while self._waiting and (self._block or self._next_block):
                waiting = self._waiting.popleft()
                waiting.timer.cancel()
                self._give(waiting.on_id)
            if self._waiting:
                self._is_wanted.set()

    def _give(self, on_id: OnId) -> None:
        if not self._block:
            assert self._next_block, "looked before"
            self._block, self._next_block = self._next_block, None
        producer_id, size = self._block[0], len(self._block)
        self._block = self._block[1:]
        if self._next_block is None and size - 1 <= LEFT_MIN:
            self._is_wanted.set()
        on_id(producer_id, ErrorCode.NONE)

    def _give_up(self, waiting: _Waiting) -> None:
        self._waiting.remove(waiting)
        waiting.on_id(-1, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


class _Waiting:
    """Somebody who waits for an id."""

    __slots__ = ("on_id", "timer")

    timer: asyncio.TimerHandle

    def __init__(self, on_id: OnId) -> None:
        self.on_id = on_id
