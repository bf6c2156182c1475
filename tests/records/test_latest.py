"""Gathering the last record of each key is reading all records and keeping the last ones.

Source: protocol/records/latest.py; log.md section 1.5.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.records import batch
from barnabas.protocol.records.batch import build_batch, build_batch_of
from barnabas.protocol.records.failures import CorruptRecords
from barnabas.protocol.records.latest import Latest, gather
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
        each.key: (each.offset, each.value) for each in batch.records(data) if each.offset >= floor
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


@given(where=st.integers(61, 200), bit=st.integers(0, 7))
def test_damaged_records_are_refused_as_everywhere_or_read_alike(where: int, bit: int) -> None:
    data = build_batch([(b"key %d" % n, b"value") for n in range(9)], timestamp_ms=1)
    data[min(where, len(data) - 1)] ^= 1 << bit
    try:
        wanted = expected(data)
    except CorruptRecords:
        with pytest.raises(CorruptRecords):
            gathered(data)
    else:
        assert gathered(data) == wanted
