"""Records between the formats: up to magic 2 on produce, down to 1 or 0 on fetch.

Source: docs/spec/log.md §1.8 (up) and §1.9 (down).
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.records.compression.codecs import Codec

from . import batch
from .batch import Buffer
from .builder import build_batch_of
from .message_set import encode_messages
from .record import Record
from .work_limit import Work, compression_steps


def up_convert(
    messages: Sequence[Record], *, codec: int = 0, append_time: int | None = None
) -> bytearray:
    """One batch of all messages in their order, numbered from 0, at leader epoch -1.

    Messages of magic 0 bring timestamp -1 and keep it unless ``append_time`` replaces all.
    """
    numbered = [message._replace(offset=index) for index, message in enumerate(messages)]
    return build_batch_of(numbered, codec=codec, append_time=append_time)


def down_convert(
    data: Buffer,
    magic: int,
    fetch_offset: int,
    *,
    bytes_max: int | None = None,
    work: Work | None = None,
) -> bytes:
    """The whole entries of ``data`` for a client that knows no more than ``magic``.

    Offsets stay; headers, producers and epochs go; control batches are left out, and what has
    the client's magic or an older one is copied. Records below ``fetch_offset`` are dropped
    unless they are compressed together with others: old librdkafka wants it so (KAFKA-5360).
    Stops before the next entry once ``bytes_max`` is reached. Empty when nothing was to be
    converted: then read on from the last entry's next offset.

    Stops before zstd, too, which old clients cannot know; where nothing comes before it, raises
    Refused(UNSUPPORTED_COMPRESSION_TYPE). Raises CorruptRecords, and TooMuchWork when it takes more
    than ``work`` has left.
    """
    out: list[bytes] = []
    total = 0
    for position, size in batch.iterate(data):
        if bytes_max is not None and total >= bytes_max:
            break
        if total and batch.codec(data, position) == Codec.ZSTD:
            break
        if batch.magic(data, position) <= magic:
            out.append(bytes(memoryview(data)[position : position + size]))
        else:
            out.append(_converted(data, position, magic, fetch_offset, work))
        total += len(out[-1])
    return b"".join(out)


def _converted(
    data: Buffer, position: int, magic: int, fetch_offset: int, work: Work | None
) -> bytes:
    """One entry of a newer magic; nothing for a marker, or when no record is left."""
    if batch.is_control(data, position):
        return b""
    codec = batch.codec(data, position)
    if codec == Codec.ZSTD:
        raise Refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Fetch version 10")
    kept = list(batch.records(data, position, work=work))
    if not codec:
        kept = [record for record in kept if record.offset >= fetch_offset]
    # A compacted batch may have lost its last records: given those before the offset again, a
    # client would ask for the same one for ever.
    if not kept or kept[-1].offset < fetch_offset:
        return b""
    if codec and work is not None:
        plain = sum(len(record.key or b"") + len(record.value or b"") for record in kept)
        work.take(compression_steps(codec, plain))
    is_stamped = batch.timestamp_type(data, position) == 1
    append_time = batch.max_timestamp(data, position) if is_stamped else None
    return encode_messages(kept, magic, codec=codec, append_time=append_time)
