"""Cuts large frames out of a buffer that the kernel wrote them into: no byte of them is copied.

Stands in for Framing while a peer sends large requests. The buffers belong to the node and are
lent: a connection holds one only while a frame in it is unfinished or waits to be served.

    | served | whole frames | the beginning of one | room for the kernel |
             start                                 end          BUFFER_BYTES

Source: docs/spec/protocol.md §4.1 (BufferedProtocol where the announced frame is large).
"""

from __future__ import annotations

import asyncio
from struct import Struct
from typing import TYPE_CHECKING, Final

from barnabas.protocol.api import ApiKey
from barnabas.protocol.codec.wire import Buffer
from barnabas.protocol.errors import CorruptRequest

from .framing import FRAME_BYTES_MIN, KEY_BYTES, LENGTH_BYTES, Framing, length_problem
from .receiver import Receiver

if TYPE_CHECKING:
    from .connection import Connection
    from .limits import Limits

BUFFER_BYTES: Final = 1 << 20 | 1 << 18
"""Room for a request of a megabyte, as producers send them at most, and the start of the next."""
BULK_BYTES_MIN: Final = 128 << 10
"""A shorter frame is not worth the switch."""
SMALL_BYTES_MAX: Final = 16 << 10
"""A peer whose last frame was shorter has gone back to small ones."""
SPARE_BUFFERS_MAX: Final = 4

_LENGTH: Final = Struct(">i").unpack_from
_LENGTH_AND_KEY: Final = Struct(">ih").unpack_from


class ReceiveBuffers:
    """The node's large buffers: few are in use at once, for requests are served as they come."""

    def __init__(self) -> None:
        self._spare: list[memoryview] = []

    def peek(self) -> memoryview:
        """A buffer to receive into, for now; it stays here."""
        if not self._spare:
            self._spare.append(memoryview(bytearray(BUFFER_BYTES)))
        return self._spare[-1]

    def take(self) -> memoryview:
        """The buffer that :meth:`peek` shows, for the caller alone until it is given back."""
        self.peek()
        return self._spare.pop()

    def give(self, buffer: memoryview) -> None:
        """Take a buffer back."""
        if len(self._spare) < SPARE_BUFFERS_MAX:
            self._spare.append(buffer)


