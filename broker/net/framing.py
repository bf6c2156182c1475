"""Cuts a stream of bytes into Kafka's length-prefixed frames.

Source: docs/spec/protocol.md §2.1. ``| int32 size | size bytes |``; a frame keeps its length here,
so that a large one which arrives alone is not copied again.
"""

from __future__ import annotations

from struct import Struct

from barnabas.protocol.codec.wire import Buffer
from barnabas.protocol.errors import CorruptRequest

LENGTH_BYTES = 4
ALONE_BYTES_MAX = (128 << 10) - LENGTH_BYTES - 1
FRAME_BYTES_MIN = 8
"""The smallest request header: key, version, correlation id."""

_LENGTH = Struct(">i").unpack_from
_KEY = Struct(">h").unpack_from
KEY_BYTES = 2
_HELLOS = {b"GET ": "HTTP", b"POST": "HTTP", b"HEAD": "HTTP", b"PUT ": "HTTP", b"\x16\x03": "TLS"}


class Framing:
    """What has arrived on one connection and is not served yet.

    Claimed lengths cost nothing: only bytes that are really there are held.
    """

    __slots__ = (
        "_needed",
        "_position",
        "alone_max",
        "bytes_max",
        "bytes_min",
        "data",
        "growth",
        "partial",
    )

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        """A longer frame is refused as soon as its length is read."""
        self.bytes_min = FRAME_BYTES_MIN
        self.alone_max = min(bytes_max, ALONE_BYTES_MAX)
        self.growth = 0
        """Bytes by which unfinished frames have grown so far."""
        self.data = b""
        """What came last; empty when every frame of it was handed out."""
        self.partial = bytearray()
        """The beginning of a frame; then there is no ``data``."""
        self._position = 0
        self._needed = 0

    def allow(self, bytes_max: int) -> None:
        """Take frames of requests, as long as this, from the next one on."""
        self.bytes_max = bytes_max
        self.bytes_min = FRAME_BYTES_MIN
        self.alone_max = min(bytes_max, ALONE_BYTES_MAX)

    @property
    def held(self) -> int:
        """Bytes of memory for what was fed and not handed out: more than came, while it grows."""
        grown = self.partial.__alloc__() if self.partial else 0
        return grown + len(self.data) - self._position

    @property
    def missing(self) -> int:
        """Bytes that have to come before the unfinished frame is whole; 0 without one."""
        return self._needed - len(self.partial) if self.partial else 0

    def is_alone(self, data: bytes) -> bool:
        """Whether ``data``, just arrived, is one whole frame, and nothing came before it.

        Not said of large frames.
        """
        size = len(data) - LENGTH_BYTES
        return (
            self.bytes_min <= size <= self.alone_max
            and _LENGTH(data)[0] == size
            and not self.data
            and not self.partial
        )

    def feed(self, data: bytes) -> None:
        """Add what arrived."""
        if self.partial:
            self.growth += len(data)
            self.partial += data
            if len(self.partial) < self._needed:
                return
            data = bytes(self.partial)
            self.partial = bytearray()
        elif self.data:
            data = self.data[self._position :] + data
        self.data = data
        self._position = 0

    def next(self) -> bytes | None:
        """The next whole frame, length included; None when more has to arrive.

        Raises CorruptRequest for a length that no frame of ours can have.
        """
        data, position = self.data, self._position
        if not data:
            return None
        left = len(data) - position
        needed = LENGTH_BYTES
        if left >= LENGTH_BYTES:
            size: int = _LENGTH(data, position)[0]
            if not self.bytes_min <= size <= self.bytes_max:
                raise CorruptRequest(length_problem(size, data[position : position + 4]))
            needed += size
            if needed <= left:
                self._position = stop = position + needed
                if stop < len(data):
                    return data[position:stop]
                self.data, self._position = b"", 0
                return data if position == 0 else data[position:]
        if left:
            self.partial += memoryview(data)[position:]
            self._needed = needed
            self.data, self._position = b"", 0
        return None

    def next_key(self) -> int:
        """The API key of the next request; -1 while it is not here."""
        start = self._position + LENGTH_BYTES
        key: int = _KEY(self.data, start)[0] if len(self.data) >= start + KEY_BYTES else -1
        return key

    def put_back(self, frame: Buffer) -> None:
        """The next frame is once more the one that came last, unchanged."""
        assert not self.partial, "what came last was whole"
        if self.data:
            self._position -= len(frame)
        else:
            self.data = bytes(frame)

    def clear(self) -> None:
        """Forget everything: the connection is gone."""
        self.data, self._position, self.partial = b"", 0, bytearray()


def length_problem(size: int, start: bytes) -> str:
    """What to call a length that no frame of ours can have; ``start`` are its four bytes."""
    for hello, protocol in _HELLOS.items():
        if start.startswith(hello):
            return f"{protocol} sent to a plaintext Kafka port"
    return f"a frame of {size} bytes"
