"""The verified walk through the bytes of a segment, for recovery and for tools.

It goes from entry to entry, checks what can be checked without decompressing, and stops at the
first that is cut, nonsense or stale; nobody needs to have opened a log. Whoever only wants to
know what is where takes header_walk.py, which is faster and looks at no checksum.
Source: docs/spec/log.md §3.4 (a torn tail, and a block of nonsense).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from enum import Enum
from mmap import mmap
from typing import Final, NamedTuple

from crc32c import crc32c

from barnabas.protocol.records.compression.codecs import READ_BYTES_MAX, Codec

from . import batch
from .batch import HEADER, HEADER_BYTES, SIZES_MIN, Buffer
from .corrupt_records import CorruptRecords
from .header import ATTRIBUTES_AT, CODEC_MASK, CRC_AT, ENVELOPE_BYTES, MAGIC_AT
from .record import Record

OFFSETS_MAX: Final = (1 << 31) - 1
"""How far an offset may be from the base offset of its segment."""
WINDOW_BYTES: Final = 1 << 20

Read = Callable[[int, int], bytes]
"""Up to ``count`` bytes from ``position``; fewer at the end of the file only."""

Source = Buffer | mmap | Read
"""A segment: its bytes, the mapped file, or what reads it."""

_SHORTER: Final = "the file is shorter than it was"


class Stop(Enum):
    """Why a walk ended."""

    END = "the end"
    PARTIAL = "an entry is cut"
    """Data that was not written in time: truncation."""
    CORRUPT = "no entry"
    """A block that was never written, garbage, or old data."""
    OVERFLOW = "an offset does not fit"
    """A good entry too far from the segment's base: split the segment, do not cut it."""


class Entry(NamedTuple):
    """A verified entry."""

    position: int
    data: bytes
    """All of it; the functions of batch.py read it at position 0."""
    magic: int
    base_offset: int
    """For a wrapper of magic 0 or 1 the last offset: the first is inside."""
    last_offset: int
    max_timestamp: int
    leader_epoch: int
    """-1 before magic 2."""


class _Ended(Exception):  # noqa: N818 - no error, the way out of a step
    def __init__(self, stop: Stop, reason: str = "") -> None:
        super().__init__(reason)
        self.stop = stop
        self.reason = reason or stop.value