class BulkFraming:
    """What has arrived in large frames and is not served yet; as :class:`Framing`."""

    __slots__ = (
        "_buffer",
        "_buffers",
        "_end",
        "_start",
        "bytes_max",
        "bytes_min",
        "growth",
        "is_done",
        "partial",
    )

    def __init__(self, buffers: ReceiveBuffers, bytes_max: int, growth: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_min = FRAME_BYTES_MIN
        self.growth = growth
        """Bytes by which unfinished frames have grown so far."""
        self.partial = False
        """What is here is the beginning of a frame, and nothing else."""
        self.is_done = False
        """The peer has gone over to small frames, or to one that has no room here."""
        self._buffers = buffers
        self._buffer: memoryview | None = None
        self._start = self._end = 0

    @property
    def held(self) -> int:
        """Bytes of memory that this peer keeps from others."""
        return 0 if self._buffer is None else BUFFER_BYTES

    @property
    def data(self) -> bool:
        """Whether there may be a whole frame."""
        return self._end > self._start and not self.partial

    @property
    def missing(self) -> int:
        """Nothing that another way of receiving would be better at."""
        return 0

    def room(self) -> memoryview:
        """Where the kernel may write; never empty."""
        buffer = self._buffers.peek() if self._buffer is None else self._buffer
        return buffer[self._end :]

    def is_alone(self, data: bytes) -> bool:
        """Nothing is fed here but by whoever went before."""
        return False

    def feed(self, data: bytes | bytearray) -> None:
        """Begin with what another framing had received."""
        assert self._end == 0
        self.room()[: len(data)] = data
        self.received(len(data))

    def received(self, count: int) -> None:
        """The kernel has written so much."""
        if self._buffer is None:
            self._buffer = self._buffers.take()
        if self.partial:
            self.growth += count
            self.partial = False
        self._end += count

    def next(self) -> bytes | memoryview | None:
        """The next whole frame, length included; None when more has to arrive.

        A produce request is a view, valid until the next call; it may be written into.
        Raises CorruptRequest for a length that no frame of ours can have.
        """
        buffer, start = self._buffer, self._start
        if buffer is None:
            return None
        left = self._end - start
        needed = LENGTH_BYTES
        if left >= LENGTH_BYTES:
            size: int = _LENGTH(buffer, start)[0]
            if not self.bytes_min <= size <= self.bytes_max:
                raise CorruptRequest(length_problem(size, bytes(buffer[start : start + 4])))
            needed += size
            if needed <= left:
                self._start = stop = start + needed
                self.is_done = needed < SMALL_BYTES_MAX and stop == self._end
                frame = buffer[start:stop]
                is_produce = needed > 6 and _LENGTH_AND_KEY(frame)[1] == ApiKey.PRODUCE
                return frame if is_produce else bytes(frame)
        self._keep(buffer, left, needed)
        return None

    def next_key(self) -> int:
        """The API key of the next request; -1 while it is not here."""
        if self._buffer is None or self._end < self._start + LENGTH_BYTES + KEY_BYTES:
            return -1
        key: int = _LENGTH_AND_KEY(self._buffer, self._start)[1]
        return key

    def put_back(self, frame: Buffer) -> None:
        """The next frame is once more the one that came last, unchanged."""
        self._start -= len(frame)
        self.is_done = False

    def _keep(self, buffer: memoryview, left: int, needed: int) -> None:
        """Hold on to the beginning of a frame; without one the buffer is free."""
        if not left:
            self.clear()
            return
        self.partial = True
        self.is_done = needed > BUFFER_BYTES
        if self._start + needed > BUFFER_BYTES:
            buffer[:left] = buffer[self._start : self._end]
            self._start, self._end = 0, left

    def plain(self) -> Framing:
        """An empty framing of the ordinary kind that counts on where this one is."""
        framing = Framing(self.bytes_max)
        framing.growth = self.growth
        return framing

    def taken(self) -> bytes:
        """All that is left, for another framing to go on with."""
        assert self._buffer is not None or self._end == 0
        left = bytes(self._buffer[self._start : self._end]) if self._buffer is not None else b""
        self.clear()
        return left

    def clear(self) -> None:
        """Give the buffer back."""
        if self._buffer is not None:
            self._buffers.give(self._buffer)
            self._buffer = None
        self._start = self._end = 0
        self.partial = False


def receive_in_bulk(
    connection: Connection,
    transport: asyncio.Transport,
    framing: Framing | BulkFraming,
    limits: Limits,
) -> None:
    """Let the kernel write the rest of a large frame, and what follows, where it is read.

    Unless the frame is too large for that, memory is scarce or there is no kernel.
    """
    if isinstance(framing, BulkFraming):
        return
    requests = limits.requests
    is_scarce = requests.used + BUFFER_BYTES > requests.bytes_max // 2
    needed = len(framing.partial) + framing.missing
    if needed > BUFFER_BYTES or is_scarce or transport.get_extra_info("socket") is None:
        return
    bulk = BulkFraming(limits.buffers, framing.bytes_max, framing.growth)
    if framing.partial:
        bulk.feed(framing.partial)
    connection.receive_by(BulkReceiver(connection, bulk), bulk)


class BulkReceiver(Receiver):
    """Stands between the transport and its connection while large frames come in."""

    def __init__(self, connection: Connection, framing: BulkFraming) -> None:
        super().__init__(connection)
        self._framing = framing

    def get_buffer(self, sizehint: int) -> memoryview:
        """All the room there is."""
        return self._framing.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Serve what became whole; go back to small frames when the peer has done so."""
        bulk = self._framing
        bulk.received(nbytes)
        self._connection.serve_received()
        if bulk.is_done:
            framing = bulk.plain()
            framing.feed(bulk.taken())
            self._connection.receive_by(self._connection, framing)
        self._connection.read_less()
