"""What a leader refuses in produced batches, in which order and with which code."""

from __future__ import annotations

import struct

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records import batch, validate
from barnabas.protocol.records.compression.codecs import Codec
from barnabas.protocol.records.header import HEADER_BYTES
from barnabas.protocol.records.produce_rules import ProduceRules
from barnabas.protocol.records.record import Record
from barnabas.protocol.records.validate import prepare
from tests.records.producing import (
    NOW,
    RULES,
    STAMPED,
    THREE,
    accepted,
    records_of,
    refused,
    with_field,
)
from tests.records.vectors import T0, of

TOO_LARGE = ErrorCode.MESSAGE_TOO_LARGE
INVALID = ErrorCode.INVALID_RECORD
CORRUPT = ErrorCode.CORRUPT_MESSAGE
TIMESTAMP = ErrorCode.INVALID_TIMESTAMP
UNSUPPORTED = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
COMPRESSED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
LONG = [(b"k", b"%d bottles of milk" % number) for number in range(20_000)]


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound that snappy can reach, too."""
    monkeypatch.setattr(validate, "produced_bytes_max", lambda message_bytes_max: 200_000)


@pytest.mark.parametrize("version", range(3, 12))
@pytest.mark.parametrize("data", [None, b"", bytes(17), of("v2-none-1")[:-1]])
def test_magic_2_versions_need_a_batch(data: bytes | None, version: int) -> None:
    assert refused(data, version=version).code == INVALID


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("data", [None, b"", of("v0-none-1")[:-1], of("v1-none-create")[:-1]])
def test_old_versions_succeed_with_nothing_to_append(data: bytes | None, version: int) -> None:
    assert prepare(data, produce_version=version, rules=RULES, now_ms=NOW) is None


@pytest.mark.parametrize("name", ["v0-none-1", "v1-none-create"])
def test_magic_2_versions_take_no_older_magic(name: str) -> None:
    assert refused(of(name), version=3).code == INVALID


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("name", ["v0-none-set3", "v1-none-create", "v2-none-1"])
def test_old_versions_take_any_magic(name: str, version: int) -> None:
    """Old clients sent the wrong one: aiokafka and kafka-python put magic 2 into Produce 2."""
    assert accepted(of(name), version=version)


@pytest.mark.parametrize("version", range(3))
def test_old_versions_take_no_zstd_either(version: int) -> None:
    data = batch.build_batch_of(THREE, codec=Codec.ZSTD)
    assert refused(data, version=version).code == UNSUPPORTED


def test_a_partial_entry_behind_the_batch_is_dropped() -> None:
    data = of("v2-none-1")
    assert bytes(accepted(data + data[:40]).batch) == data


def test_the_request_is_left_as_it_was() -> None:
    data = batch.build_batch_of(THREE)
    before = bytes(data)
    prepared = accepted(data, rules=STAMPED)
    batch.assign(prepared.batch, 9, 9)
    assert data == before


def test_a_view_into_a_frame_is_enough() -> None:
    data = of("v2-none-1")
    frame = b"before" + data
    assert bytes(accepted(memoryview(frame)[6:]).batch) == data


def test_a_base_offset_from_a_client_is_refused() -> None:
    assert refused(of("v2-none-1-log")).code == INVALID


def test_the_base_offset_is_looked_at_before_the_size() -> None:
    rules = ProduceRules(message_bytes_max=10)
    assert refused(of("v2-none-1-log"), rules=rules).code == INVALID
    assert refused(of("v2-none-1"), rules=rules).code == TOO_LARGE


def test_the_size_is_looked_at_before_the_checksum() -> None:
    data = bytearray(of("v2-none-1"))
    data[-1] ^= 1
    assert refused(data, rules=ProduceRules(message_bytes_max=81)).code == TOO_LARGE
    assert refused(data, rules=ProduceRules(message_bytes_max=82)).code == CORRUPT


def test_a_batch_of_exactly_the_largest_size_is_taken() -> None:
    assert accepted(of("v2-none-1"), rules=ProduceRules(message_bytes_max=82))


@pytest.mark.parametrize("size", [-1, 0, 13, 48])
def test_a_size_below_the_least_is_corrupt(size: int) -> None:
    data = bytearray(of("v2-none-1"))
    struct.pack_into(">i", data, 8, size)
    assert refused(data).code == CORRUPT


@pytest.mark.parametrize("magic", [3, 127, 255])
def test_an_unknown_magic_is_corrupt(magic: int) -> None:
    data = bytearray(of("v2-none-1"))
    data[16] = magic
    assert refused(data).code == CORRUPT


def test_entries_of_two_magics_are_refused() -> None:
    assert refused(of("v0-none-1") + of("v1-none-create"), version=2).code == INVALID


@pytest.mark.parametrize(
    "data",
    [of("v2-none-1") * 2, of("v1-gzip-produced") * 2, of("v1-none-create") + of("v1-lz4-produced")],
    ids=["magic 2", "wrappers", "a message and a wrapper"],
)
def test_batches_and_wrappers_come_alone(data: bytes) -> None:
    assert refused(data, version=2).code == INVALID


@pytest.mark.parametrize(
    "data",
    [
        with_field(">i", 23, -1),
        with_field(">i", 23, 1),
        with_field(">i", 57, 0),
        with_field(">i", 57, -1),
        with_field(">i", 57, 2),
        with_field(">h", 21, 0x20),
        with_field(">q", 43, 7),
    ],
    ids=["negative delta", "delta", "no records", "count < 0", "count", "control", "no sequence"],
)
def test_a_header_that_contradicts_itself_is_refused(data: bytearray) -> None:
    assert refused(data).code == INVALID


def test_an_undefined_codec_is_unsupported() -> None:
    assert refused(with_field(">h", 21, 5)).code == UNSUPPORTED


def test_an_idempotent_batch_tells_its_producer() -> None:
    data = batch.build_batch_of(
        THREE, producer_id=7, producer_epoch=1, base_sequence=0x7FFFFFFE, is_transactional=True
    )
    prepared = accepted(data)
    assert prepared.batch == data
    assert prepared[4:] == (7, 1, 0x7FFFFFFE, 0, True)


@pytest.mark.parametrize("codec", Codec)
def test_more_or_fewer_records_than_counted_are_refused(codec: Codec) -> None:
    for count in (2, 4):
        data = with_field(">i", 57, count, batch.build_batch_of(THREE, codec=codec))
        assert refused(with_field(">i", 23, count - 1, data)).code == INVALID


@pytest.mark.parametrize("codec", COMPRESSED)
def test_what_does_not_decompress_is_refused(codec: Codec) -> None:
    data = with_field(">h", 21, codec)
    assert refused(data).code == INVALID


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_batch_that_expands_beyond_all_measure_is_refused(codec: Codec) -> None:
    data = batch.build_batch([(b"k", bytes(17 << 20))], timestamp_ms=T0, codec=codec)
    refusal = refused(data, rules=ProduceRules(message_bytes_max=400_000))
    assert (refusal.code, refusal.record_errors) == (TOO_LARGE, [])
    assert refusal.message.endswith("expands to more than 16777216 bytes")
    assert accepted(data, rules=ProduceRules(message_bytes_max=600_000))


def test_snappy_expands_an_entry_of_allowed_size_to_less_than_the_bound() -> None:
    data = batch.build_batch([(b"k", bytes(17 << 20))], timestamp_ms=T0, codec=Codec.SNAPPY)
    assert accepted(data, rules=ProduceRules(message_bytes_max=len(data)))
    assert refused(data, rules=ProduceRules(message_bytes_max=len(data) - 1)).code == TOO_LARGE


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_batch_that_expands_too_far_is_too_large_and_not_damaged(
    codec: Codec, little_room: None
) -> None:
    """So Java splits it and sends it again: told 87, it gave up all of its records."""
    data = batch.build_batch(LONG, timestamp_ms=T0, codec=codec)
    assert refused(data).code == TOO_LARGE


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_damaged_batch_is_damaged_however_far_it_would_expand(
    codec: Codec, little_room: None
) -> None:
    data = batch.build_batch(LONG, timestamp_ms=T0, codec=codec)
    data[HEADER_BYTES + 30 : HEADER_BYTES + 70] = b"\xff" * 40
    assert refused(data).code == CORRUPT
    batch.reseal(data)
    assert refused(data).code == INVALID


@pytest.mark.parametrize("codec", Codec)
def test_null_keys_are_named_one_by_one_in_a_compacted_topic(codec: Codec) -> None:
    found = [*records_of(T0, T0, key=None), Record(2, T0, b"", b"x"), Record(3, T0, None, b"")]
    refusal = refused(
        batch.build_batch_of(found, codec=codec), rules=ProduceRules(is_compacted=True)
    )
    assert refusal.code == INVALID
    assert [index for index, _ in refusal.record_errors] == [0, 1, 3]
    assert accepted(batch.build_batch_of(found, codec=codec))


LIMITED = ProduceRules(timestamp_before_max_ms=1000, timestamp_after_max_ms=500)


@pytest.mark.parametrize("codec", Codec)
def test_timestamps_outside_of_the_limits_are_named(codec: Codec) -> None:
    times = (NOW - 1001, NOW - 1000, NOW, NOW + 500, NOW + 501, -1)
    refusal = refused(batch.build_batch_of(records_of(*times), codec=codec), rules=LIMITED)
    assert refusal.code == TIMESTAMP
    assert [index for index, _ in refusal.record_errors] == [0, 4]


def test_timestamps_at_the_limits_and_none_at_all_are_taken() -> None:
    data = batch.build_batch_of(records_of(NOW - 1000, NOW + 500, -1))
    assert accepted(data, rules=LIMITED).max_timestamp == NOW + 500
    assert accepted(batch.build_batch_of(records_of(-1, -1)), rules=LIMITED).max_timestamp == -1


def test_a_stamping_topic_does_not_look_at_the_producers_timestamps() -> None:
    rules = ProduceRules(
        timestamp_type="LogAppendTime", timestamp_before_max_ms=0, timestamp_after_max_ms=0
    )
    assert accepted(batch.build_batch_of(THREE), rules=rules).max_timestamp == NOW


def test_a_wrong_timestamp_outranks_a_missing_key() -> None:
    found = [Record(0, T0, None, b""), Record(1, NOW + 501, b"k", b"")]
    rules = ProduceRules(is_compacted=True, timestamp_after_max_ms=500)
    refusal = refused(batch.build_batch_of(found), rules=rules)
    assert refusal.code == TIMESTAMP
    assert [index for index, _ in refusal.record_errors] == [0, 1]


def test_a_producer_may_not_stamp_like_a_broker() -> None:
    data = batch.build_batch_of(THREE, append_time=T0)
    assert refused(data, rules=STAMPED).code == TIMESTAMP
    unset = batch.build_batch_of(THREE, append_time=-1)
    assert refused(unset).code == TIMESTAMP


def test_a_stamp_that_is_a_real_time_is_cleared_in_a_topic_of_producer_time() -> None:
    prepared = accepted(batch.build_batch_of(THREE, append_time=T0))
    assert batch.timestamp_type(prepared.batch) == 0
    assert prepared.max_timestamp == T0


def test_timestamps_beyond_64_bits_are_refused() -> None:
    data = with_field(">q", 27, (1 << 63) - 5)
    assert refused(data).code == TIMESTAMP
    assert refused(data, rules=STAMPED).code == TIMESTAMP


def test_a_segment_must_hold_the_batch() -> None:
    assert refused(of("v2-none-1"), rules=ProduceRules(segment_bytes=81)).code == (
        ErrorCode.RECORD_LIST_TOO_LARGE
    )
    assert accepted(of("v2-none-1"), rules=ProduceRules(segment_bytes=82))


def test_a_batch_that_grew_by_recompression_is_measured_again() -> None:
    data = batch.build_batch([(b"k", bytes(10_000))], timestamp_ms=T0, codec=Codec.GZIP)
    rules = ProduceRules(compression="uncompressed", message_bytes_max=5000, segment_bytes=5000)
    assert refused(data, rules=rules).code == TOO_LARGE
