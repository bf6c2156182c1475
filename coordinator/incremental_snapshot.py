"""The bytes of an increment: the newest record of each key between two offsets of a log.

::

    magic 8 | format int16 | leader epoch int32 | log start int64 | offset int64 | base int64
    | CRC-32C of the base's body uint32 | body length int64 | CRC-32C of the body uint32
    | CRC-32C of all of this uint32
    body     frame ...
    frame    length uint32 of what follows | count uint32 | prefix bytes uint32
             | key bytes uint32 | value bytes int32, -1 for tombstones
             | prefix | record offset int64 ... | keys without the prefix | values

The base is the offset of a whole snapshot (snapshot.py), or the log start where there is none; its
CRC is 0 then. Keys and values are those of the log. The records of a frame are of one shape, so
that one call reads all of its keys, and one its values. Nearly all are offsets without metadata:
those have frames for each group and topic, whose prefix is the key up to the partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from struct import Struct, pack, unpack_from
from struct import error as struct_error
from typing import Final

from crc32c import crc32c

from barnabas.protocol.records.corrupt_records import CorruptRecords
from barnabas.protocol.records.latest_by_key import Latest

from .replay import OLD_KEY, PARTITION_BYTES, PLAIN_BYTES, Replay, is_offset_key, is_plain
from .snapshot import Body

MAGIC: Final = b"OFFSINC\x00"
FORMAT: Final = 1
_HEADER: Final = Struct(">8shiqqqIqI")
_CHECKSUM: Final = Struct(">I")
HEADER_BYTES: Final = _HEADER.size + _CHECKSUM.size
_SHAPE: Final = Struct(">IIIi")
_TOMBSTONE: Final = -1
FRAME_RECORDS_MAX: Final = 1024
_FRAME_BYTES: Final = 1 << 20
"""Above it a frame takes no further record: then none takes long."""
_PREFIX_BYTES_MAX: Final = 1 << 17
"""Two strings of 32 KiB each and what is around them are less."""


class OldKey(Exception):  # noqa: N818 - what it is, not an error
    """An offset may stand under a key of version 0 and one of version 1: their order counts."""


@dataclass(frozen=True, slots=True)
class IncrementHeader:
    """Between which offsets, of which history, and what the body must be."""

    leader_epoch: int
    """Of the record before ``offset``."""
    log_start: int
    offset: int
    """Every record from ``base`` up to it counts, none at it or above."""
    base: int
    base_crc: int
    """Of the body of the whole snapshot at ``base``; 0 without one."""
    body_bytes: int = 0
    body_crc: int = 0

    def to_bytes(self) -> bytes:
        """As it stands before the body."""
        fields = _HEADER.pack(
            MAGIC,
            FORMAT,
            self.leader_epoch,
            self.log_start,
            self.offset,
            self.base,
            self.base_crc,
            self.body_bytes,
            self.body_crc,
        )
        return fields + _CHECKSUM.pack(crc32c(fields))

    @classmethod
    def parse(cls, data: bytes) -> IncrementHeader:
        """Raises CorruptRecords for anything that is no whole header of this format."""
        if len(data) < HEADER_BYTES:
            raise CorruptRecords(f"an increment's header of {len(data)} bytes")
        magic, version, *fields = _HEADER.unpack_from(data)
        (crc,) = _CHECKSUM.unpack_from(data, _HEADER.size)
        if magic != MAGIC or version != FORMAT or crc != crc32c(data[: _HEADER.size]):
            raise CorruptRecords("not an increment of this format")
        return cls(*fields)


def sealed(header: IncrementHeader, frames: Sequence[bytes]) -> bytes:
    """The whole file; what ``header`` says of the body is not looked at. Takes long."""
    body = b"".join(frames)
    return replace(header, body_bytes=len(body), body_crc=crc32c(body)).to_bytes() + body


# -- writing -----------------------------------------------------------------------------------


class _Frame:
    """Records of one shape that come together."""

    __slots__ = ("keys", "offsets", "prefix", "values")

    def __init__(self, prefix: bytes) -> None:
        self.prefix = prefix
        self.keys: list[bytes] = []
        self.offsets: list[int] = []
        self.values: list[bytes | None] = []

    def to_bytes(self) -> bytes:
        count, value = len(self.offsets), self.values[0]
        value_bytes = _TOMBSTONE if value is None else len(value)
        start = _SHAPE.pack(count, len(self.prefix), len(self.keys[0]), value_bytes)
        values = filter(None, self.values)
        offsets = pack(f">{count}q", *self.offsets)
        content = b"".join((start, self.prefix, offsets, *self.keys, *values))
        return pack(">I", len(content)) + content


def frames_of(latest: Latest) -> Iterator[bytes]:
    """The body, frame by frame, an empty one where nothing is to be said yet.

    ``latest`` must not change meanwhile. Raises OldKey, and CorruptRecords for a record without a
    key: nobody may serve a log that has one.
    """
    frames: dict[bytes | tuple[int, int], _Frame] = {}
    are_commits: dict[bytes, bool] = {}
    for number, (key, (offset, value)) in enumerate(latest.items(), 1):
        if not key:
            raise CorruptRecords(f"a record without a key at offset {offset}")
        prefix = key[:-PARTITION_BYTES]
        is_commit = are_commits.get(prefix)
        if is_commit is None:
            if key[:2] == OLD_KEY:
                raise OldKey
            is_commit = are_commits[prefix] = is_offset_key(key)
        shape: bytes | tuple[int, int] = prefix
        if is_commit and value is not None and is_plain(value):
            key = key[-PARTITION_BYTES:]
        else:
            prefix, shape = b"", (len(key), _TOMBSTONE if value is None else len(value))
        frame = frames.get(shape)
        if frame is None:
            frame = frames[shape] = _Frame(prefix)
        frame.keys.append(key)
        frame.offsets.append(offset)
        frame.values.append(value)
        count = len(frame.offsets)
        if count == FRAME_RECORDS_MAX or count * (len(key) + len(value or b"")) > _FRAME_BYTES:
            del frames[shape]
            yield frame.to_bytes()
        elif not number % FRAME_RECORDS_MAX:
            yield b""
    for frame in frames.values():
        yield frame.to_bytes()


# -- reading -----------------------------------------------------------------------------------


class _Content:
    """What a frame says; raises CorruptRecords when it is none."""

    __slots__ = ("key_bytes", "keys", "offsets", "prefix", "value_bytes", "values")

    def __init__(self, frame: bytes) -> None:
        try:
            count, prefix_bytes, self.key_bytes, self.value_bytes = _SHAPE.unpack_from(frame)
            offsets_at = _SHAPE.size + prefix_bytes
            keys_at = offsets_at + 8 * count
            values_at = keys_at + count * self.key_bytes
            stop = values_at + count * max(self.value_bytes, 0)
            if not self.key_bytes or self.value_bytes < _TOMBSTONE or stop != len(frame):
                raise CorruptRecords(f"a frame of {len(frame)} bytes is of another shape")
            is_small = count <= FRAME_RECORDS_MAX and prefix_bytes <= _PREFIX_BYTES_MAX
            is_of_commits = (self.key_bytes, self.value_bytes) == (PARTITION_BYTES, PLAIN_BYTES)
            if prefix_bytes and not (is_small and is_of_commits):
                raise CorruptRecords("a frame of offsets is of another shape")  # or would grow
            self.prefix = frame[_SHAPE.size : offsets_at]
            self.offsets: tuple[int, ...] = unpack_from(f">{count}q", frame, offsets_at)
            self.keys = frame[keys_at:values_at]
            self.values = frame[values_at:]
        except struct_error as error:
            raise CorruptRecords(f"a frame of an increment: {error}") from error

    def records(self) -> Iterator[tuple[bytes, tuple[int, bytes | None]]]:
        """As a log has them."""
        keys = _cut(self.keys, self.key_bytes)
        if self.prefix:
            keys = [self.prefix + key for key in keys]
        values: Sequence[bytes | None]
        if self.value_bytes > 0:
            values = _cut(self.values, self.value_bytes)
        else:
            values = [None if self.value_bytes == _TOMBSTONE else b""] * len(keys)
        return zip(keys, zip(self.offsets, values, strict=True), strict=True)


def _cut(data: bytes, size: int) -> list[bytes]:
    return [piece for (piece,) in Struct(f"{size}s").iter_unpack(data)]


class Gathering(Body):
    """The body as it is read, to be gone on with: the newest record of each key."""

    def __init__(self) -> None:
        super().__init__()
        self.latest: Latest = {}

    def take(self, frame: bytes) -> None:
        """The records of one frame."""
        self.latest.update(_Content(frame).records())


class Applying(Body):
    """The body as it is read, put into ``replay``.

    Only for a body whose checksum was found to be right: nothing is taken back.
    """

    def __init__(self, replay: Replay) -> None:
        super().__init__()
        self.replay = replay
        self.is_touched = False
        """Whether something was put in."""

    def take(self, frame: bytes) -> None:
        """The records of one frame; no other frame has one of the same key."""
        content = _Content(frame)
        self.is_touched = True
        if content.prefix:
            self.replay.put_commits(content.prefix, content.offsets, content.keys, content.values)
        else:
            self.replay.defer(content.records())
