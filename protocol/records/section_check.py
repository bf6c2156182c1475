"""What a leader must know of a record section, found without making a single record.

Every length is followed, every byte accounted for, no key or value copied: 0.6 us a record, or a
twentieth where many of one shape follow each other (equal_records.py), or where this is compiled.
Source: docs/spec/log.md §1.5 and §1.8, steps 4 to 6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from .corrupt_records import CorruptRecords
from .equal_records import RECORDS_MIN, run_from
from .header import INT64_MAX, INT64_MIN
from .varints import VARLONG_BYTES_MAX, decode_varint
from .work_limit import Work, take

if TYPE_CHECKING:
    from mypy_extensions import i64

STEP_MAX: Final = 4096
"""Records walked one by one, at most, before a run is looked for again."""
WORD: Final[i64] = 0
"""What is assigned from it is a machine word in a compiled wheel."""


class Survey(NamedTuple):
    """A well-formed record section in four facts."""

    is_sequential: bool
    """Whether the offset deltas are exactly 0, 1, 2, ..."""
    oldest_delta: int
    newest_delta: int
    """Least and greatest timestamp delta."""
    has_null_keys: bool


def survey(
    data: bytes | bytearray | memoryview, position: int, count: int, work: Work | None = None
) -> Survey:
    """Check ``count`` >= 1 records from ``position`` to the very end of ``data``.

    Raises CorruptRecords when the bytes are not exactly that many records, and TooMuchWork when
    to see that takes more than ``work`` has left. Runs of records of one
    shape are checked by columns; where there are none, one by one, and they are looked for less
    and less often.
    """
    if not isinstance(data, bytes):
        data = bytes(data)  # copying costs less than what views cost, byte by byte
    facts: list[Survey] = []
    index, step = 0, RECORDS_MIN
    while index < count:
        run = run_from(data, position, index, count) if count - index >= 2 * RECORDS_MIN else None
        if run is not None:
            facts.append(Survey(True, run.oldest_delta, run.newest_delta, run.has_null_keys))
            index, position, step = index + run.records, run.stop, RECORDS_MIN
            continue
        stop = min(count, index + step)
        take(work, stop - index >> 1)  # interpreted: here other threads may have their turn
        walked, position = _walk(data, position, index, stop, work)
        facts.append(walked)
        index, step = stop, min(4 * step, STEP_MAX)
    if position != len(data):
        raise CorruptRecords(f"{len(data) - position} bytes after the last of {count} records")
    return facts[0] if len(facts) == 1 else _together(facts)


def _together(facts: list[Survey]) -> Survey:
    return Survey(
        all(one.is_sequential for one in facts),
        min(one.oldest_delta for one in facts),
        max(one.newest_delta for one in facts),
        any(one.has_null_keys for one in facts),
    )


def _walk(  # noqa: C901 - hot loop
    data: bytes, position: i64, index: i64, end: i64, work: Work | None = None
) -> tuple[Survey, int]:
    """The records from ``index`` to ``end``, which begin at ``position``; and where they stop.

    Numbers but time deltas stay in zig-zag (odd is negative, 1 is null). Short ones are read
    without a call. Compiled, an i64 is a machine word, which is ten times as fast.
    """
    is_sequential, has_null_keys = True, False
    oldest, newest, previous = WORD + INT64_MAX, WORD + INT64_MIN, WORD - 1
    due = size = stop = stamp = time = delta = key = value = high = WORD
    try:
        for due in range(2 * index, 2 * end, 2):
            size, position = data[position], position + 1
            if size > 0x7F:
                if (high := data[position]) < 0x80:
                    size, position = high << 7 | size & 0x7F, position + 1
                else:
                    size, position = _wide(data, position, size)
            stop = position + (size >> 1)
            stamp, position = data[position + 1], position + 2
            if stamp > 0x7F:
                if (high := data[position]) < 0x80:
                    stamp, position = high << 7 | stamp & 0x7F, position + 1
                else:
                    time, position = decode_varint(data, position - 1, VARLONG_BYTES_MAX)
                    stamp = WORD - 1
            if stamp != previous or stamp < 0:
                previous = stamp
                if stamp >= 0:
                    time = (stamp >> 1) ^ -(stamp & 1)
                oldest, newest = min(oldest, time), max(newest, time)
            delta, position = data[position], position + 1
            if delta > 0x7F:
                if (high := data[position]) < 0x80:
                    delta, position = high << 7 | delta & 0x7F, position + 1
                else:
                    delta, position = _wide(data, position, delta)
            is_sequential = is_sequential and delta == due
            key, position = data[position], position + 1
            if key > 0x7F:
                key, position = _wide(data, position, key)
            position += key >> 1
            value, position = data[position], position + 1
            if value > 0x7F:
                if (high := data[position]) < 0x80:
                    value, position = high << 7 | value & 0x7F, position + 1
                else:
                    value, position = _wide(data, position, value)
            position += value >> 1
            if (size | key | value) & 1:
                has_null_keys = has_null_keys or key == 1
                if size & 1 or (key > 1 and key & 1) or (value > 1 and value & 1):
                    raise CorruptRecords("a negative length")
            position = _skip_headers(data, position, stop, work) if data[position] else position + 1
            if position != stop:
                raise CorruptRecords(f"a record ends at {position}, not at {stop}")
    except IndexError as error:
        raise CorruptRecords("the last record is cut") from error
    return Survey(is_sequential, oldest, newest, has_null_keys), position


def _wide(data: bytes, position: i64, low: i64) -> tuple[i64, i64]:
    """A number in zig-zag whose first byte, ``low``, is not its last; and the position after."""
    high: i64 = data[position]
    if high < 0x80:
        return high << 7 | low & 0x7F, position + 1
    value, after = decode_varint(data, position - 1)
    return (value << 1) ^ (value >> 63), after


def _skip_field(data: bytes, position: int) -> tuple[int, bool]:
    """The position after a field with its length, and whether it is null."""
    length, position = decode_varint(data, position)
    if length < -1:
        raise CorruptRecords(f"a length of {length}")
    return position + max(length, 0), length < 0


def _skip_headers(data: bytes, position: int, stop: int, work: Work | None) -> int:
    count, position = decode_varint(data, position)
    if not 0 <= count <= stop - position:
        raise CorruptRecords(f"{count} headers in {stop - position} bytes")
    if work is not None:
        work.take(count)
    for _ in range(count):
        position, is_null = _skip_field(data, position)
        if is_null:
            raise CorruptRecords("a header without a key")
        position, _ = _skip_field(data, position)
    return position
