"""One TCP connection as asyncio sees it: requests out, and responses matched in their order.

A broker answers the requests of a connection in the order in which they came. The correlation id
is therefore a check and not a key: the oldest request in flight is the only one that a response
can belong to. A response on the wire, sizes and ids big-endian::

    0         4                 8
    | size    | correlation id  | header's tags, body ...   |
              |<------------------ size bytes ------------->|

Source: docs/spec/protocol.md §0 choice 8.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections import deque
from typing import Final, cast

from barnabas.client.errors import (
    ClosedByPeer,
    Disconnected,
    KafkaError,
    RequestTimedOut,
    TlsFailed,
)
from barnabas.client.tls.contexts import describe_failure

_SIZE: Final = struct.Struct(">i")
_SIZE_AND_CORRELATION: Final = struct.Struct(">ii")


class _InFlightRequest:
    """A request without a response: its correlation id, its future, its timeout."""

    __slots__ = ("correlation_id", "future", "timer")

    def __init__(
        self, correlation_id: int, future: asyncio.Future[bytes], timer: asyncio.TimerHandle
    ) -> None:
        self.correlation_id = correlation_id
        self.future = future
        self.timer = timer


class InFlightRequests(asyncio.Protocol):
    """Matches the frames that arrive with the requests that were sent.

    A response that is late, out of order or larger than ``response_bytes_max`` ends the connection,
    and every request in flight fails. Late: to skip one response would leave it in the stream,
    where the next request would take it for its own. Too large: a size that is no size would have
    us buffer until memory ends.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, peer: str, *, response_bytes_max: int
    ) -> None:
        self.is_closed = False
        self._loop = loop
        self._peer = peer
        self._response_bytes_max = response_bytes_max
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._in_flight: deque[_InFlightRequest] = deque()
        self._failure: KafkaError | None = None
        self._writable: asyncio.Future[None] | None = None
        self._disconnected: asyncio.Future[None] = loop.create_future()

    def send(self, correlation_id: int, frame: bytes, timeout_s: float) -> asyncio.Future[bytes]:
        """Write ``frame``; the future has the response: a frame without its size.

        Cancelling the future is harmless: the request stays in flight, and its response is
        dropped when it comes, so that later responses still match.
        """
        future: asyncio.Future[bytes] = self._loop.create_future()
        timer = self._loop.call_later(timeout_s, self._expire, timeout_s)
        self._in_flight.append(_InFlightRequest(correlation_id, future, timer))
        self.send_without_response(frame)
        return future

    def send_without_response(self, frame: bytes) -> None:
        """Write ``frame``, to which no response comes: Produce with acks=0."""
        if self._failure is not None:
            raise Disconnected(self._failure.message)
        assert self._transport is not None, "asked before connected"
        self._transport.write(frame)

    @property
    def is_idle(self) -> bool:
        """No request waits for its response."""
        return not self._in_flight

    @property
    def is_paused(self) -> bool:
        """The peer does not take what was written: wait for :meth:`drained` before the next.

        Otherwise a broker that stopped reading would have the transport buffer without a bound.
        """
        return self._writable is not None

    async def drained(self) -> None:
        """Return once the peer takes what was written."""
        # Shielded, since several wait for one future; asked again, since it may pause anew.
        while self._writable is not None:
            await asyncio.shield(self._writable)

    async def close(self) -> None:
        """End the connection and return when it is gone; who still waits gets Disconnected."""
        self.fail(Disconnected(f"connection to {self._peer} was closed"))
        if self._transport is not None:
            await asyncio.shield(self._disconnected)

    def abandon(self) -> None:
        """End a connection that was never handed over: :meth:`close` waits for nothing then.

        uvloop closes what it has just made, when it is cancelled in this moment, without a call of
        :meth:`connection_lost`.
        """
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()

    def fail(self, error: KafkaError) -> None:
        """End the connection because of ``error``, which all who wait receive."""
        if self._failure is not None:
            return  # the first reason is the true one; what follows are its consequences
        self._failure = error
        self.is_closed = True
        while self._in_flight:
            request = self._in_flight.popleft()
            request.timer.cancel()
            if not request.future.done():
                request.future.set_exception(error)
        self.resume_writing()
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport to write to."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all requests in flight."""
        if isinstance(exc, ssl.SSLError):
            # In TLS 1.3 the broker looks at our certificate when the handshake is over for us.
            self.fail(TlsFailed(f"no TLS with {self._peer}: {describe_failure(exc)}"))
        reason = f": {exc}" if exc is not None else ""
        self.fail(ClosedByPeer(f"{self._peer} closed the connection{reason}"))
        if not self._disconnected.done():
            self._disconnected.set_result(None)

    def pause_writing(self) -> None:
        """Let :meth:`drained` wait: the peer reads slower than we write."""
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        """Let :meth:`drained` return."""
        if self._writable is not None:
            writable, self._writable = self._writable, None
            writable.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Cut off every complete frame and complete the request that it answers."""
        received = self._received
        received += data
        position = 0
        while len(received) - position >= _SIZE_AND_CORRELATION.size:
            size, correlation_id = _SIZE_AND_CORRELATION.unpack_from(received, position)
            if not _SIZE.size <= size <= self._response_bytes_max:
                self.fail(Disconnected(f"{self._peer} sent a frame of {size} bytes"))
                return
            end = position + _SIZE.size + size
            if len(received) < end:
                break
            # A copy: decoded messages keep slices of it, while ``received`` moves on.
            frame = bytes(memoryview(received)[position + _SIZE.size : end])
            self._complete(correlation_id, frame)
            position = end
        del received[:position]

    def _complete(self, correlation_id: int, frame: bytes) -> None:
        if not self._in_flight or self._in_flight[0].correlation_id != correlation_id:
            self.fail(Disconnected(f"{self._peer} answered what nobody asked: {correlation_id}"))
            return
        request = self._in_flight.popleft()
        request.timer.cancel()
        if not request.future.done():
            request.future.set_result(frame)

    def _expire(self, timeout_s: float) -> None:
        self.fail(RequestTimedOut(f"{self._peer} did not answer within {timeout_s:g} s"))
