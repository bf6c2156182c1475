"""One request on its way: what a handler is given, and how it answers now or later."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine
from functools import partial
from typing import Any, Protocol, TypeGuard, final

from barnabas.broker.security.sasl import SaslServer


class Peer(Protocol):
    """The connection a request came on, as far as a handler may know it."""

    listener: str
    """Upper-case name of the listener, as in the advertised endpoints."""
    is_internal: bool
    """True on the inter-broker listener, and only there."""
    host: str
    """The peer's address as text."""
    sasl: SaslServer | None
    """How far the peer has proved who it is; None on a listener that asks for no proof."""
    remembered: Any
    """Whatever the handlers of groups keep about this connection between two requests."""
    decisions: Any
    """What the authorizer decided for this connection; None before the first decision."""

    @property
    def principal(self) -> str:
        """``User:ANONYMOUS`` until somebody authenticated."""

    @property
    def is_node(self) -> bool:
        """Whether it has proved to be a node of this cluster."""

    def has_left(self) -> bool:
        """Whether the peer has closed its side already: nobody waits for an answer."""

    def throttle(self, seconds: float) -> None:
        """Serve nothing more of the connection for so long; what is answered is written."""

    def close(self) -> None:
        """End the connection once what is already answered has been written."""


class Call:
    """A decoded request and where it came from."""

    __slots__ = ("client_id", "key", "peer", "request", "version")

    is_long = False
    """Whether the request was so long that it was read over several turns of the loop."""

    def __init__(
        self, key: int, version: int, client_id: str | None, request: Any, peer: Peer
    ) -> None:
        self.key = key
        self.version = version
        self.client_id = client_id
        self.request = request
        self.peer = peer


class LongCall(Call):
    """A request that may name very much, and is to be served over several turns."""

    __slots__ = ()

    is_long = True


OnDrop = Callable[[], "asyncio.Future[None] | None"]


@final
class PendingResponse:
    """An answer to come; :meth:`respond` gives it, once, from anywhere on the loop.

    Whoever returns one has done all that the request changes, or has it in an order that nothing
    behind can overtake (net/request_order.py says what may start meanwhile); a handler that has
    not is a coroutine. The connection keeps its place in the order of answers. ``on_drop`` is
    called when the peer went away first, so that whoever waits can forget it; where it gives a
    future, the request is held until that is done.
    """

    __slots__ = (
        "_done_callback",
        "allowed_behind",
        "answer",
        "correlation_id",
        "held",
        "is_resolved",
        "members",
        "on_drop",
        "route",
        "wait_ms",
    )

    route: Any
    """How the answer is to be written; noted, with the next five, by the dispatcher alone."""
    correlation_id: int
    held: int
    """Bytes of the request that live on in what the handler keeps."""
    allowed_behind: range | frozenset[int]
    """Keys of the requests that may start while this one waits for its answer."""
    wait_ms: int
    """How long the request said, or its kind says, that it may wait."""
    members: Collection[object]
    """Who waits to join or to sync; of the same nobody else may."""

    def __init__(self, on_drop: OnDrop | None = None) -> None:
        self.answer: Any = None
        self.is_resolved = False
        self.on_drop = on_drop
        self._done_callback: Callable[[PendingResponse], None] | None = None

    def respond(self, answer: Any) -> None:
        """Give the answer: a response message, or None to send nothing (acks=0)."""
        if self.is_resolved:
            return
        self.answer = answer
        self.is_resolved = True
        if self._done_callback is not None:
            self._done_callback(self)

    def add_done_callback(self, on_response: Callable[[PendingResponse], None]) -> None:
        """Have ``on_response`` called when the answer is there, after those that asked before."""
        earlier = self._done_callback
        self._done_callback = (
            on_response if earlier is None else partial(_in_turn, earlier, on_response)
        )


def _in_turn(
    earlier: Callable[[PendingResponse], None],
    later: Callable[[PendingResponse], None],
    pending: PendingResponse,
) -> None:
    earlier(pending)
    later(pending)


async def response_of(pending: PendingResponse) -> Any:
    """Wait for the answer; for a handler that parks where a coroutine is called for."""
    if not pending.is_resolved:
        future = asyncio.get_running_loop().create_future()
        pending.add_done_callback(lambda _: None if future.done() else future.set_result(None))
        await future
    return pending.answer


Answer = Any
"""A response message, a PendingResponse, or None to send nothing."""

Handler = Callable[[Call], Answer | Awaitable[Answer]]
"""Serves one API. Coroutines are for the rare ones: each costs a task."""


def is_coroutine(answer: object) -> TypeGuard[Coroutine[Any, Any, Any]]:
    """Whether what a handler gave has to be awaited.

    Its type does not say so: the coroutine of a compiled function is no ``types.CoroutineType``,
    and asked for that it would be taken for a response message (docs/decisions/0012).
    """
    return hasattr(answer, "__await__")
