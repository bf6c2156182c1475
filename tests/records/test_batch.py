"""Entries read where they lie, and batches built."""

from __future__ import annotations

import struct

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records import batch
from barnabas.protocol.records.compression.codecs import Codec
from barnabas.protocol.records.corrupt_records import CorruptRecords, ExpandsTooFar
from barnabas.protocol.records.header import sequence_after
from barnabas.protocol.records.record import Record
from tests.records.vectors import T0, of

PAIRS: list[tuple[bytes | None, bytes | None]] = [
    (b"key", b"value"),
    (None, b"no key"),
    (b"tombstone", None),
    (b"", b""),
    (b"k" * 1023, b"v" * 1024),
    (b"k" * 70_000, b"v" * 9000),
]


def sealed(section: bytes, *, count: int = 1) -> bytearray:
    """A batch around a record section as it is."""
    data = batch.build_batch([(b"k", b"v")], timestamp_ms=T0)[: batch.HEADER_BYTES] + section
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">i", data, 57, count)
    batch.reseal(data)
    return data


@pytest.mark.parametrize("codec", Codec)
def test_pairs_come_back_as_records(codec: Codec) -> None:
    data = batch.build_batch(PAIRS, timestamp_ms=T0, codec=codec)
    assert list(batch.records(data)) == [
        Record(index, T0, key, value) for index, (key, value) in enumerate(PAIRS)
    ]
    assert batch.crc_is_valid(data, 0, len(data))
    assert batch.codec(data) == codec


def test_both_builders_agree_byte_for_byte() -> None:
    found = [Record(index, T0, key, value) for index, (key, value) in enumerate(PAIRS)]
    assert batch.build_batch(PAIRS, timestamp_ms=T0) == batch.build_batch_of(found)


@pytest.mark.parametrize(
    ("key", "value"),
    [(key, value) for key, value in PAIRS if key is not None] + [(b"k" * 70_000, b"v")],
)
def test_a_single_pair_makes_the_same_batch_either_way(key: bytes, value: bytes | None) -> None:
    for stamp in (T0, T0 + 1, T0):
        expected = batch.build_batch([(key, value)], timestamp_ms=stamp)
        assert batch.build_single(key, value, stamp) == expected


def test_more_pairs_than_small_varints_are_numbered_on() -> None:
    data = batch.build_batch([(b"k", b"v")] * 9000, timestamp_ms=T0)
    assert [record.offset for record in batch.records(data)] == list(range(9000))


def test_a_batch_begins_at_offset_0_and_epoch_minus_1() -> None:
    data = batch.build_batch(PAIRS, timestamp_ms=T0)
    assert (batch.base_offset(data), batch.leader_epoch(data)) == (0, -1)
    assert batch.next_offset(data) == len(PAIRS)


def test_the_whole_header_is_what_was_asked_for() -> None:
    data = batch.build_batch(
        PAIRS,
        timestamp_ms=T0,
        producer_id=7,
        producer_epoch=2,
        base_sequence=5,
        is_transactional=True,
        is_control=True,
    )
    batch.assign(data, 100, 3)
    head = batch.header(data)
    count = len(PAIRS)
    assert head[:4] == (100, len(data) - 12, 3, 2)
    assert head[5:] == (0x30, count - 1, T0, T0, 7, 2, 5, count)
    assert (head.last_offset, head.last_sequence) == (99 + count, 4 + count)
    assert (batch.producer_id(data), batch.producer_epoch(data)) == (7, 2)
    assert (batch.base_sequence(data), batch.last_sequence(data)) == (5, 4 + count)
    assert (batch.last_offset(data), batch.record_count(data)) == (99 + count, count)
    assert batch.is_transactional(data)
    assert batch.is_control(data)


def test_records_keep_gaps_offsets_headers_and_timestamps() -> None:
    found = [
        Record(100, T0, b"a", b"1", (("h", b"x"), ("h", None), ("ü", b""))),
        Record(103, T0 - 50, None, b"2"),
        Record(9000, T0 + 86_400_000, b"c", None),
    ]
    data = batch.build_batch_of(found, base_sequence=1, producer_id=1, producer_epoch=0)
    assert list(batch.records(data)) == found
    assert batch.base_offset(data) == 100
    assert batch.max_timestamp(data) == T0 + 86_400_000


def test_the_append_time_replaces_every_timestamp() -> None:
    data = batch.build_batch_of(
        [Record(0, T0, b"a", b"1"), Record(1, 5, b"a", b"2")], append_time=9
    )
    assert [record.timestamp for record in batch.records(data)] == [9, 9]
    assert batch.timestamp_type(data) == 1


