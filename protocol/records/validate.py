"""What a leader checks in the records a client produces, and what it rewrites.

The order of the checks decides which error a client sees. Whatever came, the result is one batch
of magic 2 that needs its offset and leader epoch, nothing else. Producer state is the log's
business. Source: docs/spec/log.md §1.8, steps 1 to 7.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Final

from crc32c import crc32c

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.compression.codecs import (
    NAMES,
    Codec,
    decompress,
    produced_bytes_max,
)

from . import batch
from .batch import Buffer
from .convert import up_convert
from .corrupt_records import CorruptRecords, ExpandsTooFar
from .header import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL,
    ENVELOPE_BYTES,
    HEADER,
    HEADER_BYTES,
    INT64_MAX,
    INT64_MIN,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    Header,
)
from .message_set import messages
from .produce_rules import InvalidRecords, Prepared, ProduceRules, RecordError
from .record import Record, decode_records
from .rewrite import recompressed, renumbered, restamp
from .section_check import Survey, survey
from .work_limit import RECORD_STEPS, Work, compression_steps, take

MAGIC_2_SINCE: Final = 3
ZSTD_SINCE: Final = 7


def prepare(
    records: Buffer | None,
    *,
    produce_version: int,
    rules: ProduceRules,
    now_ms: int,
    work: Work | None = None,
) -> Prepared | None:
    """The batch to append; None when there is nothing to append, which is a success.

    ``records`` is what the request holds for one partition and is not changed, unless it is a
    writable memoryview: then the batch is made in place where it can be.
    Raises InvalidRecords with 2, 10, 18, 32, 76 or 87, and TooMuchWork, before anything is
    changed, when it takes more than ``work`` has left.
    """
    try:
        if records is not None:
            head = _usual_header(records, produce_version, rules)
            if head is not None:
                return _prepare_batch(_view(records), head, rules, now_ms, work)
        entries = list(batch.iterate(records)) if records is not None else []
        if produce_version >= MAGIC_2_SINCE:
            _check_request(records, entries)
        if not entries:
            return None
        assert records is not None
        _check_zstd(records, entries, produce_version)
        _check_entries(records, entries, rules)
        if batch.magic(records) >= 2:
            view = _view(records)[: entries[0][1]]
            return _prepare_batch(view, batch.header(view), rules, now_ms, work)
        return _prepare_messages(records, entries, rules, now_ms, work)
    except ExpandsTooFar as excess:
        # Java's producer splits a batch that is told 10 and sends it again; with 87 each of its
        # records would be lost, though all of them are good (Sender.completeBatch).
        raise InvalidRecords(ErrorCode.MESSAGE_TOO_LARGE, excess.message) from excess
    except CorruptRecords as failure:
        raise InvalidRecords(failure.code, failure.message) from failure


def _view(records: Buffer) -> memoryview:
    """The same bytes, which may be written to only where a view of them was given."""
    return records if isinstance(records, memoryview) else memoryview(records).toreadonly()


def _usual_header(records: Buffer, produce_version: int, rules: ProduceRules) -> Header | None:
    """The header of what nearly every producer sends: one good batch of magic 2, nothing behind it.

    Such a request passes steps 1 to 3 in one look. None for every other: then these steps find out,
    one by one, what it is or what is wrong with it.
    """
    size = len(records)
    if not HEADER_BYTES <= size <= rules.message_bytes_max:
        return None
    fields = HEADER.unpack_from(records)
    base_offset, length, _, magic, crc, attributes = fields[:6]
    if magic != 2 or base_offset or length + ENVELOPE_BYTES != size:
        return None
    if produce_version < ZSTD_SINCE and attributes & CODEC_MASK == Codec.ZSTD:
        return None
    if crc32c(memoryview(records)[ATTRIBUTES_AT:]) != crc:
        return None
    return Header._make(fields)


def _check_request(records: Buffer | None, entries: Sequence[tuple[int, int]]) -> None:
    """Step 1, for the versions that promise magic 2."""
    if records is None or not entries:
        raise CorruptRecords("no batch")
    if batch.magic(records) != 2:
        raise CorruptRecords(f"magic {batch.magic(records)} where only 2 is allowed")


def _check_zstd(records: Buffer, entries: Sequence[tuple[int, int]], version: int) -> None:
    """The rest of step 1, and for older versions what it means there."""
    if version < ZSTD_SINCE and batch.magic(records) == 2 and batch.codec(records) == Codec.ZSTD:
        code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        raise InvalidRecords(code, f"zstd needs Produce version {ZSTD_SINCE}")
    if version >= MAGIC_2_SINCE and len(entries) > 1:
        raise CorruptRecords(f"{len(entries)} batches where one is allowed")


def _check_entries(
    records: Buffer, entries: Sequence[tuple[int, int]], rules: ProduceRules
) -> None:
    """Steps 2 and 3."""
    for position, size in entries:
        if batch.magic(records, position) == 2 and batch.base_offset(records, position):
            raise CorruptRecords("base offsets are the broker's to assign")
        _check_message_bytes(size, rules)
        if not batch.crc_is_valid(records, position, size):
            raise CorruptRecords("checksum", ErrorCode.CORRUPT_MESSAGE)
    if len(entries) == 1:
        return
    magics = {batch.magic(records, position) for position, _ in entries}
    if len(magics) > 1:
        raise CorruptRecords(f"magics {sorted(magics)} in one request")
    if 2 in magics or any(batch.codec(records, position) for position, _ in entries):
        raise CorruptRecords(f"{len(entries)} entries where one is allowed")


def _check_message_bytes(size: int, rules: ProduceRules) -> None:
    if size > rules.message_bytes_max:
        text = f"an entry of {size} bytes, {rules.message_bytes_max} are allowed"
        raise InvalidRecords(ErrorCode.MESSAGE_TOO_LARGE, text)


def _check_header(head: Header) -> None:
    """Step 4."""
    count = head.record_count
    if count <= 0 or count != head.last_offset_delta + 1:
        raise CorruptRecords(f"{count} records with last offset delta {head.last_offset_delta}")
    if head.attributes & CONTROL:
        raise CorruptRecords("control batches are the coordinator's to write")
    if head.producer_id >= 0 and head.base_sequence < 0:
        raise CorruptRecords(f"producer {head.producer_id} without a sequence")
    if head.attributes & CODEC_MASK > Codec.ZSTD:
        code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        raise CorruptRecords(f"codec {head.attributes & CODEC_MASK}", code)


def _prepare_batch(
    data: memoryview, head: Header, rules: ProduceRules, now_ms: int, work: Work | None
) -> Prepared:
    """Steps 4 to 7 for the one batch of magic 2."""
    _check_header(head)
    source = head.attributes & CODEC_MASK
    result: bytearray | memoryview = bytearray(data) if data.readonly else data
    section: bytes | bytearray | memoryview = result
    start = HEADER_BYTES
    if source:
        bytes_max = produced_bytes_max(rules.message_bytes_max)
        packed = data[HEADER_BYTES:]
        section, start = decompress(source, packed, bytes_max=bytes_max, work=work), 0
    facts = survey(section, start, head.record_count, work)
    if _is_suspect(head, facts, rules, now_ms):
        take(work, RECORD_STEPS * head.record_count)
        suspects = _records(head, section, start)
        is_stamped = head.append_time is not None
        _check_records(zip(suspects, repeat(is_stamped)), rules, now_ms)

    append_time = now_ms if rules.timestamp_type == "LogAppendTime" else None
    newest = _newest(head, facts)
    if append_time is not None:
        newest = append_time
    target = source if rules.compression == "producer" else NAMES[rules.compression]
    if not facts.is_sequential:
        if not source:
            raise CorruptRecords("offset deltas are not 0, 1, 2, ...")
        steps = RECORD_STEPS * head.record_count
        take(work, steps + compression_steps(target, len(section)))
        result = renumbered(head, _records(head, section, start), target, append_time)
    elif target != source:
        take(work, compression_steps(target, len(section)))
        plain = bytes(section[start:])
        result = recompressed(head, plain, target, rules.compression_level, newest, append_time)
    else:
        restamp(result, head, newest, append_time)
    if len(result) != len(data):
        _check_message_bytes(len(result), rules)
    _check_segment_bytes(len(result), rules)
    return Prepared(
        result,
        head.record_count,
        newest,
        NO_TIMESTAMP if append_time is None else append_time,
        head.producer_id,
        head.producer_epoch,
        head.base_sequence,
        head.last_sequence,
        bool(head.attributes & TRANSACTIONAL),
    )


def _records(head: Header, section: Buffer, start: int) -> Iterable[Record]:
    """The records one by one, for batches that are refused or rebuilt."""
    return decode_records(
        bytes(section),
        start,
        count=head.record_count,
        base_offset=0,
        base_timestamp=head.base_timestamp,
        append_time=head.append_time,
    )


def _newest(head: Header, facts: Survey) -> int:
    """The true maximum, whatever the header says."""
    oldest = head.base_timestamp + facts.oldest_delta
    newest = head.base_timestamp + facts.newest_delta
    if oldest < INT64_MIN or newest > INT64_MAX:
        text = f"timestamps {oldest} to {newest}"
        raise CorruptRecords(text, ErrorCode.INVALID_TIMESTAMP)
    return max(NO_TIMESTAMP, newest) if head.append_time is None else head.append_time


def _is_suspect(head: Header, facts: Survey, rules: ProduceRules, now_ms: int) -> bool:
    """Whether a record may be bad: never False when one is."""
    if head.attributes & LOG_APPEND_TIME or (rules.is_compacted and facts.has_null_keys):
        return True
    if rules.timestamp_type == "LogAppendTime":
        return False
    oldest = head.base_timestamp + facts.oldest_delta
    newest = head.base_timestamp + facts.newest_delta
    return (
        now_ms - oldest > rules.timestamp_before_max_ms
        or newest - now_ms > rules.timestamp_after_max_ms
    )


def _check_records(
    records: Iterable[tuple[Record, bool]], rules: ProduceRules, now_ms: int
) -> None:
    """Steps 5 and 6; each record comes with whether its producer marked it LogAppendTime."""
    errors: list[RecordError] = []
    code = ErrorCode.INVALID_RECORD
    for index, (record, is_stamped) in enumerate(records):
        if rules.is_compacted and record.key is None:
            errors.append((index, "a compacted topic needs keys"))
        elif problem := _timestamp_problem(record.timestamp, is_stamped, rules, now_ms):
            errors.append((index, problem))
            code = ErrorCode.INVALID_TIMESTAMP
    if errors:
        raise InvalidRecords(code, f"{len(errors)} records: {errors[0][1]}", errors)


def _timestamp_problem(
    timestamp: int, is_stamped: bool, rules: ProduceRules, now_ms: int
) -> str | None:
    """Step 6."""
    if rules.timestamp_type == "CreateTime" and timestamp != NO_TIMESTAMP:
        if now_ms - timestamp > rules.timestamp_before_max_ms:
            return "the timestamp is too old"
        if timestamp - now_ms > rules.timestamp_after_max_ms:
            return "the timestamp is too far ahead"
        return None
    return "LogAppendTime is the broker's to set" if is_stamped else None


def _prepare_messages(
    records: Buffer,
    entries: Sequence[tuple[int, int]],
    rules: ProduceRules,
    now_ms: int,
    work: Work | None,
) -> Prepared:
    """Steps 5 to 7 for messages of magic 0 and 1, which become a batch."""
    view = memoryview(records)
    bytes_max = produced_bytes_max(rules.message_bytes_max)
    found = [
        (message, batch.timestamp_type(records, position) == 1)
        for position, size in entries
        for message in messages(
            view[position : position + size], bytes_max=bytes_max, verify=True, work=work
        )
    ]
    _check_records(found, rules, now_ms)
    target = batch.codec(records)
    if rules.compression != "producer":
        target = NAMES[rules.compression]
    if target and work is not None:
        plain = sum(len(message.key or b"") + len(message.value or b"") for message, _ in found)
        work.take(compression_steps(target, plain))
    result = up_convert(
        [message for message, _ in found],
        codec=target,
        append_time=now_ms if rules.timestamp_type == "LogAppendTime" else None,
    )
    _check_message_bytes(len(result), rules)
    _check_segment_bytes(len(result), rules)
    head = batch.header(result)
    append_time = head.append_time
    return Prepared(
        result,
        head.record_count,
        head.max_timestamp,
        NO_TIMESTAMP if append_time is None else append_time,
    )


def _check_segment_bytes(size: int, rules: ProduceRules) -> None:
    """Step 7, after the size of the entry itself."""
    if size > rules.segment_bytes:
        text = f"{size} bytes, a segment takes {rules.segment_bytes}"
        raise InvalidRecords(ErrorCode.RECORD_LIST_TOO_LARGE, text)
