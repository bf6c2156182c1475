"""Messages of magic 0 and 1, alone and in wrappers."""

from __future__ import annotations

import zlib

import pytest

from barnabas.protocol.records import batch
from barnabas.protocol.records.compression.codecs import Codec, compress
from barnabas.protocol.records.corrupt_records import CorruptRecords
from barnabas.protocol.records.message_set import encode_message, encode_messages, messages
from barnabas.protocol.records.record import Record
from tests.records.vectors import T0, expected, of

FOUND = [Record(10, T0, b"a", b"1"), Record(11, T0 + 9, None, b"2"), Record(14, T0 + 4, b"c", None)]
WRAPPERS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4]


def wrapper(
    offset: int, inner: bytes, *, magic: int = 1, attributes: int = 1, time: int = 0
) -> bytes:
    return encode_message(
        Record(offset, time, None, compress(attributes & 7, inner, magic=magic)), magic, attributes
    )


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_come_back_with_offsets_and_timestamps(magic: int) -> None:
    data = encode_messages(FOUND, magic)
    wanted = FOUND if magic else [record._replace(timestamp=-1) for record in FOUND]
    found = [
        record for position, _ in batch.iterate(data) for record in batch.records(data, position)
    ]
    assert found == wanted


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", WRAPPERS)
def test_a_wrapper_keeps_offsets_and_timestamps(magic: int, codec: Codec) -> None:
    data = encode_messages(FOUND, magic, codec=codec)
    wanted = FOUND if magic else [record._replace(timestamp=-1) for record in FOUND]
    assert list(batch.iterate(data)) == [(0, len(data))]
    assert list(messages(data, verify=True)) == wanted
    assert batch.last_offset(data) == 14
    assert batch.max_timestamp(data) == (T0 + 9 if magic else -1)


def test_the_least_entries_have_26_and_34_bytes() -> None:
    assert len(encode_message(Record(0, 0, None, None), 0)) == 26
    assert len(encode_message(Record(0, 0, None, None), 1)) == 34


@pytest.mark.parametrize("name", ["v0-none-1", "v0-none-nullkey", "v1-none-create", "v1-none-nots"])
def test_a_vector_is_written_byte_for_byte(name: str) -> None:
    data = of(name)
    assert encode_message(next(messages(data)), data[16]) == data


@pytest.mark.parametrize(("offset", "first"), [(0, 0), (2, 0), (12, 10), (1000, 998)])
def test_a_magic_1_wrapper_places_its_messages_by_the_last(offset: int, first: int) -> None:
    inner = encode_messages([Record(index, T0, b"k", b"v") for index in range(3)], 1)
    found = list(messages(wrapper(offset, inner)))
    assert [record.offset for record in found] == [first, first + 1, first + 2]


def test_a_magic_1_wrapper_below_its_last_message_is_invalid() -> None:
    inner = encode_messages([Record(index, T0, b"k", b"v") for index in range(3)], 1)
    with pytest.raises(CorruptRecords):
        messages(wrapper(1, inner))


def test_a_magic_0_wrapper_leaves_the_offsets_inside_alone() -> None:
    inner = encode_messages(FOUND, 0)
    assert [record.offset for record in messages(wrapper(3, inner, magic=0))] == [10, 11, 14]


def test_a_stamped_wrapper_gives_its_time_to_all_inside() -> None:
    data = wrapper(14, encode_messages(FOUND, 1), attributes=8 | 1, time=T0 + 77)
    assert {record.timestamp for record in messages(data)} == {T0 + 77}


def test_stamps_inside_of_an_unstamped_wrapper_mean_nothing() -> None:
    inner = encode_messages(FOUND, 1, append_time=T0 + 3)
    found = list(messages(wrapper(14, inner, time=T0 + 77)))
    assert {record.timestamp for record in found} == {T0 + 3}


def test_a_checksum_inside_matters_only_when_asked_for() -> None:
    inner = bytearray(encode_messages(FOUND, 1))
    inner[12] ^= 1
    data = wrapper(14, bytes(inner))
    assert len(list(messages(data))) == 3
    with pytest.raises(CorruptRecords):
        messages(data, verify=True)


def test_java_reads_nothing_but_its_own_lz4_frames() -> None:
    assert encode_messages(FOUND, 0, codec=3)[26 + 6] == 0x1A
    assert encode_messages(FOUND, 1, codec=3)[34 + 6] == 0x82


@pytest.mark.parametrize(
    "fields",
    [
        "fffffffe 00000000",
        "00000005 00000000",
        "00000000 00000001",
        "00000000",
        "7fffffff 00000000",
    ],
)
def test_fields_that_do_not_fill_their_message_are_corrupt(fields: str) -> None:
    body = bytes.fromhex("0000" + fields.replace(" ", ""))
    data = (
        bytes(8) + (4 + len(body)).to_bytes(4, "big") + zlib.crc32(body).to_bytes(4, "big") + body
    )
    with pytest.raises(CorruptRecords):
        messages(data)


def test_compaction_leaves_gaps_inside_of_a_wrapper() -> None:
    found = list(messages(of("v1-gzip-compacted")))
    assert [record.offset for record in found] == [
        record["offset"] for record in expected("v1-gzip-compacted")
    ]