@pytest.mark.parametrize(
    ("base", "delta", "sequence"),
    [(0, 0, 0), (7, 2, 9), (2147483647, 1, 0), (2147483646, 2, 0), (2147483647, 5, 4), (-1, 3, -1)],
)
def test_sequences_wrap_and_none_stays_none(base: int, delta: int, sequence: int) -> None:
    assert sequence_after(base, delta) == sequence


@pytest.mark.parametrize(
    "name", ["v0-none-set3", "v1-gzip-log", "v2-none-1-log", "mixed-magic-file"]
)
def test_positions_are_respected(name: str) -> None:
    data = of(name)
    shifted = b"\xaa" * 7 + data
    for (position, size), (moved, same) in zip(
        batch.iterate(data), batch.iterate(shifted, 7), strict=True
    ):
        assert (moved, same) == (position + 7, size)
        assert batch.size(shifted, moved) == size
        assert batch.last_offset(shifted, moved) == batch.last_offset(data, position)
        assert batch.max_timestamp(shifted, moved) == batch.max_timestamp(data, position)
        assert batch.attributes(shifted, moved) == batch.attributes(data, position)
        assert batch.crc_is_valid(shifted, moved, size)
        assert list(batch.records(shifted, moved)) == list(batch.records(data, position))


@pytest.mark.parametrize("form", [bytes, bytearray, memoryview])
def test_any_buffer_will_do(form: type[bytes | bytearray | memoryview]) -> None:
    data = form(of("v2-none-mixed"))
    assert len(list(batch.iterate(data))) == 1
    keys = [record.key for record in batch.records(data)]
    assert all(key is None or type(key) is bytes for key in keys)
    assert batch.crc_is_valid(data, 0, len(data))


def test_a_legacy_message_has_neither_epoch_nor_producer() -> None:
    data = of("v1-none-create")
    assert batch.leader_epoch(data) == -1
    assert not batch.is_control(data)
    assert not batch.is_transactional(data)


@pytest.mark.parametrize("kept", range(0, 82, 7))
def test_iteration_ends_silently_at_a_cut_entry(kept: int) -> None:
    data = of("v2-none-1")
    assert list(batch.iterate(data + data[:kept])) == [(0, 82)]


@pytest.mark.parametrize(
    ("size", "magic"), [(13, 0), (0, 2), (-1, 2), (21, 1), (48, 2), (70, 3), (70, 255)]
)
def test_iteration_refuses_what_no_entry_can_be(size: int, magic: int) -> None:
    data = bytearray(of("v2-none-1"))
    struct.pack_into(">i", data, 8, size)
    data[16] = magic
    with pytest.raises(CorruptRecords) as caught:
        list(batch.iterate(data))
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


GOOD = bytes.fromhex("10 00 00 00 02 6b 02 76 00")


@pytest.mark.parametrize(
    "section",
    [
        "",
        "10 00 00 00 02 6b 02 76",
        "0e 00 00 00 02 6b 02 76 00",
        "12 00 00 00 02 6b 02 76 00",
        "10 00 00 00 02 6b 02 76 00 00",
        "0f 00 00 00 02 6b 02 76 00",
        "00",
        "10 00 00 00 03 6b 02 76 00",
        "10 00 00 00 02 6b 03 76 00",
        "10 00 00 00 7e 6b 02 76 00",
        "10 00 00 00 02 6b 7e 76 00",
        "10 00 00 00 02 6b 02 76 01",
        "10 00 00 00 02 6b 02 76 7e",
        "14 00 00 00 02 6b 02 76 02 01 00",
        "ff ff ff ff ff 0f",
        "24 00 ff ff ff ff ff ff ff ff ff ff 01 00 02 6b 02 76 00",
    ],
)
def test_a_section_that_is_not_its_records_is_refused(section: str) -> None:
    assert len(list(batch.records(sealed(GOOD)))) == 1
    with pytest.raises(CorruptRecords):
        list(batch.records(sealed(bytes.fromhex(section))))


def test_the_records_before_a_bad_one_are_given() -> None:
    found = batch.records(sealed(GOOD, count=2))
    assert next(found).key == b"k"
    with pytest.raises(CorruptRecords):
        next(found)


def test_an_empty_batch_has_no_records() -> None:
    assert list(batch.records(of("v2-empty-retained"))) == []


def test_records_of_a_stored_bomb_may_be_bounded() -> None:
    data = batch.build_batch([(b"k", bytes(1 << 20))], timestamp_ms=T0, codec=Codec.ZSTD)
    with pytest.raises(ExpandsTooFar) as caught:
        list(batch.records(data, bytes_max=1 << 16))
    assert caught.value.code is ErrorCode.INVALID_RECORD, "no producer sent it just now"
