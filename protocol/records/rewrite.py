"""What a leader changes in a batch of magic 2 that a client produced.

In place where only the stamp differs; the record section is taken over byte for byte under
another codec; only odd offset deltas cost a rebuild. Source: docs/spec/log.md §1.8, second table.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.protocol.records.compression.codecs import compress

from .builder import build_batch_of, reseal, seal
from .header import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    LOG_APPEND_TIME,
    MAX_TIMESTAMP_AT,
    TRANSACTIONAL,
    Header,
)
from .record import Record


def restamp(
    batch: bytearray | memoryview, head: Header, newest: int, append_time: int | None
) -> None:
    """Correct timestamp type and maximum in place, with the checksum only if one changes."""
    attributes = _stamped(head.attributes, append_time)
    if attributes == head.attributes and newest == head.max_timestamp:
        return
    batch[ATTRIBUTES_AT : ATTRIBUTES_AT + 2] = attributes.to_bytes(2, "big", signed=True)
    batch[MAX_TIMESTAMP_AT : MAX_TIMESTAMP_AT + 8] = newest.to_bytes(8, "big", signed=True)
    reseal(batch)


def recompressed(
    head: Header,
    section: bytes,
    codec: int,
    level: int | None,
    newest: int,
    append_time: int | None,
) -> bytearray:
    """The same records, plain in ``section``, under another codec."""
    return seal(
        compress(codec, section, level),
        0,
        _stamped(head.attributes, append_time) & ~CODEC_MASK | codec,
        head.last_offset_delta,
        head.base_timestamp,
        newest,
        head.producer_id,
        head.producer_epoch,
        head.base_sequence,
        head.record_count,
    )


def renumbered(
    head: Header, records: Iterable[Record], codec: int, append_time: int | None
) -> bytearray:
    """The records of a compressed batch with odd offset deltas, as 0, 1, 2, ... (KAFKA-9669)."""
    return build_batch_of(
        [record._replace(offset=index) for index, record in enumerate(records)],
        codec=codec,
        append_time=append_time,
        producer_id=head.producer_id,
        producer_epoch=head.producer_epoch,
        base_sequence=head.base_sequence,
        is_transactional=bool(head.attributes & TRANSACTIONAL),
    )


def _stamped(attributes: int, append_time: int | None) -> int:
    """The attributes with the topic's timestamp type instead of the producer's."""
    return attributes & ~LOG_APPEND_TIME | (0 if append_time is None else LOG_APPEND_TIME)
