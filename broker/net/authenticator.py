"""Stands in for the dispatcher until a peer has proved who it is.

Source: docs/spec/reliability.md §8.2; docs/spec/cluster.md §2.14 (who has to).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.broker.handlers.call import PendingResponse
from barnabas.broker.security.sasl import PlainExchange, Stage
from barnabas.protocol.errors import CorruptRequest, Refused

from .dispatch import Dispatcher, Frame, ResponseFrame
from .framing import FRAME_BYTES_MIN, LENGTH_BYTES, Framing

if TYPE_CHECKING:
    from .connection import Connection

EMPTY_TOKEN = bytes(LENGTH_BYTES)


class Authenticator:
    """Lets through what strangers may ask; ``opened`` hears when the peer is none any more."""

    def __init__(
        self,
        exchange: PlainExchange,
        framing: Framing,
        dispatcher: Dispatcher,
        on_authenticated: Callable[[], None],
    ) -> None:
        self._exchange = exchange
        self._framing = framing
        self._dispatcher = dispatcher
        self._on_authenticated = on_authenticated

    def dispatch(self, frame: Frame, peer: Connection) -> ResponseFrame | PendingResponse | None:
        """As the dispatcher; raises CorruptRequest for a proof that fails."""
        exchange = self._exchange
        reply: ResponseFrame | PendingResponse | None = EMPTY_TOKEN
        if exchange.stage is Stage.BARE_TOKEN:
            try:
                exchange.authenticate(bytes(frame[LENGTH_BYTES:]))
            except Refused as refusal:
                raise CorruptRequest(f"authentication failed: {refusal.message}") from None
        else:
            reply = self._dispatcher.dispatch(frame, peer)
        self._framing.bytes_min = 0 if exchange.stage is Stage.BARE_TOKEN else FRAME_BYTES_MIN
        if exchange.stage is Stage.DONE:
            self._on_authenticated()
        return reply
