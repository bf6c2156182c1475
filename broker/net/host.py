"""What a connection needs of the listener it came in by."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from barnabas.broker.handlers.call import PendingResponse
from barnabas.broker.security.sasl import PlainExchange

from .connection_scheduler import ConnectionScheduler
from .dispatch import Dispatcher, Frame, ResponseFrame
from .limits import Limits

if TYPE_CHECKING:
    from .connection import Connection

Dispatch = Callable[[Frame, "Connection"], ResponseFrame | PendingResponse | None]


class Host(Protocol):
    """A listener; all connections of a node share its dispatcher and its limits."""

    name: str
    is_internal: bool
    is_serving: bool
    dispatcher: Dispatcher
    limits: Limits
    scheduler: ConnectionScheduler
    loop: asyncio.AbstractEventLoop

    def exchange(self) -> PlainExchange | None:
        """A fresh proof to ask of a peer; None where none is asked."""

    def entered(self, connection: Connection) -> None:
        """Know a connection that was admitted."""

    def left(self, connection: Connection) -> None:
        """Forget a connection that is gone."""
