"""The producers of a partition as of some offset, which names the file.

    version int16 1 | CRC-32C uint32 of what follows | count int32 | count times:
    producer id int64 | epoch int16 | last sequence int32 | last offset int64
    | offset delta int32 | timestamp int64 | coordinator epoch int32 | transaction start int64

Source: docs/spec/log.md §2.6.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from barnabas.protocol.records.header import SEQUENCE_MASK

_VERSION: Final = 1
_HEAD: Final = Struct(">hI")
_COUNT: Final = Struct(">i")
_PRODUCER: Final = Struct(">qhiqiqiq")


class BadSnapshot(ValueError):  # noqa: N818 - what the file is
    """A file that is no snapshot, or was damaged."""


class StoredProducer(NamedTuple):
    """One producer and its last batch, in the order of the bytes; -1 for what there is not."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    """-1 when no batch is known, and then the three around it mean nothing."""
    offset_delta: int
    """Last minus first offset of that batch."""
    timestamp: int
    coordinator_epoch: int
    transaction_start: int

    @property
    def first_sequence(self) -> int:
        """Of the last batch; -1 when it was not numbered."""
        if self.last_sequence < 0:
            return -1
        return self.last_sequence - self.offset_delta & SEQUENCE_MASK


def format_producers(producers: Iterable[StoredProducer]) -> bytes:
    """The bytes of a snapshot file."""
    rows = [_PRODUCER.pack(*producer) for producer in producers]
    body = _COUNT.pack(len(rows)) + b"".join(rows)
    return _HEAD.pack(_VERSION, crc32c(body)) + body


def parse_producers(data: bytes) -> list[StoredProducer]:
    """The producers in a snapshot file; raises BadSnapshot."""
    if len(data) < _HEAD.size + _COUNT.size:
        raise BadSnapshot(f"{len(data)} bytes")
    version, checksum = _HEAD.unpack_from(data)
    body = data[_HEAD.size :]
    if version != _VERSION or crc32c(body) != checksum:
        raise BadSnapshot(f"version {version} or a wrong checksum")
    count = _COUNT.unpack_from(body)[0]
    if len(body) != _COUNT.size + count * _PRODUCER.size:
        raise BadSnapshot(f"{count} producers in {len(body)} bytes")
    return [StoredProducer._make(row) for row in _PRODUCER.iter_unpack(body[_COUNT.size :])]
