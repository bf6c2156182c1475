"""Accepts connections of a listener that speaks TLS, and shakes hands with each.

    accept -> quotas -> something to read -> is it TLS? -> its turn -> handshake -> Connection

asyncio's own server makes the protocol at once and tells it nothing of a handshake that fails: who
never ends one would stand outside of every quota. So a connection is counted here, its first bytes
wait in the kernel, and a Connection is made when the handshake is done.

handshake_turns.py has when it is its turn. Source: docs/spec/security.md §1 (S14, S18, S19).
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.security.ssl_contexts import ListenerTls
from barnabas.client.tls.contexts import describe_failure

from .connection import Connection
from .handshake_turns import SPACING_S, HandshakeTurns
from .limits import AUTHENTICATION_S

if TYPE_CHECKING:
    from .listener import Listener

log = logging.getLogger(__name__)

HANDSHAKES_PER_S: Final = 200
"""Where no ``max.connection.creation.rate`` is set: a third of a core."""
UNDER_WAY_MAX: Final = 500
"""Of handshakes of one listener; one that has begun costs 20 to 250 KiB until it ends.

No number of places: where one more begins, the oldest is broken off. Peers that go on have ended
theirs long before, at the default rate 2.5 s before.
"""
SHUTDOWN_S: Final = 1.0
"""How long a connection that ends waits for the peer's last word."""
EXHAUSTED_S: Final = 1.0
"""Nothing is accepted for so long when the machine has no more descriptors or memory."""
BACKLOG: Final = 1024
_RECORD_HEADER_BYTES: Final = 5
_HANDSHAKE_RECORD: Final = b"\x16\x03"
_ONLY_THIS_ONE: Final = frozenset({errno.ECONNABORTED, errno.EPROTO, errno.EINTR})


@dataclass(slots=True, eq=False)
class _Entrant:
    """A peer between its accept and its connection."""

    link: socket.socket
    host: str
    admitted_at: float
    """When the hold of the connection rate is over: no time of it counts against the peer."""
    task: asyncio.Task[None] | None = None
    connection: Connection | None = None
    is_handed_over: bool = False
    """The socket is the loop's to close."""
    detail: str = ""
    """What a handshake failed of."""
    reason: str = ""
    """Why it was broken off."""

    def time_out(self, reason: str) -> None:
        """Break its handshake off: others have come. One that is done is no matter of ours."""
        if self.connection is None or not self.connection.is_made:
            self.reason = reason
            if self.task is not None:
                self.task.cancel()


