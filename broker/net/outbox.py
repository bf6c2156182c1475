"""Connections with answers to send, written once at the end of the loop's turn.

Source: protocol.md section 4.1: joining the writes of a turn is worth more than anything else.
"""

from __future__ import annotations

import asyncio
from typing import Protocol


class Sender(Protocol):
    """A connection that marked itself as having something to send."""

    is_dirty: bool

    def flush(self) -> None:
        """Write whatever may leave now."""


class Outbox:
    """One for each listener: however many answers a turn resolves, it costs one callback."""

    __slots__ = ("_dirty", "_loop", "_served_last")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._dirty: list[Sender] = []
        self._served_last: Sender | None = None

    def takes_turn(self, sender: Sender) -> bool:
        """Note who asks now; True when it may write at once, since it asked last as well.

        Where many take turns all are read before any is answered: a write wakes a client, which
        then competes with us for the machine.
        """
        is_alone = self._served_last is sender
        self._served_last = sender
        return is_alone

    def add(self, sender: Sender) -> None:
        """Have ``sender`` flushed soon; it has set its ``is_dirty``, so that it comes once."""
        if not self._dirty:
            self._loop.call_soon(self._flush)
        self._dirty.append(sender)

    def _flush(self) -> None:
        dirty, self._dirty = self._dirty, []
        for sender in dirty:
            sender.is_dirty = False
            sender.flush()
