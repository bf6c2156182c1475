"""A request that a task serves, and what becomes of it when its peer leaves.

Source: docs/spec/reliability.md §8.2.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from barnabas.broker.handlers.call import Call


class HandlerTask:
    """A request that a task serves."""

    __slots__ = ("_is_begun", "call", "coroutine", "is_cancellable", "task")

    call: Call
    """Whose time it is that it takes; without the request, which is not to outlive its handler."""
    coroutine: Coroutine[Any, Any, Any]
    task: asyncio.Task[None]

    def __init__(self, *, is_cancellable: bool) -> None:
        self.is_cancellable = is_cancellable
        """Nothing is half done where it is now: while the request is read, and again while its
        answer is written. In between, while its handler runs, as its route says (CANCELLABLE)."""
        self._is_begun = False

    def begin(self) -> Coroutine[Any, Any, Any]:
        """The coroutine, which is awaited now."""
        self._is_begun = True
        return self.coroutine

    def drop(self) -> asyncio.Task[None]:
        """The peer is gone: stop where that does no harm; the request is held until the end.

        Else a peer that comes and goes would fill the memory, and a commit of its former connection
        could take effect after one that was answered on the next.
        """
        if self.is_cancellable:
            self.task.cancel()
            self.task.add_done_callback(self._close_unbegun)
        return self.task

    def _close_unbegun(self, _: asyncio.Task[None]) -> None:
        # Python warns of a coroutine that nobody awaited. One that has ended is left alone: closed
        # again, a compiled one raises AttributeError (mypyc 2.4).
        if not self._is_begun:
            self.coroutine.close()
