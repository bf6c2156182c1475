"""What the connections of a listener do in one turn of the loop: serve a share, and write once.

Source: docs/spec/protocol.md §4.1: joining the writes of a turn is worth more than anything else.
docs/decisions/0010: a turn is short whatever clients send, since beacons, orders and ZooKeeper's
answers wait for its end.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .connection import Connection

log = logging.getLogger(__name__)

TURN_S: Final = 0.005
"""How long one turn of the loop serves requests before connections that have more wait."""
TURN_REQUESTS: Final = 1_000
"""The same as a number, for a clock that stands still while a turn lasts (in simulations)."""
SHARE_REQUESTS: Final = 16
"""Requests that are served between two looks at the clock."""
LONG_BYTES: Final = 8 << 10
"""After a longer request or answer the clock is looked at: it may have taken a millisecond."""
SHARES_PER_VISIT: Final = 8
"""So many shares one connection takes before others have theirs."""
FLUSHES_PER_LOOK: Final = 64
"""Connections that write between two looks at the clock."""


class ConnectionScheduler:
    """One for each listener: however many answers a turn resolves, it costs one callback.

    A connection that is served sets :attr:`shares_left`, takes one off :attr:`requests_left` for
    each request, and calls :meth:`take_share` when none is left. A connection that gets no share
    is served in the next turn, before those that were served in this one.
    """

    __slots__ = (
        "_dirty",
        "_ends",
        "_is_counting",
        "_loop",
        "_served",
        "_served_last",
        "is_spent",
        "requests_left",
        "shares_left",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._dirty: list[Connection] = []
        self._served_last: Connection | None = None
        self.requests_left = 0
        """Requests that may be served before the clock is looked at."""
        self.shares_left = 0
        """Shares that the connection which is served now may still take."""
        self.is_spent = False
        """So much was served in this turn that whoever has more waits for the next."""
        self._is_counting = False
        self._served = 0
        self._ends = 0.0

    def take_share(self) -> bool:
        """Look at the clock: whether this connection may have another SHARE in this turn."""
        self.shares_left -= 1
        if self.is_spent or self.shares_left < 0:
            return False
        if not self._is_counting:
            self._is_counting = True
            self._served = 0
            self._ends = self._loop.time() + TURN_S
            self._loop.call_soon(self._renew)
        elif self._loop.time() >= self._ends or self._served >= TURN_REQUESTS:
            self.is_spent = True
            return False
        self._served += SHARE_REQUESTS
        self.requests_left = SHARE_REQUESTS
        return True

    def _renew(self) -> None:
        self._is_counting = self.is_spent = False

    def may_write_at_once(self, connection: Connection) -> bool:
        """Note who asks now; True when it may write at once, since it asked last as well.

        Where many take turns all are read before any is answered: a write wakes a client, which
        then competes with us for the machine.
        """
        is_alone = self._served_last is connection
        self._served_last = connection
        return is_alone

    def add(self, connection: Connection) -> None:
        """Have ``sender`` flushed soon; it has set its ``is_dirty``, so that it comes once."""
        if not self._dirty:
            self._loop.call_soon(self._flush)
        self._dirty.append(connection)

    def _flush(self) -> None:
        dirty, self._dirty = self._dirty, []
        ends = self._loop.time() + TURN_S
        for number, connection in enumerate(dirty, 1):
            connection.is_dirty = False
            try:
                connection.flush()
            except Exception:
                # Those behind it would never be answered: they count as noted already (is_dirty).
                log.exception("a connection could not be served; it is given up")
                connection.abort()
            if self.is_spent or (not number % FLUSHES_PER_LOOK and self._loop.time() >= ends):
                self._put_off(dirty[number:])
                break

    def _put_off(self, others: list[Connection]) -> None:
        """Let the others have the next turn, before those who were served in this one."""
        if others:
            if not self._dirty:
                self._loop.call_soon(self._flush)
            self._dirty[:0] = others
