"""Gathering the last record of each key is reading all records and keeping the last ones.

Source: protocol/records/latest_by_key.py; docs/spec/log.md §1.5.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.records import batch
from barnabas.protocol.records.batch import build_batch, build_batch_of
from barnabas.protocol.records.corrupt_records import CorruptRecords
from barnabas.protocol.records.latest_by_key import Latest, gather, gather_short
from barnabas.protocol.records.record import Record

KEYS = st.sampled_from([None, b"", b"a", b"b", b"k" * 63, b"k" * 64, b"k" * 140])
VALUES = st.sampled_from([None, b"", b"v", b"v" * 63, b"v" * 64, b"v" * 8191, b"v" * 8192])
RECORDS = st.lists(
    st.tuples(
        st.integers(1, 9000),
        st.integers(-5, 1 << 40),
        KEYS,
        VALUES,
        st.sampled_from([(), (("h", b"1"),)]),
    ),
    min_size=1,
    max_size=12,
)


def gathered(data: bytes | bytearray, floor: int = 0) -> Latest:
    latest: Latest = {}
    for _ in gather(latest, data, 0, floor):
        pass
    return latest


def expected(data: bytes | bytearray, floor: int = 0) -> Latest:
    return {
        record.key: (record.offset, record.value)
        for record in batch.records(data)
        if record.offset >= floor
    }


@given(rows=RECORDS, codec=st.sampled_from([0, 1, 3]), skipped=st.integers(0, 3))
def test_the_last_record_of_each_key_is_found(
    rows: list[tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes], ...]]],
    codec: int,
    skipped: int,
) -> None:
    records, offset = [], 100
    for gap, stamp, key, value, headers in rows:
        records.append(Record(offset, stamp, key, value, headers))
        offset += gap
    data = build_batch_of(records, codec=codec)
    batch.assign(data, 100, 0)
    floor = records[min(skipped, len(records) - 1)].offset
    assert gathered(data, floor) == expected(data, floor)


def test_many_records_are_gathered_in_steps() -> None:
    data = build_batch([(b"%d" % (n % 7), b"%d" % n) for n in range(2000)], timestamp_ms=1)
    latest: Latest = {}
    assert sum(1 for _ in gather(latest, data, 0, 0)) > 5
    assert latest == expected(data)


def refused_or_read_alike(data: bytearray) -> None:
    try:
        wanted = expected(data)
    except CorruptRecords:
        with pytest.raises(CorruptRecords):
            gathered(data)
    else:
        assert gathered(data) == wanted


@given(where=st.integers(61, 200), bit=st.integers(0, 7))
def test_damaged_records_are_refused_as_everywhere_or_read_alike(where: int, bit: int) -> None:
    data = build_batch([(b"key %d" % n, b"value") for n in range(9)], timestamp_ms=1)
    data[min(where, len(data) - 1)] ^= 1 << bit
    refused_or_read_alike(data)


RUNS = st.lists(
    st.tuples(
        st.integers(1, 700),
        st.sampled_from([None, 0, 1, 40, 63, 64, 200]),
        st.sampled_from([None, 0, 24, 64, 100]),
        st.sampled_from([0, 0, 0, 1, 70]),
        st.booleans(),
    ),
    min_size=1,
    max_size=5,
)


@given(runs=RUNS, gap_at=st.integers(0, 900), codec=st.sampled_from([0, 3]))
def test_records_of_one_shape_are_gathered_as_if_one_by_one(
    runs: list[tuple[int, int | None, int | None, int, bool]], gap_at: int, codec: int
) -> None:
    records: list[Record] = []
    offset = 100
    for count, key_size, value_size, stamp, has_headers in runs:
        for number in range(count):
            key = None if key_size is None else (b"%d" % (number % 300)).rjust(key_size)[:key_size]
            value = None if value_size is None else (b"%d" % offset).rjust(value_size)[:value_size]
            headers = (("h", b"1"),) if has_headers and number == count - 1 else ()
            records.append(Record(offset, stamp, key, value, headers))
            offset += 2 if len(records) == gap_at else 1  # as compaction leaves it
    data = build_batch_of(records, codec=codec)
    batch.assign(data, 100, 0)
    assert gathered(data) == expected(data)


@given(where=st.integers(61, 3000), bit=st.integers(0, 7))
def test_damage_in_a_run_is_refused_as_everywhere_or_read_alike(where: int, bit: int) -> None:
    data = build_batch([(b"key %02d" % n, b"value") for n in range(90)], timestamp_ms=1)
    data[min(where, len(data) - 1)] ^= 1 << bit
    refused_or_read_alike(data)


@pytest.mark.parametrize("count", [9000, 20_000])
def test_a_batch_whose_offsets_take_three_bytes_is_gathered_whole(count: int) -> None:
    data = build_batch([(b"%06d" % n, b"v") for n in range(count)], timestamp_ms=1)
    assert gathered(data) == expected(data)


SHORT = st.lists(
    st.tuples(st.integers(1, 20), st.integers(0, 3), KEYS, VALUES, st.booleans()), max_size=12
)


@given(batches=SHORT, floor=st.integers(0, 60), short_of_end=st.integers(0, 30))
def test_short_batches_in_a_row_are_gathered_up_to_the_first_that_is_not_plain(
    batches: list[tuple[int, int, bytes | None, bytes | None, bool]], floor: int, short_of_end: int
) -> None:
    data, offset = bytearray(), 0
    for count, gap, key, value, is_packed in batches:
        offset += gap
        records = [Record(offset + n, 1, key, value) for n in range(count)]
        one = build_batch_of(records, codec=3 if is_packed else 0)
        batch.assign(one, offset, 0)
        data += one
        offset += count
    until = offset - short_of_end
    latest: Latest = {}
    position, following = gather_short(latest, bytes(data), 0, floor, until)
    wanted: Latest = {}
    for start, size in batch.iterate(data):
        if start == position:
            break
        assert batch.base_offset(data, start) >= floor
        assert batch.next_offset(data, start) <= until
        assert batch.codec(data, start) == 0
        wanted.update(expected(data[start : start + size]))
        floor = batch.next_offset(data, start)
    assert following == floor
    assert all(latest[key] == found for key, found in wanted.items())


def test_a_short_batch_with_a_wrong_checksum_is_left_to_others() -> None:
    data = build_batch([(b"k", b"v")], timestamp_ms=1)
    good = len(data)
    data += build_batch([(b"k", b"w")], timestamp_ms=1)
    batch.assign(data, 0, 0)
    data[-1] ^= 1
    latest: Latest = {}
    assert gather_short(latest, bytes(data), 0, 0, 10)[0] == good
    assert latest == {b"k": (0, b"v")}
