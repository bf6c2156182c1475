"""How kazoo opens a connection, waits for it, and hands over what came.

Source: docs/spec/cluster.md §1.1 and §1.10.
"""

from __future__ import annotations

import logging
import os
import select
import threading
from collections.abc import Iterable
from typing import Any, Final

from kazoo.handlers.threading import AsyncResult, SequentialThreadingHandler

from barnabas.client.tls.contexts import ClientTls, describe_failure
from barnabas.protocol.settings import ConfigError

log = logging.getLogger(__name__)

ACCEPT_S: Final = 2.0
"""How long a server may take to accept a connection: long enough to send a lost SYN again."""


class KazooHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """Accepts sooner that a server is off, checks certificates, and has no thread between.

    kazoo gives a machine that is off the whole session timeout to accept a connection: with one
    such server of three a session was lost, or a start failed, whenever it was asked before the
    others. Its own TLS trusts the system's authorities beside the one it is given, and by itself
    no certificate need be of the server that it comes from.

    Every callback here posts to the event loop and does nothing else, so it runs on the thread
    that reads the socket. kazoo has a thread for answers and another for watches: a controller
    that takes over reads the state of each partition, and each of these changes of thread cost as
    much as the answer. Now answers and watches also stay in the order in which they came.
    """

    def __init__(self, tls: ClientTls | None) -> None:
        super().__init__()
        self._tls = tls
        self.tls_problem = ""
        """Why the last handshake failed."""

    def start(self) -> None:
        """Start the threads; raises RuntimeError, and leaves none behind, where one cannot be."""
        try:
            super().start()
        except RuntimeError:
            self._running = True  # kazoo stops only what has been started in full
            self.stop()
            raise

    def async_result(self) -> AsyncResult:
        """What kazoo answers a call with."""
        return _Answer(self)

    def create_socket_pair(self) -> tuple[Any, Any]:
        """What kazoo's thread is woken with, once for each request: what it reads, what we write.

        Without a connection it reads nothing, and a pair of sockets holds some 280 bytes: the next
        request stopped the whole event loop until ZooKeeper was back.
        """
        if not hasattr(os, "eventfd"):  # macOS
            pair: tuple[Any, Any] = super().create_socket_pair()
            return pair
        waiting = _WaitingRequests()
        return waiting, waiting

    def dispatch_callback(self, callback: Any) -> None:
        """Tell a watch at once."""
        callback.func(*callback.args)

    def select(
        self,
        readers: Iterable[Any],
        writers: Iterable[Any],
        _: Iterable[Any] = (),
        timeout: float | None = None,
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Which sockets are ready, none after ``timeout`` seconds; ValueError for a closed one.

        kazoo asks three times an answer, with an epoll of its own each time, five system calls.
        """
        waiting = select.poll()
        asked: dict[int, tuple[Any, int]] = {}
        for sockets, event in ((readers, select.POLLIN), (writers, select.POLLOUT)):
            for socket in sockets:
                descriptor = socket.fileno()
                events = asked.get(descriptor, (socket, 0))[1] | event
                waiting.register(descriptor, events)
                asked[descriptor] = socket, events
        readable, writable = [], []
        for descriptor, found in waiting.poll(None if timeout is None else timeout * 1000):
            socket, events = asked[descriptor]
            if found & select.POLLNVAL:
                raise ValueError(f"descriptor {descriptor} is closed")
            # An error or a hang-up is told to whoever asked: reading or writing shows which.
            if events & select.POLLIN and found & ~select.POLLOUT:
                readable.append(socket)
            if events & select.POLLOUT and found & ~select.POLLIN:
                writable.append(socket)
        return readable, writable, []

    def create_connection(
        self, address: Any, hostname: str | None = None, *, timeout: float, **_: Any
    ) -> Any:
        """A connection; raises OSError, which ssl.SSLError is."""
        link = super().create_connection(address, timeout=min(timeout, ACCEPT_S))
        if self._tls is None:
            return link
        try:
            link.settimeout(ACCEPT_S)  # the handshake is part of accepting
            secured = self._tls.context().wrap_socket(link, server_hostname=hostname)
        except (OSError, ConfigError) as error:
            link.close()
            self.tls_problem = (
                str(error) if isinstance(error, ConfigError) else describe_failure(error)
            )
            log.warning("no TLS with zookeeper server=%s: %s", hostname, self.tls_problem)
            raise OSError(f"no TLS: {self.tls_problem}") from error
        self.tls_problem = ""
        return secured


class _WaitingRequests:
    """Both ends of a socket pair for kazoo, but one that is never full: it counts what it holds."""

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_SEMAPHORE | os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        # A thread that closes it must not let another write into whatever has its number then.
        self._lock = threading.Lock()

    def fileno(self) -> int:
        return self._descriptor

    def send(self, data: bytes) -> int:
        with self._lock:
            os.eventfd_write(self._checked(), len(data))
        return len(data)

    def recv(self, _size: int) -> bytes:
        """One byte; raises BlockingIOError where there is none."""
        with self._lock:
            os.eventfd_read(self._checked())
        return b"\0"

    def close(self) -> None:
        with self._lock:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1

    def _checked(self) -> int:
        if self._descriptor < 0:
            raise OSError("closed")
        return self._descriptor


class _Answer(AsyncResult):  # type: ignore[misc]  # kazoo has no types
    def _do_callbacks(self) -> None:
        for callback in self._callbacks:
            callback(self)
