"""Stored batches for clients that know only older formats."""

from __future__ import annotations

import struct

import pytest

from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.records import batch
from barnabas.protocol.records.compression.codecs import Codec
from barnabas.protocol.records.control import Marker, encode_marker
from barnabas.protocol.records.convert import down_convert, up_convert
from barnabas.protocol.records.message_set import encode_messages
from barnabas.protocol.records.record import Record
from tests.records.vectors import T0, described, of

FOUND = [
    Record(40, T0, b"a", b"1", (("h", b"x"),)),
    Record(41, T0 + 9, None, b"2"),
    Record(42, T0 + 4, b"c", None),
]
BARE = [record._replace(headers=()) for record in FOUND]
OLD = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4]


def everything(data: bytes) -> list[Record]:
    return [
        record for position, _ in batch.iterate(data) for record in batch.records(data, position)
    ]


@pytest.mark.parametrize("codec", [Codec.NONE, *OLD])
@pytest.mark.parametrize("magic", [0, 1])
def test_offsets_keys_and_values_stay_and_headers_go(codec: Codec, magic: int) -> None:
    found = everything(down_convert(batch.build_batch_of(FOUND, codec=codec), magic, 40))
    assert found == (BARE if magic else [record._replace(timestamp=-1) for record in BARE])


@pytest.mark.parametrize("codec", OLD)
def test_a_compressed_batch_becomes_one_wrapper_with_all_its_records(codec: Codec) -> None:
    """Clients filter; to drop records would mean to compress again for every fetch."""
    data = down_convert(batch.build_batch_of(FOUND, codec=codec), 1, 42)
    assert list(batch.iterate(data)) == [(0, len(data))]
    assert batch.codec(data) == codec
    assert batch.last_offset(data) == 42
    assert everything(data) == BARE


def test_uncompressed_records_below_the_fetch_offset_are_dropped() -> None:
    """KAFKA-5360: librdkafka takes what it asked for and more, but not what it did not."""
    assert everything(down_convert(batch.build_batch_of(FOUND), 1, 41)) == BARE[1:]


def test_control_batches_are_dropped() -> None:
    marker = batch.build_batch(
        [encode_marker(Marker.COMMIT, 9)],
        timestamp_ms=T0,
        producer_id=7,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
    )
    assert down_convert(marker, 1, 0) == b""
    assert everything(down_convert(bytes(marker + batch.build_batch_of(FOUND)), 1, 0)) == BARE


def test_empty_batches_are_dropped() -> None:
    assert down_convert(of("v2-empty-retained"), 1, 0) == b""


def test_the_brokers_time_is_kept_with_its_mark() -> None:
    data = down_convert(batch.build_batch_of(FOUND, append_time=T0 + 50), 1, 0)
    assert {row["timestamp_type"] for row in described(data)} == {1}
    assert {row["timestamp"] for row in described(data)} == {T0 + 50}


@pytest.mark.parametrize("codec", OLD)
def test_the_brokers_time_is_kept_on_a_wrapper(codec: Codec) -> None:
    data = down_convert(batch.build_batch_of(FOUND, append_time=T0 + 50, codec=codec), 1, 0)
    assert {(row["timestamp_type"], row["timestamp"]) for row in described(data)} == {(1, T0 + 50)}


def test_zstd_is_refused() -> None:
    with pytest.raises(Refused) as caught:
        down_convert(batch.build_batch_of(FOUND, codec=Codec.ZSTD), 1, 0)
    assert caught.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_what_comes_before_zstd_is_still_given() -> None:
    readable = bytes(batch.build_batch_of(FOUND))
    zstd = bytes(batch.build_batch_of(FOUND, codec=Codec.ZSTD))
    assert down_convert(readable + zstd + readable, 1, 0) == down_convert(readable, 1, 0)


@pytest.mark.parametrize("magic", [0, 1])
def test_what_is_old_enough_is_copied(magic: int) -> None:
    data = encode_messages(BARE, magic) + encode_messages(BARE, magic, codec=Codec.GZIP)
    assert down_convert(data, magic, 42) == data


@pytest.mark.parametrize("codec", [Codec.NONE, *OLD])
def test_stored_magic_1_becomes_magic_0(codec: Codec) -> None:
    data = down_convert(encode_messages(BARE, 1, codec=codec), 0, 40)
    assert {batch.magic(data, position) for position, _ in batch.iterate(data)} == {0}
    assert everything(data) == [record._replace(timestamp=-1) for record in BARE]


def test_a_mixed_file_comes_in_one_magic() -> None:
    data = down_convert(of("mixed-magic-file"), 0, 0)
    assert {batch.magic(data, position) for position, _ in batch.iterate(data)} == {0}
    assert [record.offset for record in everything(data)] == [0, 1, 2]


@pytest.mark.parametrize("codec", [Codec.NONE, *OLD])
def test_a_batch_that_lost_its_last_records_is_passed_over_behind_those_that_are_left(
    codec: Codec,
) -> None:
    """Given those before its offset again, a client would ask for the same batch for ever."""
    compacted = bytearray(batch.build_batch_of(FOUND[:2], codec=codec))
    struct.pack_into(">i", compacted, 23, 9)  # the last offset: 40 to 49 were there
    following = bytes(batch.build_batch_of([Record(50, T0, b"k", b"v")]))
    assert everything(down_convert(compacted, 1, 42)) == []
    assert [one.offset for one in everything(down_convert(compacted + following, 1, 42))] == [50]
    assert [one.offset for one in everything(down_convert(compacted, 1, 41))][-1] == 41


def test_a_cut_tail_is_left_out() -> None:
    data = batch.build_batch_of(FOUND)
    assert everything(down_convert(data + data[:50], 1, 0)) == BARE


def test_conversion_stops_at_the_bound_after_a_whole_entry() -> None:
    data = bytes(batch.build_batch_of(FOUND))
    one = down_convert(data, 1, 0)
    assert down_convert(data * 3, 1, 0, bytes_max=1) == one
    assert down_convert(data * 3, 1, 0, bytes_max=len(one) + 1) == one * 2


def test_the_lz4_header_of_magic_0_is_the_wrong_one() -> None:
    data = down_convert(batch.build_batch_of(FOUND, codec=Codec.LZ4), 0, 0)
    assert data[26 + 6] == 0x1A


@pytest.mark.parametrize("codec", Codec)
def test_up_conversion_numbers_from_0(codec: Codec) -> None:
    data = up_convert(BARE, codec=codec)
    assert list(batch.records(data)) == [
        record._replace(offset=index) for index, record in enumerate(BARE)
    ]
    assert batch.codec(data) == codec
    assert batch.header(data)[9:12] == (-1, -1, -1)
