"""Sends answers that contain slices of files, straight from the page cache to the socket.

uvloop has no sendfile of its own. While its transport holds nothing unsent, and reads only, a
duplicate of the socket's descriptor may be written to. Source: docs/spec/log.md §6.4.

    answer | head | slice of a file | between | slice | tail | answer ...
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from barnabas.broker.storage.segment.file_slice import FileSlice, Withdrawn
from barnabas.protocol.codec.wire import Buffer

FramePiece = Buffer | FileSlice

STEP_BYTES: Final = 1 << 20
"""What one system call sends at most."""
TURN_BYTES: Final = 4 << 20
"""What one connection sends at most before others have their turn."""


class FileSender:
    """Sends on one connection, past its transport.

    ``on_complete`` is called when what could not leave at once has left, with "", or with the
    reason why it never will.
    """

    __slots__ = (
        "_done",
        "_fd",
        "_is_waiting",
        "_loop",
        "_on_complete",
        "_pieces",
        "_socket",
        "_transport",
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
        self.sent = 0
        """Bytes that have left this way so far, ever."""

    @property
    def is_busy(self) -> bool:
        """Whether something is still to be sent: then nobody else may write."""
        return bool(self._pieces)

    def send(self, pieces: Iterable[FramePiece]) -> bool:
        """Send all of it; False when some is left, and ``on_complete`` is called later.

        Where the transport has bytes of its own to send these go first: it pauses its protocol
        until they have left, and then :meth:`resume` is due.
        """
        if not self._has_socket():
            return self._send_read(pieces)
        self._add(pieces)
        if self._transport.get_write_buffer_size():
            self._transport.set_write_buffer_limits(high=0)
            return False
        return self.resume()

    def resume(self) -> bool:
        """Send what the socket takes; False when some is left, or nothing more will be sent."""
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
        """Whether this is a real connection, which simulated ones are not."""
        if self._socket is None and (given := self._transport.get_extra_info("socket")):
            self._fd = os.dup(given.fileno())
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
        """As :meth:`send`, for a transport without a socket."""
        try:
            self._transport.writelines(
                [piece.read() if isinstance(piece, FileSlice) else piece for piece in pieces]
            )
        except Withdrawn as problem:
            self._give_up(problem)
            return False
        return True

    def _writable(self) -> None:
        if self.resume():
            self._on_complete("")

    def _give_up(self, problem: Exception) -> None:
        self.close()
        self._on_complete(str(problem))

    def _stop_waiting(self) -> None:
        if self._is_waiting:
            self._is_waiting = False
            self._loop.remove_writer(self._fd)

    def close(self) -> None:
        """The connection is gone, or as good as gone: forget everything, and tell nobody."""
        self._stop_waiting()
        self._pieces.clear()
        if self._socket is not None:
            self._socket.close()
