"""When a TLS handshake may begin: at a rate, and the addresses in turn.

A handshake costs 1 to 2 ms on the loop. It is the rate that is bounded, not how many are under way:
a few peers that stall would hold every place. Addresses take turns, so that one that connects by
the thousand waits for itself, and nobody else for it. Source: docs/spec/security.md §1 (S18).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

SPACING_S: Final = 0.002
"""Between two handshakes, whatever the rate: beacons and leases have their turn in between."""

_Queue = OrderedDict[asyncio.Future[None], None]


class HandshakeTurns:
    """Those of one listener; ``rate`` says how many may begin each second."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rate: Callable[[], int]) -> None:
        self._loop = loop
        self._rate = rate
        self._queues: OrderedDict[str, _Queue] = OrderedDict()
        """By address, the one whose turn is next first; none is empty."""
        self._count = 0
        self._next_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return self._count

    async def wait(self, host: str, wait_s_max: float) -> bool:
        """Return when it is the turn of one of ``host``; False at once when that is too late."""
        if self._due_s(host) > wait_s_max:
            return False
        turn = self._loop.create_future()
        self._queues.setdefault(host, OrderedDict())[turn] = None
        self._count += 1
        self._set_timer()
        try:
            await turn
        finally:
            self._forget(host, turn)
        return True

    def _due_s(self, host: str) -> float:
        """How long one more of ``host`` will wait, if the others have no more than it has."""
        mine = len(self._queues.get(host, ()))
        addresses = len(self._queues) + (mine == 0)
        ahead = min((mine + 1) * addresses - 1, self._count)
        return max(self._next_s - self._loop.time(), 0.0) + ahead * self._spacing_s

    @property
    def _spacing_s(self) -> float:
        return max(1 / self._rate(), SPACING_S)

    def _set_timer(self) -> None:
        if self._timer is None and self._queues:
            wait_s = max(0.0, self._next_s - self._loop.time())
            self._timer = self._loop.call_later(wait_s, self._grant)

    def _grant(self) -> None:
        self._timer = None
        if not self._queues:
            return
        host, queue = self._queues.popitem(last=False)
        turn, _ = queue.popitem(last=False)
        self._count -= 1
        if queue:
            self._queues[host] = queue  # behind all other addresses
        # A late timer costs no turn, but never are two of them closer than they may be.
        self._next_s = max(self._next_s + self._spacing_s, self._loop.time() + SPACING_S)
        if not turn.done():
            turn.set_result(None)
        self._set_timer()

    def _forget(self, host: str, turn: asyncio.Future[None]) -> None:
        """One that was cancelled while it waited takes nobody's turn."""
        queue = self._queues.get(host)
        if queue is not None and turn in queue:
            del queue[turn]
            self._count -= 1
            if not queue:
                del self._queues[host]
