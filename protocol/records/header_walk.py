"""The quick walk through the headers of a segment: what is where, and nothing verified.

Payloads are jumped over, checksums and offsets are not looked at; only a size or magic that no
entry has ends the walk early. Recovery must not use it (walk.py), a tool or a pipeline that
looks for a position may. Source: docs/spec/log.md §1.1 to §1.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from .batch import SIZES_MIN
from .header import CODEC_MASK, ENVELOPE_BYTES, HEADER, HEADER_BYTES, MAGIC_AT, Header
from .walk import Read, Source, Stop, reader

_CHUNK_BYTES: Final = 1 << 14
_SIZES_MIN: Final = dict(enumerate(SIZES_MIN))
_IMPOSSIBLE: Final = 1 << 31
_MESSAGE: Final = Struct(">qiIBb")
_INT64: Final = Struct(">q")


class HeaderWalk:
    """One pass over the headers; ``valid_bytes``, ``stop`` and ``reason`` as Walk has them."""

    def __init__(self, source: Source, *, end: int | None = None, start: int = 0) -> None:
        """``source`` is read up to ``end``, the file's size; a function must be told it.

        Of a file that became shorter meanwhile the last payload may be missing: it is not read.
        """
        self.valid_bytes = start
        self.stop: Stop | None = None
        self.reason = ""
        self._source = source
        self._read, self._end = reader(source, end)

    def __iter__(self) -> Iterator[tuple[int, Header]]:
        """Yield position and header of each whole entry, of any magic.

        A message of magic 0 or 1 has its one offset (a wrapper the last inside), its timestamp
        as the greatest, and -1 for all that its format does not know.
        """
        if callable(self._source):
            return self._through(self._read)
        return self._over(self._source)

    def _over(self, data: Source) -> Iterator[tuple[int, Header]]:
        """Straight over bytes that are there: one unpacking an entry."""
        assert not callable(data)
        unpack, make, end = HEADER.unpack_from, tuple.__new__, self._end
        position, last = self.valid_bytes, self._end - HEADER_BYTES
        least = SIZES_MIN[2]
        while position <= last:
            fields = unpack(data, position)
            after = position + fields[1] + ENVELOPE_BYTES
            if fields[3] != 2 or fields[1] < least or after > end:
                break
            self.valid_bytes = after
            yield position, make(Header, fields)
            position = after
        yield from self._through(self._read)

    def _through(self, read: Read) -> Iterator[tuple[int, Header]]:
        """The general way, a chunk at a time: any magic, any end."""
        chunk, chunk_at = b"", 0
        while self.stop is None:
            position = self.valid_bytes
            wanted = min(HEADER_BYTES, self._end - position)
            at = position - chunk_at
            if at + wanted > len(chunk):
                chunk_at, at = position, 0
                chunk = bytes(read(position, min(_CHUNK_BYTES, self._end - position)))
            if len(chunk) - at <= MAGIC_AT or len(chunk) - at < wanted:
                self.stop = Stop.END if position >= self._end else Stop.PARTIAL
                self.reason = self.stop.value
                return
            header = _header(chunk, at)
            size = header.length + ENVELOPE_BYTES
            if header.length < _SIZES_MIN.get(header.magic, _IMPOSSIBLE):
                self.stop, self.reason = Stop.CORRUPT, f"size {size}, magic {header.magic}"
            elif position + size > self._end:
                self.stop = Stop.PARTIAL
                self.reason = f"{self._end - position} of {size} bytes"
            else:
                self.valid_bytes = position + size
                yield position, header


def _header(data: bytes, at: int) -> Header:
    """What stands at ``at``, where 17 bytes are at least; the rest counts as zeros."""
    if data[at + MAGIC_AT] == 2:
        front = data[at : at + HEADER_BYTES].ljust(HEADER_BYTES, b"\0")
        return Header._make(HEADER.unpack(front))
    front = data[at : at + 26].ljust(26, b"\0")
    offset, length, crc, magic, attributes = _MESSAGE.unpack_from(front)
    stamp = _INT64.unpack_from(front, 18)[0] if magic == 1 else -1
    is_wrapper = attributes & CODEC_MASK
    count = -1 if is_wrapper else 1
    return Header(offset, length, -1, magic, crc, attributes, 0, stamp, stamp, -1, -1, -1, count)