class Walk:
    """One pass over a segment; ``valid_bytes``, ``stop`` and ``reason`` are its result.

    They say where the entries yielded so far end and, once the iterator is exhausted, why there
    is not one more. Errors of ``source`` pass through and say nothing about the bytes.
    """

    def __init__(
        self,
        source: Source,
        *,
        end: int | None = None,
        start: int = 0,
        base_offset: int = 0,
        previous_offset: int | None = None,
    ) -> None:
        """``source`` is read up to ``end``, the file's size, which only a function must be told.

        ``previous_offset`` is the last offset before ``start``, None at the segment's beginning.
        """
        self.valid_bytes = start
        self.stop: Stop | None = None
        self.reason = ""
        self._base_offset = base_offset
        self._previous = base_offset - 1 if previous_offset is None else previous_offset
        self._window = source if isinstance(source, bytes) else b""
        self._window_at = 0
        self._read, self._end = reader(source, end)

    def __iter__(self) -> Iterator[Entry]:
        """Yield entries in order; the walk goes on where it was left."""
        while self.stop is None:
            try:
                entry = self._next()
            except _Ended as ended:
                self.stop, self.reason = ended.stop, ended.reason
                return
            self.valid_bytes = entry.position + len(entry.data)
            self._previous = entry.last_offset
            yield entry

    def records(
        self, from_offset: int = 0, *, bytes_max: int = READ_BYTES_MAX
    ) -> Iterator[tuple[Entry, Record]]:
        """Every record from ``from_offset`` on with the entry that holds it, markers included.

        An entry whose records cannot be read, or expand to more than ``bytes_max``, ends the
        walk as CORRUPT; ``valid_bytes`` is then where that entry begins.
        """
        for entry in self:
            if entry.last_offset < from_offset:
                continue
            try:
                for record in batch.records(entry.data, bytes_max=bytes_max):
                    if record.offset >= from_offset:
                        yield entry, record
            except CorruptRecords as bad:
                self.valid_bytes = entry.position
                self.stop, self.reason = Stop.CORRUPT, bad.message

    def _next(self) -> Entry:
        return self._at_hand() or self._slowly()

    def _at_hand(self) -> Entry | None:
        """The next entry if it is a sound batch in the window: nearly every one is."""
        position, window = self.valid_bytes, self._window
        at = position - self._window_at
        if at + HEADER_BYTES > len(window):
            return None
        fields = HEADER.unpack_from(window, at)
        base_offset, length, epoch, magic, crc, attributes, delta, _, max_timestamp = fields[:9]
        stop, last_offset = at + length + ENVELOPE_BYTES, base_offset + delta
        if (
            magic != 2
            or not at + HEADER_BYTES <= stop <= min(len(window), self._end - self._window_at)
            or delta < 0
            or not self._previous < base_offset
            or last_offset > self._base_offset + OFFSETS_MAX
            or attributes & CODEC_MASK > Codec.ZSTD
        ):
            return None
        data = window[at:stop]
        if crc32c(memoryview(data)[ATTRIBUTES_AT:]) != crc:
            return None
        return Entry(position, data, magic, base_offset, last_offset, max_timestamp, epoch)

    def _slowly(self) -> Entry:
        """The next entry of whatever kind, or why there is none."""
        position, remaining = self.valid_bytes, self._end - self.valid_bytes
        if remaining <= MAGIC_AT + 1:
            raise _Ended(Stop.PARTIAL if remaining > 0 else Stop.END)
        front = self._bytes(position, min(HEADER_BYTES, remaining))
        if len(front) < min(HEADER_BYTES, remaining):
            raise _Ended(Stop.PARTIAL, _SHORTER)
        size, magic = batch.size(front), front[MAGIC_AT]
        if magic > 2 or size < ENVELOPE_BYTES + max(SIZES_MIN[0], SIZES_MIN[magic]):
            raise _Ended(Stop.CORRUPT, f"size {size}, magic {magic}")
        if size > remaining:
            raise _Ended(Stop.PARTIAL, f"{remaining} of {size} bytes")
        problem = self._header_problem(front, magic)
        if problem:
            raise _Ended(Stop.CORRUPT, problem)
        return self._verified(position, size, magic)

    def _header_problem(self, front: bytes, magic: int) -> str:
        """What is wrong with a header that is all there; empty when nothing is."""
        if magic == 2 and batch.header(front).last_offset_delta < 0:
            return "negative last offset delta"
        if batch.codec(front) > (Codec.ZSTD if magic == 2 else Codec.LZ4):
            return f"codec {batch.codec(front)} in magic {magic}"
        # A wrapper of an older format names its last offset only.
        if batch.base_offset(front) <= self._previous:
            return f"offset {batch.base_offset(front)} after {self._previous}"
        return ""

    def _verified(self, position: int, size: int, magic: int) -> Entry:
        """The entry, once its checksum is right; a large one is not read whole before."""
        if size > WINDOW_BYTES and not self._large_crc_is_valid(position, size, magic):
            raise _Ended(Stop.CORRUPT, "checksum")
        data = self._bytes(position, size)
        if len(data) < size:
            raise _Ended(Stop.PARTIAL, _SHORTER)
        if size <= WINDOW_BYTES and not batch.crc_is_valid(data, 0, size):
            raise _Ended(Stop.CORRUPT, "checksum")
        last_offset = batch.last_offset(data)
        if last_offset - self._base_offset > OFFSETS_MAX:
            raise _Ended(Stop.OVERFLOW, f"{last_offset} after {self._base_offset}")
        return Entry(
            position,
            data,
            magic,
            batch.base_offset(data),
            last_offset,
            batch.max_timestamp(data),
            batch.leader_epoch(data),
        )

    def _large_crc_is_valid(self, position: int, size: int, magic: int) -> bool:
        """Garbage may claim to be an entry of a gigabyte; it must not cost that memory."""
        crc_at, covered_at = (CRC_AT, ATTRIBUTES_AT) if magic == 2 else (12, MAGIC_AT)
        stored = int.from_bytes(self._bytes(position + crc_at, 4), "big")
        crc = 0
        for at in range(position + covered_at, position + size, WINDOW_BYTES):
            due = min(WINDOW_BYTES, position + size - at)
            part = self._bytes(at, due)
            if len(part) < due:
                raise _Ended(Stop.PARTIAL, _SHORTER)
            crc = crc32c(part, crc) if magic == 2 else zlib.crc32(part, crc)
        return crc == stored

    def _bytes(self, position: int, count: int) -> bytes:
        """From the window if they are there, else from the source, with what comes after."""
        at = position - self._window_at
        if at < 0 or at + count > len(self._window):
            ahead = max(count, min(WINDOW_BYTES, self._end - position))
            self._window, self._window_at, at = bytes(self._read(position, ahead)), position, 0
        return self._window[at : at + count]


def reader(source: Source, end: int | None) -> tuple[Read, int]:
    """What reads ``source``, and where to stop: at ``end`` or its own end if that comes first.

    Nothing is kept of a mapped file but what was read, so it may be closed afterwards.
    """
    if callable(source):
        assert end is not None, "a file's size must be known"
        return source, end
    return (
        lambda position, count: bytes(source[position : position + count]),
        len(source) if end is None else min(end, len(source)),
    )


def walk(
    source: Source,
    *,
    end: int | None = None,
    start: int = 0,
    base_offset: int = 0,
    previous_offset: int | None = None,
) -> Walk:
    """Begin a :class:`Walk`: iterate it, then look why it stopped."""
    return Walk(
        source, end=end, start=start, base_offset=base_offset, previous_offset=previous_offset
    )
