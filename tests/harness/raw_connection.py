"""A client made of sockets and struct: it sends what it is told, also what no client would send.

Source: docs/spec/protocol.md §2.1. Written without the code under test, to be its judge.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

T = TypeVar("T")

Address = tuple[str, int]


def addresses_of(bootstrap: str) -> list[Address]:
    """``host:port,host:port`` taken apart."""
    parts = [address.rpartition(":") for address in bootstrap.split(",")]
    return [(host, int(port)) for host, _, port in parts]


class Closed(Exception):  # noqa: N818 - says what happened
    """The server closed the connection instead of answering."""


def text(value: str | None) -> bytes:
    """A string with its int16 length, null as -1."""
    if value is None:
        return struct.pack(">h", -1)
    encoded = value.encode()
    return struct.pack(">h", len(encoded)) + encoded


def blob(value: bytes) -> bytes:
    """Bytes with their int32 length."""
    return struct.pack(">i", len(value)) + value


def array(*items: bytes) -> bytes:
    """Encoded items behind their int32 count."""
    return struct.pack(">i", len(items)) + b"".join(items)


def request_frame(key: int, version: int, body: bytes, correlation_id: int = 1) -> bytes:
    """A whole frame with request header v1."""
    payload = struct.pack(">hhi", key, version, correlation_id) + text("raw") + body
    return struct.pack(">i", len(payload)) + payload


class Reader:
    """Takes values off the front of an answer's body."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, layout: str) -> tuple[int, ...]:
        """Several numbers, given as struct letters."""
        found = struct.unpack_from(">" + layout, self._data, self._position)
        self._position += struct.calcsize(">" + layout)
        return found

    def number(self, letter: str) -> int:
        """One number."""
        return self.take(letter)[0]

    def text(self) -> str | None:
        """A string with int16 length."""
        size = self.number("h")
        if size < 0:
            return None
        self._position += size
        return self._data[self._position - size : self._position].decode()

    def blob(self) -> bytes:
        """Bytes with int32 length."""
        size = self.number("i")
        self._position += size
        return self._data[self._position - size : self._position]

    def array(self, read: Callable[[], T]) -> list[T]:
        """As many items as the int32 count says."""
        return [read() for _ in range(self.number("i"))]

    @property
    def is_at_end(self) -> bool:
        """All bytes were taken."""
        return self._position == len(self._data)


class RawConnection:
    """One blocking connection; every wait on the server ends after ``timeout_s``."""

    def __init__(self, address: Address, timeout_s: float = 60.0) -> None:
        self._socket = socket.create_connection(address, timeout=timeout_s)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close at once."""
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Any bytes at all; raises Closed when the server does not take them."""
        try:
            self._socket.sendall(data)
        except (ConnectionError, BrokenPipeError) as failure:
            raise Closed from failure

    def call(self, key: int, version: int, body: bytes) -> Reader:
        """Send a request of a version that is not flexible, and return the answer's body."""
        self._correlation_id += 1
        self.send(request_frame(key, version, body, self._correlation_id))
        answer = self.receive()
        assert struct.unpack_from(">i", answer)[0] == self._correlation_id
        return Reader(answer[4:])

    def receive(self) -> bytes:
        """The next frame, without its length; raises Closed."""
        size = struct.unpack(">i", self._exactly(4))[0]
        return self._exactly(size)

    def is_closed_by_server(self) -> bool:
        """Wait for the end of the stream; False when bytes come instead, or nothing does."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False

    def _exactly(self, count: int) -> bytes:
        received = bytearray()
        while len(received) < count:
            try:
                chunk = self._socket.recv(count - len(received))
            except ConnectionError as failure:
                raise Closed from failure
            if not chunk:
                raise Closed(f"after {len(received)} of {count} bytes")
            received += chunk
        return bytes(received)
