"""Valid batches of one record that cost far more than their size and their header say.

Built with right checksums, so that Kafka appends most of them, too (it ends many gzip members with
a StackOverflowError of its own).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import cache
from typing import Final

from barnabas.protocol.records.batch import HEADER_BYTES, build_batch, build_batch_of, reseal
from barnabas.protocol.records.compression import lz4_frames, snappy_streams, zstd_frames
from barnabas.protocol.records.compression.codecs import Codec
from barnabas.protocol.records.record import Record

NOW_MS: Final = 1_780_000_000_000
_PLAIN: Final = bytes(build_batch([(b"key", b"value")], timestamp_ms=NOW_MS))
SECTION: Final = _PLAIN[HEADER_BYTES:]
"""The one record of all these batches."""


def batch_of(payload: bytes, codec: int) -> bytes:
    """A batch whose header says one record, and whose compressed section is ``payload``."""
    data = bytearray(_PLAIN[:HEADER_BYTES] + payload)
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[22] = codec
    reseal(data)
    return bytes(data)


@cache
def many_members(count: int = 50_000) -> bytes:
    """Empty gzip members before one with the record: a megabyte."""
    return batch_of(zlib.compress(b"", 9, 31) * count + zlib.compress(SECTION, 9, 31), Codec.GZIP)


@cache
def many_frames(count: int = 100_000) -> bytes:
    """Empty zstd frames before one with the record."""
    frames = zstd_frames.compress(b"", 3) * count + zstd_frames.compress(SECTION, 3)
    return batch_of(frames, Codec.ZSTD)


@cache
def many_zstd_blocks(count: int = 300_000) -> bytes:
    """One zstd frame: empty raw blocks, then one with the record."""
    last = (len(SECTION) << 3 | 1).to_bytes(3, "little") + SECTION
    return batch_of(bytes.fromhex("28b52ffd0058") + bytes(3) * count + last, Codec.ZSTD)


@cache
def many_lz4_blocks(count: int = 190_000) -> bytes:
    """Compressed LZ4 blocks of nothing, then one with the record as it is."""
    stored = (len(SECTION) | lz4_frames.STORED).to_bytes(4, "little") + SECTION
    blocks = b"\1\0\0\0\0" * count + stored
    return batch_of(lz4_frames.HEADER + blocks + lz4_frames.END_MARK, Codec.LZ4)


@cache
def many_snappy_blocks(count: int = 190_000) -> bytes:
    """Empty snappy blocks, then one with the record."""
    blocks = b"\0\0\0\1\0" * count
    return batch_of(
        snappy_streams.HEADER + blocks + snappy_streams.compress(SECTION)[16:], Codec.SNAPPY
    )


@cache
def many_snappy_headers(count: int = 60_000) -> bytes:
    """The header of a snappy stream again and again."""
    return batch_of(snappy_streams.HEADER * count + snappy_streams.compress(SECTION), Codec.SNAPPY)


@cache
def many_headers(count: int = 300_000) -> bytes:
    """One record with empty headers: no codec, and less than a megabyte."""
    record = Record(0, NOW_MS, b"key", b"value", (("", b""),) * count)
    return bytes(build_batch_of([record]))


HOSTILE: Final[dict[str, Callable[[], bytes]]] = {
    "gzip members": many_members,
    "zstd frames": many_frames,
    "zstd blocks": many_zstd_blocks,
    "lz4 blocks": many_lz4_blocks,
    "snappy blocks": many_snappy_blocks,
    "snappy headers": many_snappy_headers,
    "headers of a record": many_headers,
}
"""What makes each expensive."""
