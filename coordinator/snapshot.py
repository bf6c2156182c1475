"""The bytes of a snapshot: an offsets partition's fold at one offset of its log.

::

    magic 8 | format int16 | leader epoch int32 | log start int64 | offset int64
    | body length int64 | CRC-32C of the body uint32 | CRC-32C of all of this uint32
    body     frame ...
    frame    length uint32 of what follows | kind uint8 | group string | by kind:
    group    value version 3 of the group's record
    offsets  producer id int64, -1 for what is served | topics | columns
    old keys topics | columns up to the partition
consumer record offset int64 | type int16 | member id or expression string | value
classic  record offset int64, of the group's record where it has consumer's as well
    topics   count uint16 | string ...
    columns  count uint16 | topic index uint16 ... | partition int32 ... | leader epoch int32 ...
             | offset int64 ... | time int64 ... | expiry int64 ... | record offset int64 ...
             | metadata length uint16 ... | metadata in one piece

A string has a uint16 length. A group with many offsets has several frames, so that none takes long.
Columns, because one call then reads thousands of numbers. Source: docs/spec/coordinator.md §3.4.1.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from struct import Struct, pack, unpack_from
from struct import error as struct_error
from typing import Final, TypeVar

from crc32c import crc32c

from barnabas.protocol.consumer_group_records import RecordType
from barnabas.protocol.errors import CorruptRequest
from barnabas.protocol.offsets_topic import group_value, parse_group_value
from barnabas.protocol.records.corrupt_records import CorruptRecords

from .offsets import Commit, TopicPartition, topic_partition
from .replay import NO_PRODUCER, Replay

T = TypeVar("T")

MAGIC: Final = b"OFFSETS\x00"
FORMAT: Final = 1
"""That of releases without consumer groups (KIP-848), written where there is none."""
FORMAT_WITH_CONSUMERS: Final = 2
"""The same with frames of kinds that those releases do not know: they read the log instead."""
_HEADER: Final = Struct(">8shiqqqI")
_CHECKSUM: Final = Struct(">I")
HEADER_BYTES: Final = _HEADER.size + _CHECKSUM.size
FRAME_COMMITS_MAX: Final = 512
FRAME_BYTES_MAX: Final = 1 << 28
_GROUP: Final = 0
_OFFSETS: Final = 1
_OLD_KEYS: Final = 2
_CONSUMER: Final = 3
_CLASSIC_OFFSET: Final = 4


@dataclass(frozen=True, slots=True)
class SnapshotHeader:
    """Of which state a snapshot is, and what its body must be."""

    leader_epoch: int
    """Of the record before ``offset``."""
    log_start: int
    offset: int
    """Every record below it was applied, none at it or above."""
    body_bytes: int = 0
    body_crc: int = 0
    format: int = FORMAT

    def to_bytes(self) -> bytes:
        """As it stands before the body."""
        fields = _HEADER.pack(
            MAGIC,
            self.format,
            self.leader_epoch,
            self.log_start,
            self.offset,
            self.body_bytes,
            self.body_crc,
        )
        return fields + _CHECKSUM.pack(crc32c(fields))

    @classmethod
    def parse(cls, data: bytes) -> SnapshotHeader:
        """Raises CorruptRecords for anything that is no whole header of this format."""
        if len(data) < HEADER_BYTES:
            raise CorruptRecords(f"a snapshot's header of {len(data)} bytes")
        magic, version, *fields = _HEADER.unpack_from(data)
        (crc,) = _CHECKSUM.unpack_from(data, _HEADER.size)
        is_known = version in (FORMAT, FORMAT_WITH_CONSUMERS)
        if magic != MAGIC or not is_known or crc != crc32c(data[: _HEADER.size]):
            raise CorruptRecords("not a snapshot of this format")
        return replace(cls(*fields), format=version)


def sealed(header: SnapshotHeader, frames: Sequence[bytes]) -> bytes:
    """The whole file; of the header only the first three fields are looked at. Takes long."""
    body = b"".join(frames)
    whole = replace(header, body_bytes=len(body), body_crc=crc32c(body))
    return whole.to_bytes() + body


# -- writing -----------------------------------------------------------------------------------


def frames_of(replay: Replay) -> Iterator[bytes]:
    """The body, frame by frame; ``replay`` must not change meanwhile."""
    for group_id, record in replay.records.items():
        yield _frame(_GROUP, group_id, group_value(record))
    yield from _consumer_frames(replay)
    for group_id, offsets in replay.offsets.items():
        for producer_id, commits in (
            (NO_PRODUCER, offsets.committed),
            *offsets.transactional.items(),
        ):
            for part in _parts(commits.items()):
                yield _frame(_OFFSETS, group_id, pack(">q", producer_id) + _columns(part))
        for keys in _parts(sorted(offsets.old_keys)):
            topics, partition_columns = _partition_columns(keys)
            yield _frame(_OLD_KEYS, group_id, topics + partition_columns)


def _consumer_frames(replay: Replay) -> Iterator[bytes]:
    for group_id, raw in replay.consumer_records.items():
        for (record_type, name), (offset, value) in raw.items():
            content = pack(">qh", offset, record_type) + _string(name) + value
            yield _frame(_CONSUMER, group_id, content)
        if group_id in replay.records:
            at = pack(">q", replay.record_offsets.get(group_id, -1))
            yield _frame(_CLASSIC_OFFSET, group_id, at)


def format_of(replay: Replay) -> int:
    """Of the snapshot of this fold."""
    return FORMAT_WITH_CONSUMERS if replay.consumer_records else FORMAT


def _parts(items: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(items)
    while part := list(islice(rest, FRAME_COMMITS_MAX)):
        yield part


def _frame(kind: int, group_id: str, rest: bytes) -> bytes:
    start = pack(">B", kind) + _string(group_id)
    return pack(">I", len(start) + len(rest)) + start + rest


def _string(text: str) -> bytes:
    data = text.encode()
    return pack(">H", len(data)) + data


def _partition_columns(partitions: Sequence[TopicPartition]) -> tuple[bytes, bytes]:
    """The topics, then the first columns."""
    indexes: dict[str, int] = {}
    for topic, _ in partitions:
        indexes.setdefault(topic, len(indexes))
    count = len(partitions)
    topics = pack(">H", len(indexes)) + b"".join(map(_string, indexes))
    columns = pack(
        f">H{count}H{count}i",
        count,
        *[indexes[topic] for topic, _ in partitions],
        *[index for _, index in partitions],
    )
    return topics, columns


def _columns(items: Sequence[tuple[TopicPartition, Commit]]) -> bytes:
    topics, partition_columns = _partition_columns([partition for partition, _ in items])
    commits = [commit for _, commit in items]
    texts = [commit.metadata.encode() for commit in commits]
    count = len(commits)
    numbers = pack(
        f">{count}i{4 * count}q{count}H",
        *[commit.leader_epoch for commit in commits],
        *[commit.offset for commit in commits],
        *[commit.committed_ms for commit in commits],
        *[commit.expires_ms for commit in commits],
        *[commit.record_offset for commit in commits],
        *map(len, texts),
    )
    return topics + partition_columns + numbers + b"".join(texts)


# -- reading -----------------------------------------------------------------------------------


class Body:
    """The frames of a file as they are read, piece by piece; ``crc`` is that of what was fed."""

    def __init__(self) -> None:
        self.crc = 0
        self._rest = b""

    def feed(self, piece: bytes) -> Generator[None, None, None]:
        """Take in more of the body. Yields between frames; raises CorruptRecords."""
        self.crc = crc32c(piece, self.crc)
        data = self._rest + piece
        position = 0
        while len(data) - position >= 4:
            (size,) = unpack_from(">I", data, position)
            if size > FRAME_BYTES_MAX:
                raise CorruptRecords(f"a frame of {size} bytes")
            if len(data) - position - 4 < size:
                break
            position += 4
            self.take(data[position : position + size])
            position += size
            yield
        self._rest = data[position:]

    def take(self, frame: bytes) -> None:
        """One frame, without its length. Raises CorruptRecords."""
        raise NotImplementedError

    @property
    def is_between_frames(self) -> bool:
        """Whether nothing is left over."""
        return not self._rest


class Restoring(Body):
    """The body of a whole snapshot."""

    def __init__(self) -> None:
        super().__init__()
        self.replay = Replay()

    def take(self, frame: bytes) -> None:
        """One frame of groups, offsets or old keys."""
        try:
            kind = frame[0]
            group_id, position = _read_string(frame, 1)
            if kind == _GROUP:
                self.replay.records[group_id] = parse_group_value(frame[position:])
            elif kind == _OFFSETS:
                (producer_id,) = unpack_from(">q", frame, position)
                commits = _read_commits(frame, position + 8)
                self.replay.restore_offsets(group_id, producer_id, commits)
            elif kind == _OLD_KEYS:
                partitions, _ = _read_partition_columns(frame, position)
                self.replay.restore_old_keys(group_id, partitions)
            elif kind == _CONSUMER:
                self._take_consumer(group_id, frame, position)
            elif kind == _CLASSIC_OFFSET:
                (self.replay.record_offsets[group_id],) = unpack_from(">q", frame, position)
            else:
                raise CorruptRecords(f"a frame of kind {kind}")
        except (struct_error, IndexError, UnicodeDecodeError, CorruptRequest) as error:
            raise CorruptRecords(f"a frame of a snapshot: {error}") from error

    def _take_consumer(self, group_id: str, frame: bytes, position: int) -> None:
        offset, number = unpack_from(">qh", frame, position)
        name, position = _read_string(frame, position + 10)
        try:
            record_type = RecordType(number)
        except ValueError as error:
            raise CorruptRecords(f"a record of type {number} in a snapshot") from error
        raw = self.replay.consumer_records.setdefault(group_id, {})
        raw[record_type, name] = offset, frame[position:]


def _read_string(frame: bytes, position: int) -> tuple[str, int]:
    (size,) = unpack_from(">H", frame, position)
    position += 2
    return frame[position : position + size].decode(), position + size


def _read_partition_columns(frame: bytes, position: int) -> tuple[list[TopicPartition], int]:
    (count,) = unpack_from(">H", frame, position)
    position += 2
    topics = []
    for _ in range(count):
        topic, position = _read_string(frame, position)
        topics.append(topic)
    (count,) = unpack_from(">H", frame, position)
    fields = unpack_from(f">{count}H{count}i", frame, position + 2)
    partitions = [
        topic_partition(topics[topic], index)
        for topic, index in zip(fields[:count], fields[count:], strict=True)
    ]
    return partitions, position + 2 + 6 * count


def _read_commits(frame: bytes, position: int) -> dict[TopicPartition, Commit]:
    partitions, position = _read_partition_columns(frame, position)
    n = len(partitions)
    fields = unpack_from(f">{n}i{4 * n}q{n}H", frame, position)
    position += 38 * n
    texts = []
    for size in fields[5 * n :]:
        texts.append(frame[position : position + size].decode() if size else "")
        position += size
    if position != len(frame):
        raise CorruptRecords(f"a frame of {len(frame)} bytes ends at {position}")
    return {
        partition: Commit(offset, epoch, text, committed, expires, record_offset)
        for partition, epoch, offset, committed, expires, record_offset, text in zip(
            partitions,
            fields[:n],
            fields[n : 2 * n],
            fields[2 * n : 3 * n],
            fields[3 * n : 4 * n],
            fields[4 * n : 5 * n],
            texts,
            strict=True,
        )
    }
