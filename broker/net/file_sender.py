"""Sends answers that contain slices of files, straight from the page cache to the socket.

uvloop has no sendfile of its own. While its transport holds nothing unsent, and reads only, a
duplicate of the socket's descriptor may be written to. Source: docs/spec/log.md §6.4.

Not so over TLS: what is written to the socket would leave in clear, beside the session. There
slices are read piece by piece and written to the transport, as fast as it takes them
(docs/spec/security.md §1, S15).

    answer | head | slice of a file | between | slice | tail | answer ...
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from barnabas.broker.storage.segment.file_slice import FileSlice, Withdrawn
from barnabas.protocol.codec.wire import Buffer

from .gathered_write import write_pieces

log = logging.getLogger(__name__)

FramePiece = Buffer | FileSlice

STEP_BYTES: Final = 1 << 20
"""What one system call sends at most."""
TURN_BYTES: Final = 4 << 20
"""What one connection sends at most before others have their turn."""
ENCRYPTED_STEP_BYTES: Final = 256 << 10
"""What is read and encrypted at once."""
ENCRYPTED_TURN_BYTES: Final = 1 << 20
"""As TURN_BYTES, over TLS: a millisecond's work."""


def _tell_nobody(_: str) -> None:
    """Of a sender that is closed."""


class FileSender:
    """Sends on one connection, past its transport.

    ``on_complete`` is called when what could not leave at once has left, with "", or with the
    reason why it never will.
    """

    __slots__ = (
        "_done",
        "_fd",
        "_is_waiting",
        "_later",
        "_loop",
        "_on_complete",
        "_pieces",
        "_socket",
        "_transport",
        "is_paused",
        "sent",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.Transport,
        on_complete: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._on_complete = on_complete
        self._socket: socket.socket | None = None
        self._fd = -1
        self._pieces: deque[FramePiece] = deque()
        self._done = 0
        self._is_waiting = False
        self._later: asyncio.Handle | None = None
        self.is_paused = False
        """The transport takes nothing for now; whoever is its protocol says so."""
        self.sent = 0
        """Bytes that have left this way so far, ever."""

    @property
    def is_busy(self) -> bool:
        """Whether something is still to be sent: then nobody else may write."""
        return bool(self._pieces)

    @property
    def keeps_open(self) -> bool:
        """Whether the transport must not close: what leaves past it is unknown to it."""
        return self.is_busy and self._fd >= 0

    def send(self, pieces: Iterable[FramePiece]) -> bool:
        """Send all of it; False when some is left, and ``on_complete`` is called later.

        Where the transport has bytes of its own to send these go first: it pauses its protocol
        until they have left, and then :meth:`resume` is due.
        """
        if self._fd < 0 and not self._has_socket():
            return self._send_read(pieces)
        self._add(pieces)
        if self._transport.get_write_buffer_size():
            self._transport.set_write_buffer_limits(high=0)
            return False
        return self.resume()

    def resume(self) -> bool:
        """Send what the socket takes; False when some is left, or nothing more will be sent."""
        if self._fd < 0:
            return self._encrypt_some()
        try:
            is_over = self._send_some()
        except BlockingIOError:
            is_over = False
        except (OSError, Withdrawn) as problem:
            self._give_up(problem)
            return False
        if is_over:
            self._stop_waiting()
        elif not self._is_waiting:
            self._is_waiting = True
            self._loop.add_writer(self._fd, self._writable)
        return is_over

    def _has_socket(self) -> bool:
        """Whether this is a real connection in clear, which simulated ones are not."""
        if self._is_encrypted():
            return False
        if self._socket is None and (given := self._transport.get_extra_info("socket")):
            try:
                self._fd = os.dup(given.fileno())
            except OSError as problem:  # no descriptor is left: it goes through the transport
                log.debug("slices are read, not sent from their files: %s", problem.strerror)
                return False
            self._socket = socket.socket(fileno=self._fd)
            self._socket.setblocking(False)
        return self._socket is not None

    def _add(self, pieces: Iterable[FramePiece]) -> None:
        heads: list[Buffer] = []
        for piece in pieces:
            if isinstance(piece, FileSlice):
                self._pieces.append(b"".join(heads))
                self._pieces.append(piece)
                heads = []
            else:
                heads.append(piece)
        if heads:
            self._pieces.append(b"".join(heads))

    def _send_some(self) -> bool:
        """True when everything has left; False when others should have their turn."""
        assert self._socket is not None
        pieces, until = self._pieces, self.sent + TURN_BYTES
        while pieces and self.sent < until:
            piece, done = pieces[0], self._done
            if isinstance(piece, FileSlice):
                count = piece.send(self._fd, done, STEP_BYTES)
            else:
                more = socket.MSG_MORE if len(pieces) > 1 else 0
                count = self._socket.send(memoryview(piece)[done:], more)
            self.sent += count
            self._done = done + count
            if self._done >= len(piece):
                pieces.popleft()
                self._done = 0
        return not pieces

    def _send_read(self, pieces: Iterable[FramePiece]) -> bool:
        """As :meth:`send`, for a transport that must not be gone past, or has no socket."""
        if self._is_encrypted():
            self._add(pieces)
            return self._encrypt_some()
        try:
            write_pieces(
                self._transport,
                [piece.read() if isinstance(piece, FileSlice) else piece for piece in pieces],
            )
        except Withdrawn as problem:
            self._give_up(problem)
            return False
        return True

    def _is_encrypted(self) -> bool:
        return self._transport.get_extra_info("ssl_object") is not None

    def _encrypt_some(self) -> bool:
        """True when the transport has taken everything; it tells its protocol to pause."""
        self._stop_waiting()
        pieces, until = self._pieces, self.sent + ENCRYPTED_TURN_BYTES
        try:
            while pieces and not (self.is_paused or self._transport.is_closing()):
                if self.sent >= until:
                    self._later = self._loop.call_soon(self._writable)
                    break
                piece, done = pieces[0], self._done
                if isinstance(piece, FileSlice):
                    data: Buffer = piece.read(done, ENCRYPTED_STEP_BYTES)
                else:
                    data = piece
                self._done += len(data)
                self.sent += len(data)
                if self._done >= len(piece):
                    pieces.popleft()
                    self._done = 0
                self._transport.write(data)
        except Withdrawn as problem:
            self._give_up(problem)
            return False
        return not pieces

    def _writable(self) -> None:
        if self.resume():
            self._on_complete("")

    def _give_up(self, problem: Exception) -> None:
        told = self._on_complete
        self.close()
        told(str(problem))

    def _stop_waiting(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
        if self._is_waiting:
            self._is_waiting = False
            self._loop.remove_writer(self._fd)

    def close(self) -> None:
        """The connection is gone, or as good as gone: forget everything, and tell nobody."""
        self._stop_waiting()
        self._on_complete = _tell_nobody
        self._pieces.clear()
        if self._socket is not None:
            self._socket.close()
