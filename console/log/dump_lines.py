"""What kafka-dump-log says of a batch, a record, an index entry or a producer.

Each is a mapping of Kafka's names in Kafka's order; :func:`line` makes Kafka's text of it and
``--json`` prints it as it is. Source: the output of DumpLogSegments, Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from barnabas.protocol.log_files.producer_snapshot import StoredProducer
from barnabas.protocol.records import batch, message_set
from barnabas.protocol.records.control import coordinator_epoch, parse_marker
from barnabas.protocol.records.header import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Header,
    sequence_after,
)
from barnabas.protocol.records.record import Record

Line = dict[str, Any]

_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_OPTIONAL: Final = ("deleteHorizonMs", "currentTxnFirstOffset")
_CONTROL_TYPES: Final = ("ABORT", "COMMIT", "LEADER_CHANGE")


def line(fields: Mapping[str, Any]) -> str:
    """Kafka's text: ``name: value`` after ``name: value``."""
    return " ".join(f"{name}: {_shown(name, value)}" for name, value in fields.items())


def _shown(name: str, value: Any) -> str:
    if name in _OPTIONAL:
        return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{','.join(value)}]"
    return str(value)


def batch_line(position: int, head: Header, is_valid: bool) -> Line:
    """An entry of any magic; below 2 its one offset is all that stands for a batch."""
    shown: Line = {"offset": head.last_offset}
    if head.magic == 2:
        has_horizon = head.attributes & DELETE_HORIZON
        shown = {
            "baseOffset": head.base_offset,
            "lastOffset": head.last_offset,
            "count": head.record_count,
            "baseSequence": head.base_sequence,
            "lastSequence": head.last_sequence,
            "producerId": head.producer_id,
            "producerEpoch": head.producer_epoch,
            "partitionLeaderEpoch": head.leader_epoch,
            "isTransactional": bool(head.attributes & TRANSACTIONAL),
            "isControl": bool(head.attributes & CONTROL),
            "deleteHorizonMs": head.base_timestamp if has_horizon else None,
        }
    codec = head.attributes & CODEC_MASK
    return shown | {
        "position": position,
        timestamp_name(head): head.max_timestamp,
        "size": head.length + 12,
        "magic": head.magic,
        "compresscodec": _CODECS[codec] if codec < len(_CODECS) else str(codec),
        "crc": head.crc,
        "isvalid": is_valid,
    }


def timestamp_name(head: Header) -> str:
    """Kafka's name for what a timestamp in this batch is."""
    if head.magic == 0:
        return "NoTimestampType"
    return "LogAppendTime" if head.attributes & LOG_APPEND_TIME else "CreateTime"


def record_lines(head: Header, data: bytes) -> Iterator[tuple[Line, Record]]:
    """Each record of the entry ``data``; raises CorruptRecords where one cannot be read."""
    found = batch.records(data)
    if head.magic == 2:
        for record in found:
            yield _record_line(head, record) | _numbered(head, record), record
        return
    for record, (crc, is_valid) in zip(found, message_set.checksums(data), strict=True):
        shown = _record_line(head, record)
        # The brace is Kafka's own slip, which scripts have learnt to read.
        yield shown | {"isValid": is_valid, "crc": f"{crc}}}"}, record


def _record_line(head: Header, record: Record) -> Line:
    return {
        "offset": record.offset,
        timestamp_name(head): record.timestamp,
        "keySize": _size(record.key),
        "valueSize": _size(record.value),
    }


def _numbered(head: Header, record: Record) -> Line:
    shown: Line = {
        "sequence": sequence_after(head.base_sequence, record.offset - head.base_offset),
        "headerKeys": [key for key, _ in record.headers],
    }
    return shown | _marker(record) if head.attributes & CONTROL else shown


def _marker(record: Record) -> Line:
    marker = parse_marker(record.key)
    if marker is not None:
        return {
            "endTxnMarker": marker.name,
            "coordinatorEpoch": coordinator_epoch(record.value),
        }
    number = int.from_bytes((record.key or b"")[2:4], "big", signed=True)
    is_known = 0 <= number < len(_CONTROL_TYPES)
    return {"controlType": f"{_CONTROL_TYPES[number] if is_known else 'UNKNOWN'}({number})"}


def _size(field: bytes | None) -> int:
    return -1 if field is None else len(field)


def producer_line(producer: StoredProducer) -> Line:
    """A producer of a snapshot; nothing of its last batch when it has none."""
    start = producer.transaction_start
    shown: Line = {
        "producerId": producer.producer_id,
        "producerEpoch": producer.epoch,
        "coordinatorEpoch": producer.coordinator_epoch,
        "currentTxnFirstOffset": None if start < 0 else start,
        "lastTimestamp": producer.timestamp,
    }
    if producer.last_offset < 0:
        return shown
    return shown | {
        "firstSequence": producer.first_sequence,
        "lastSequence": producer.last_sequence,
        "lastOffset": producer.last_offset,
        "offsetDelta": producer.offset_delta,
        "timestamp": producer.timestamp,
    }
