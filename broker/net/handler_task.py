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

    __slots__ = ("call", "coroutine", "is_cancellable", "task")

    call: Call
    """Whose time it is that it takes; without the request, which is not to outlive its handler."""
    coroutine: Coroutine[Any, Any, Any]
    task: asyncio.Task[None]

    def __init__(self, *, is_cancellable: bool) -> None:
        self.is_cancellable = is_cancellable
        """Nothing is half done where it is now: while the request is read, and again while its
        answer is written. In between, while its handler runs, as its route says (CANCELLABLE)."""

    def drop(self) -> asyncio.Task[None]:
        """The peer is gone: stop where that does no harm; the request is held until the end.

        Else a peer that comes and goes would fill the memory, and a commit of its former connection
        could take effect after one that was answered on the next.
        """
        if self.is_cancellable:
            self.task.cancel()
            self.task.add_done_callback(lambda _: self.coroutine.close())  # perhaps never begun
        return self.task
