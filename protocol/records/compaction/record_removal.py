"""One entry of a log without some of its records.

What stays is copied as it is, byte for byte wherever the batch's base timestamp does not move;
only sizes, counts and checksums are made anew. The magic never changes.
Source: docs/spec/log.md §5.4 and §5.5; §9 pitfalls P19 and P36.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from barnabas.protocol.records import batch
from barnabas.protocol.records.builder import seal
from barnabas.protocol.records.compression.codecs import READ_BYTES_MAX, compress, decompress
from barnabas.protocol.records.corrupt_records import CorruptRecords
from barnabas.protocol.records.header import (
    CODEC_MASK,
    DELETE_HORIZON,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    Header,
)
from barnabas.protocol.records.message_set import encode_messages
from barnabas.protocol.records.record import Record
from barnabas.protocol.records.varints import (
    VARINT_BYTES_MAX,
    VARLONG_BYTES_MAX,
    decode_varint,
    encode_varint,
)

_TIMESTAMP_TYPE_AT: Final = 17


class RecordSpan(NamedTuple):
    """One record of magic 2 where it lies in the plain record section."""

    start: int
    """Of its length."""
    after_stamp: int
    """Where its offset delta begins, which with all that follows never changes."""
    stop: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    has_value: bool


def section_of(entry: bytes, head: Header) -> bytes:
    """The plain record section of a batch of magic 2; raises CorruptRecords."""
    section = entry[HEADER_BYTES:]
    codec = head.attributes & CODEC_MASK
    return decompress(codec, section, bytes_max=READ_BYTES_MAX) if codec else section


def record_spans(section: bytes, count: int) -> list[RecordSpan]:  # noqa: C901 - hot loop
    """Each of ``count`` records in a plain section; raises CorruptRecords.

    Numbers of one or two bytes are read in place, for a call costs more than the rest.
    """
    position, end = 0, len(section)
    found, make = [], tuple.__new__
    try:
        for _ in range(count):
            start = position
            length, position = section[position], position + 1
            if length > 0x7F:
                if (high := section[position]) < 0x80:
                    length, position = high << 7 | length & 0x7F, position + 1
                else:
                    length, position = _wide(section, position)
            stop = position + (length >> 1)
            stamp, after_stamp = section[position + 1], position + 2
            if stamp > 0x7F:
                stamp, after_stamp = _wide(section, after_stamp, VARLONG_BYTES_MAX)
            delta, position = section[after_stamp], after_stamp + 1
            if delta > 0x7F:
                if (high := section[position]) < 0x80:
                    delta, position = high << 7 | delta & 0x7F, position + 1
                else:
                    delta, position = _wide(section, position)
            size, position = section[position], position + 1
            if size > 0x7F:
                size, position = _wide(section, position)
            key = None
            if not size & 1:
                key = section[position : position + (size >> 1)]
                position += size >> 1
            value, position = section[position], position + 1
            if value > 0x7F:
                if (high := section[position]) < 0x80:
                    value, position = high << 7 | value & 0x7F, position + 1
                else:
                    value, position = _wide(section, position)
            if (length | size | value) & 1 and _is_negative(length, size, value):
                raise CorruptRecords("a negative length")
            if not position + (value >> 1) < stop <= end:
                raise CorruptRecords(f"a record reaches beyond {stop}")
            stamp = (stamp >> 1) ^ -(stamp & 1)
            delta = (delta >> 1) ^ -(delta & 1)
            found.append(
                make(RecordSpan, (start, after_stamp, stop, stamp, delta, key, value != 1))
            )
            position = stop
    except IndexError as error:
        raise CorruptRecords("the last record is cut") from error
    if position != end:
        raise CorruptRecords(f"{end - position} bytes after the last of {count} records")
    return found


def _is_negative(length: int, key: int, value: int) -> bool:
    """Of lengths in zig-zag, only those of fields may say null."""
    return bool(length & 1 or (key & 1 and key != 1) or (value & 1 and value != 1))


def _wide(section: bytes, after: int, bytes_max: int = VARINT_BYTES_MAX) -> tuple[int, int]:
    """A number in zig-zag whose first byte, before ``after``, is not its last; and its end."""
    value, position = decode_varint(section, after - 1, bytes_max)
    return (value << 1) ^ (value >> 63), position


def rewritten(
    head: Header, section: bytes, kept: Sequence[RecordSpan], delete_horizon_ms: int | None
) -> bytearray:
    """A batch of magic 2 with only the records ``kept``, at least one, in its old place.

    A ``delete_horizon_ms`` becomes its base timestamp; None leaves one that is there. Offsets,
    epoch, producer and sequence stay, so that nobody sees a gap that was not there.
    """
    attributes, base = head.attributes, head.base_timestamp
    is_stamped = bool(attributes & LOG_APPEND_TIME)
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON
        base = delete_horizon_ms
    elif not (attributes & DELETE_HORIZON or is_stamped):
        base += kept[0].timestamp_delta
    shift = 0 if is_stamped else head.base_timestamp - base
    newest = head.max_timestamp
    if not is_stamped:
        newest = head.base_timestamp + max(span.timestamp_delta for span in kept)
    codec = attributes & CODEC_MASK
    body = b"".join(_parts(section, kept, shift))
    built = seal(
        compress(codec, body) if codec else body,
        0,
        attributes,
        head.last_offset_delta,
        base,
        newest,
        head.producer_id,
        head.producer_epoch,
        head.base_sequence,
        len(kept),
    )
    batch.assign(built, head.base_offset, head.leader_epoch)
    return built


def _parts(section: bytes, kept: Sequence[RecordSpan], shift: int) -> Iterator[bytes]:
    """The records with their timestamp deltas moved by ``shift``."""
    for start, after_stamp, stop, stamp, _, _, _ in kept:
        if shift:
            stamp_bytes = encode_varint(stamp + shift)
            yield encode_varint(1 + len(stamp_bytes) + stop - after_stamp)
            yield b"\0" + stamp_bytes
            yield section[after_stamp:stop]
        else:
            yield section[start:stop]


def emptied(head: Header) -> bytearray:
    """A batch of magic 2 without records, kept for what its header says of its producer."""
    built = seal(
        b"",
        0,
        head.attributes & ~(CODEC_MASK | DELETE_HORIZON),
        head.last_offset_delta,
        NO_TIMESTAMP,
        head.max_timestamp,
        head.producer_id,
        head.producer_epoch,
        head.base_sequence,
        0,
    )
    batch.assign(built, head.base_offset, head.leader_epoch)
    return built


def rewritten_messages(entry: bytes, kept: Sequence[Record]) -> bytes:
    """A wrapper of magic 0 or 1 around the messages ``kept``, at least one."""
    magic, attributes = batch.magic(entry), entry[_TIMESTAMP_TYPE_AT]
    is_stamped = bool(magic and attributes & LOG_APPEND_TIME)
    return encode_messages(
        kept,
        magic,
        codec=attributes & CODEC_MASK,
        append_time=kept[0].timestamp if is_stamped else None,
    )
