"""Cuts a stream of bytes into Kafka's length-prefixed frames.

Source: protocol.md section 2.1. ``| int32 size | size bytes |``; a frame keeps its length here,
so that a large one which arrives alone is not copied again.
"""

from __future__ import annotations

from struct import Struct

from barnabas.protocol.errors import CorruptRequest

LENGTH_BYTES = 4
FRAME_BYTES_MIN = 8
"""The smallest request header: key, version, correlation id."""

_LENGTH = Struct(">i")
_HELLOS = {b"GET ": "HTTP", b"POST": "HTTP", b"HEAD": "HTTP", b"PUT ": "HTTP", b"\x16\x03": "TLS"}


class Framing:
    """What has arrived on one connection and is not served yet.

    Claimed lengths cost nothing: only bytes that are really there are held.
    """

    __slots__ = ("_data", "_needed", "_partial", "_position", "bytes_max", "bytes_min", "growth")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        """A longer frame is refused as soon as its length is read."""
        self.bytes_min = FRAME_BYTES_MIN
        self.growth = 0
        """Bytes by which unfinished frames have grown so far."""
        self._data = b""
        self._position = 0
        self._partial = bytearray()
        self._needed = 0

    @property
    def held(self) -> int:
        """Bytes that were fed and not handed out."""
        return len(self._partial) + len(self._data) - self._position

    def feed(self, data: bytes) -> None:
        """Add what arrived."""
        if self._partial:
            self.growth += len(data)
            self._partial += data
            if len(self._partial) < self._needed:
                return
            data = bytes(self._partial)
            self._partial = bytearray()
        elif self._data:
            data = self._data[self._position :] + data
        self._data = data
        self._position = 0

    def next(self) -> bytes | None:
        """The next whole frame, length included; None when more has to arrive.

        Raises CorruptRequest for a length that no frame of ours can have.
        """
        data, position = self._data, self._position
        left = len(data) - position
        needed = LENGTH_BYTES
        if left >= LENGTH_BYTES:
            size: int = _LENGTH.unpack_from(data, position)[0]
            if not self.bytes_min <= size <= self.bytes_max:
                raise CorruptRequest(_length_problem(size, data[position : position + 4]))
            needed += size
            if needed <= left:
                self._position = stop = position + needed
                if stop < len(data):
                    return data[position:stop]
                self._data, self._position = b"", 0
                return data if position == 0 else data[position:]
        if left:
            self._partial += memoryview(data)[position:]
            self._needed = needed
            self._data, self._position = b"", 0
        return None

    def clear(self) -> None:
        """Forget everything: the connection is gone."""
        self._data, self._position, self._partial = b"", 0, bytearray()


def _length_problem(size: int, start: bytes) -> str:
    for hello, protocol in _HELLOS.items():
        if start.startswith(hello):
            return f"{protocol} sent to a plaintext Kafka port"
    return f"a frame of {size} bytes"
