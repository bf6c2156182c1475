"""Records read as columns are those that are read one by one, whatever their shape."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.records import batch
from barnabas.protocol.records.columns import Columns, Section, columns, section_at
from barnabas.protocol.records.compression.codecs import Codec
from barnabas.protocol.records.corrupt_records import CorruptRecords
from barnabas.protocol.records.header import HEADER_BYTES
from barnabas.protocol.records.message_set import encode_messages
from barnabas.protocol.records.record import HeaderPair, Record, decode_records
from tests.records.test_properties import codecs, mutated, record_lists
from tests.records.vectors import T0

WRAP = 1 << 64


def records_of(found: Columns) -> list[Record]:
    keys = zip(found.key_positions.tolist(), found.key_sizes.tolist(), strict=True)
    values = zip(found.value_positions.tolist(), found.value_sizes.tolist(), strict=True)
    headers: list[tuple[HeaderPair, ...]] = [header or () for header in found.headers()]
    return [
        Record(offset, stamp, bytes_of(found, *key), bytes_of(found, *value), extra)
        for offset, stamp, key, value, extra in zip(
            found.offsets.tolist(), found.timestamps.tolist(), keys, values, headers, strict=True
        )
    ]


def bytes_of(found: Columns, place: int, size: int) -> bytes | None:
    return None if size < 0 else found.data[place : place + size]


def section_of(data: bytes, count: int) -> Section:
    return Section(data, count, 100, T0, None, 0)


@given(st.lists(st.tuples(record_lists(), codecs), max_size=4))
def test_batches_of_any_codec_read_as_what_they_were_built_from(
    found: list[tuple[list[Record], Codec]],
) -> None:
    built = [batch.build_batch_of(records, codec=codec) for records, codec in found]

    made = columns([section_at(built_batch, 0) for built_batch in built])

    assert records_of(made) == [record for records, _ in found for record in records]
    assert set(made.timestamp_types.tolist()) <= {0}


@pytest.mark.parametrize("size", [0, 40, 80, 9_000])
@pytest.mark.parametrize("count", [1, 15, 16, 17, 400])
def test_records_of_equal_length_are_found_at_once(size: int, count: int) -> None:
    made = [Record(number, T0 + 7 * number, b"k", bytes(size)) for number in range(count)]
    made[count // 2] = made[count // 2]._replace(value=bytes(size + 1))

    assert records_of(columns([section_at(batch.build_batch_of(made), 0)])) == made


def test_runs_of_any_length_may_follow_each_other() -> None:
    sizes = [5] * 100 + [6] * 3 + [5] * 20 + list(range(70)) + [9] * 64 + [8]
    made = [Record(number, T0, None, bytes(size)) for number, size in enumerate(sizes)]

    assert records_of(columns([section_at(batch.build_batch_of(made), 0)])) == made


def test_the_brokers_time_replaces_that_of_each_record() -> None:
    made = [Record(number, T0 + number, b"k", b"v") for number in range(3)]
    stamped = batch.build_batch_of(made, append_time=T0 + 50)

    found = columns([section_at(stamped, 0), section_at(batch.build_batch_of(made), 0)])

    assert found.timestamps.tolist() == [T0 + 50] * 3 + [T0, T0 + 1, T0 + 2]
    assert found.timestamp_types.tolist() == [1] * 3 + [0] * 3


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_messages_older_than_batches_read_the_same(magic: int, codec: Codec) -> None:
    made = [
        Record(number, T0 + number if magic else -1, b"k", b"v%d" % number) for number in (3, 5)
    ]
    data = encode_messages(made, magic, codec=codec)

    found = columns([section_at(data, position) for position, _ in batch.iterate(data)])

    assert records_of(found) == made
    assert set(found.timestamp_types.tolist()) == {0 if magic else -1}


def test_chosen_records_keep_everything() -> None:
    made = [Record(number, T0, b"k", b"v", (("h", None),)) for number in range(5)]
    found = columns([section_at(batch.build_batch_of(made), 0)])

    assert records_of(found.chosen(found.offsets % 2 == 0)) == made[::2]


@given(st.data(), record_lists())
def test_bytes_that_are_no_records_are_refused_by_both_or_read_the_same(
    data: st.DataObject, found: list[Record]
) -> None:
    section = bytes(batch.build_batch_of(found)[HEADER_BYTES:])
    changed = bytes(data.draw(mutated(section)))
    count = len(found)
    records = decode_records(
        changed, 0, count=count, base_offset=100, base_timestamp=T0, append_time=None
    )
    try:
        wanted = list(records)
    except CorruptRecords:
        with pytest.raises(CorruptRecords):
            columns([section_of(changed, count)]).headers()
        return
    made = records_of(columns([section_of(changed, count)]))
    assert [record._replace(timestamp=record.timestamp % WRAP) for record in made] == [
        record._replace(timestamp=record.timestamp % WRAP) for record in wanted
    ]


def test_a_batch_of_less_than_no_records_is_refused() -> None:
    data = batch.build_batch_of([Record(0, T0, b"k", b"v")])
    data[57:61] = (-1).to_bytes(4, "big", signed=True)

    with pytest.raises(CorruptRecords):
        section_at(data, 0)