class TlsAcceptor:
    """The bound sockets of one listener, and the handshakes under way."""

    def __init__(self, listener: Listener, tls: ListenerTls) -> None:
        self._listener = listener
        self._tls = tls
        self._loop = listener.loop
        self._turns = HandshakeTurns(self._loop, self._rate)
        self._sockets: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._under_way: dict[_Entrant, None] = {}
        """Handshakes that have begun, the oldest first."""

    async def bind(self, host: str | None, port: int) -> int:
        """Listen; the port that was bound. Raises OSError when it is taken."""
        found = await self._loop.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        try:
            for family, kind, protocol, _, address in dict.fromkeys(found):
                self._listen(socket.socket(family, kind, protocol), address, port)
                port = self._sockets[0].getsockname()[1]
        except OSError:
            self._close_sockets()
            raise
        for listening in self._sockets:
            self._start(self._accept(listening))
        return port

    async def close(self) -> None:
        """Stop listening, and break off the handshakes that are under way."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._close_sockets()

    def _listen(self, listening: socket.socket, address: Any, port: int) -> None:
        self._sockets.append(listening)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if listening.family == socket.AF_INET6:
            # Each address has a socket of its own: this one is not to take IPv4 as well.
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.setblocking(False)
        listening.bind((address[0], port, *address[2:]))
        listening.listen(BACKLOG)

    def _close_sockets(self) -> None:
        for listening in self._sockets:
            listening.close()
        self._sockets.clear()

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("accepting failed by our own fault", exc_info=task.exception())

    async def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                link, address = await self._loop.sock_accept(listening)
            except OSError as error:
                if error.errno not in _ONLY_THIS_ONE:
                    log.error("cannot accept listener=%s: %s", self._listener.name, error.strerror)
                    await asyncio.sleep(EXHAUSTED_S)
                continue
            self._admit(link, str(address[0]))

    def _admit(self, link: socket.socket, host: str) -> None:
        listener, now = self._listener, self._loop.time()
        quotas, is_internal = listener.limits.connection_quotas, listener.is_internal
        problem = quotas.admit(
            host, listener.name, is_internal=is_internal, now=now, descriptor=link.fileno()
        )
        if problem is not None:
            link.close()
            self._reject(host, problem)
            return
        wait_s = quotas.throttle_s(listener.name, is_internal=is_internal, now=now)
        close_s = quotas.closes_after_s(host, is_internal=is_internal, now=now)
        entrant = _Entrant(link, host, now + wait_s)
        # Not at the end of the task: one that is cancelled before it begins has no end.
        work = self._hold(entrant, close_s) if close_s else self._enter(entrant, wait_s)
        entrant.task = self._start(work)
        entrant.task.add_done_callback(lambda _: self._give_back(entrant))
        if not is_internal:
            listener.limits.strangers.enter(entrant)

    def _give_back(self, entrant: _Entrant) -> None:
        """From connection_made on it is the connection that gives its place back."""
        self._listener.limits.strangers.leave(entrant)
        if entrant.reason:
            self._listener.tls_handshakes["failed"] += 1
            self._reject(entrant.host, entrant.reason)
        if not entrant.is_handed_over:
            entrant.link.close()
        if entrant.connection is None or not entrant.connection.is_made:
            listener = self._listener
            listener.limits.connection_quotas.release(
                entrant.host, listener.name, is_internal=listener.is_internal
            )

    async def _hold(self, entrant: _Entrant, close_s: float) -> None:
        """Above the rate of its address it is left unread, and closed then (KIP-612)."""
        await asyncio.sleep(close_s)
        self._reject(entrant.host, "too many connections a second from one address")

    async def _enter(self, entrant: _Entrant, wait_s: float) -> None:
        """From a socket to a Connection."""
        ends = entrant.admitted_at + AUTHENTICATION_S
        problem = await self._await_turn(entrant, ends, wait_s)
        problem = problem or await self._shake_hands(entrant, ends)
        self._listener.tls_handshakes["failed" if problem else "done"] += 1
        if problem:
            self._reject(entrant.host, problem, entrant.detail)

    async def _await_turn(self, entrant: _Entrant, ends: float, wait_s: float) -> str:
        """Why no handshake is begun; nothing when it may begin."""
        try:
            async with asyncio.timeout_at(ends):
                await asyncio.sleep(wait_s)
                problem = await self._hello(entrant.link)
                if problem or await self._turns.wait(entrant.host, self._left_s(ends)):
                    return problem
                return "too many TLS handshakes a second"
        except TimeoutError:
            return "no TLS handshake in time"
        except OSError as error:
            log.debug("left before its TLS handshake: %r", error)
            return "left before its TLS handshake"

    async def _shake_hands(self, entrant: _Entrant, ends: float) -> str:
        """Why it failed, and then the loop has closed the socket; nothing when it is done."""

        def make() -> Connection:
            entrant.connection = Connection(
                self._listener, admitted_at=entrant.admitted_at, stood_for_by=entrant
            )
            return entrant.connection

        entrant.is_handed_over = True
        began = self._loop.time()
        self._begin(entrant)
        try:
            await self._loop.connect_accepted_socket(
                make,
                entrant.link,
                ssl=self._tls.server,
                ssl_handshake_timeout=self._left_s(ends),
                ssl_shutdown_timeout=SHUTDOWN_S,
            )
        except ConnectionAbortedError:
            return "TLS handshake not ended in time"
        except OSError as error:  # ssl.SSLError is one
            entrant.detail = describe_failure(error)
            self._listener.limits.audit.handshake_failed(
                listener=self._listener.name, host=entrant.host, reason=entrant.detail
            )
            return "TLS handshake failed"
        finally:
            self._under_way.pop(entrant, None)
        self._listener.tls_handshake_time.observe(self._loop.time() - began)
        return ""

    def _begin(self, entrant: _Entrant) -> None:
        self._under_way[entrant] = None
        if len(self._under_way) > UNDER_WAY_MAX:
            oldest = next(iter(self._under_way))
            del self._under_way[oldest]
            oldest.time_out("TLS handshake not ended, and others wait")

    async def _hello(self, link: socket.socket) -> str:
        """Wait for the beginning of a handshake, and leave it in the kernel."""
        # Fewer bytes do not wake us: a peer that sends one a second would keep the loop awake.
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, _RECORD_HEADER_BYTES)
        readable = self._loop.create_future()
        self._loop.add_reader(link, _wake, readable)
        try:
            await readable
        finally:
            self._loop.remove_reader(link)
        start = link.recv(_RECORD_HEADER_BYTES, socket.MSG_PEEK)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        if not start:
            return "left before its TLS handshake"
        # Without an alert: clients that speak no TLS read it as a length, and allocate 352 MB
        # (KAFKA-4090).
        return "" if start.startswith(_HANDSHAKE_RECORD) else "no TLS sent to a TLS port"

    def _rate(self) -> int:
        return self._listener.limits.connection_quotas.handshakes_per_s(
            self._listener.name, is_internal=self._listener.is_internal, unset=HANDSHAKES_PER_S
        )

    def _left_s(self, ends: float) -> float:
        return max(ends - self._loop.time(), SPACING_S)

    def _reject(self, host: str, reason: str, detail: str = "") -> None:
        self._listener.limits.rejection_log.connection_rejected(host, reason, detail)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
