"""When to give a peer up that is silent, slow or a stranger for too long.

Source: docs/spec/reliability.md §8.2.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from .limits import AUTHENTICATION_S, SMALL_FRAME_BYTES_MAX, STALL_S

if TYPE_CHECKING:
    from .connection import Connection
    from .listener import Listener


class ConnectionActivity(NamedTuple):
    """What a connection says of itself at the end of a period."""

    is_authenticated: bool
    """The peer has proved who it is, where that is asked."""
    is_active: bool
    """It was heard in this period, or waits for answers."""
    is_stalled: bool
    """Answers lie here that it does not read."""
    is_partial: bool
    """It has begun a frame, and we would read on."""
    growth: int
    """Bytes by which its unfinished frames have grown, ever."""
    sent: int
    """Bytes of files that it has taken, ever."""


class ConnectionTimeouts:
    """Looks at one connection every half minute at most, and compares it with the last time."""

    __slots__ = ("_connection", "_last", "_listener", "_period_s", "_timer", "quiet_s")

    def __init__(self, listener: Listener, connection: Connection) -> None:
        self._listener = listener
        self._connection: Connection | None = connection
        self._timer: asyncio.TimerHandle | None = None
        self._last = ConnectionActivity(True, True, False, False, 0, 0)
        self._period_s = min(STALL_S, listener.limits.idle_s)
        self.quiet_s = 0.0
        """How long nothing was heard, and nothing waited for, in whole periods."""

    def start(self, *, is_unauthenticated: bool, waited_s: float = 0.0) -> None:
        """Look for the first time after one period, or sooner at who has to prove something.

        ``waited_s`` is how long it has been here already: TLS and SASL have one bound together.
        Below 0 it is how long it will be held first: what it sends is not read before.
        """
        first = self._period_s
        if is_unauthenticated:
            first = max(0.0, min(first, AUTHENTICATION_S) - waited_s)
        self._timer = self._listener.loop.call_later(first, self._look)

    def stop(self) -> None:
        """The peer is gone: its connection is to be freed."""
        if self._timer is not None:
            self._timer.cancel()
        self._connection = None

    def _look(self) -> None:
        connection = self._connection
        if connection is None:
            return
        state = connection.state()
        reason = self._expired(state, self._last)
        self._last = state
        if reason:
            connection.time_out(reason)
            return
        self._timer = self._listener.loop.call_later(self._period_s, self._look)

    def _expired(self, state: ConnectionActivity, last: ConnectionActivity) -> str:
        self.quiet_s = 0.0 if state.is_active else self.quiet_s + self._period_s
        if not state.is_authenticated:
            return "not authenticated in time"
        if last.is_stalled and state.is_stalled and state.sent - last.sent < SMALL_FRAME_BYTES_MAX:
            return "answers not read in time"
        if (
            last.is_partial
            and state.is_partial
            and state.growth - last.growth < SMALL_FRAME_BYTES_MAX
        ):
            return "unfinished frame"
        return "idle" if self.quiet_s >= self._listener.limits.idle_s else ""
