"""What a leader refuses in produced records, with which code, and what it rewrites."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records import batch
from barnabas.protocol.records.codecs import Codec, compress
from barnabas.protocol.records.message_set import encode_message, encode_messages
from barnabas.protocol.records.record import Record
from barnabas.protocol.records.validate import (
    InvalidRecords,
    Prepared,
    ProduceRules,
    prepare,
)
from tests.records.vectors import T0, of

RULES = ProduceRules()
STAMPED = ProduceRules(timestamp_type="LogAppendTime")
NOW = T0 + 1_000_000

TOO_LARGE = ErrorCode.MESSAGE_TOO_LARGE
INVALID = ErrorCode.INVALID_RECORD
CORRUPT = ErrorCode.CORRUPT_MESSAGE
TIMESTAMP = ErrorCode.INVALID_TIMESTAMP
UNSUPPORTED = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def records_of(*timestamps: int, key: bytes | None = b"key") -> list[Record]:
    return [Record(index, time, key, b"value") for index, time in enumerate(timestamps)]


THREE = records_of(T0, T0 + 10, T0 + 5)


def accepted(
    data: bytes | bytearray | memoryview | None, *, version: int = 9, rules: ProduceRules = RULES
) -> Prepared:
    prepared = prepare(data, produce_version=version, rules=rules, now_ms=NOW)
    assert prepared
    assert batch.crc_is_valid(prepared.batch, 0, len(prepared.batch))
    assert batch.size(prepared.batch) == len(prepared.batch)
    assert batch.base_offset(prepared.batch) == 0
    return prepared


def refused(
    data: bytes | bytearray | None, *, version: int = 9, rules: ProduceRules = RULES
) -> InvalidRecords:
    with pytest.raises(InvalidRecords) as caught:
        prepare(data, produce_version=version, rules=rules, now_ms=NOW)
    return caught.value


def with_field(form: str, position: int, value: int, data: bytearray | None = None) -> bytearray:
    """A batch with one header field changed and the checksum right again."""
    data = batch.build_batch_of(THREE) if data is None else data
    struct.pack_into(form, data, position, value)
    batch.reseal(data)
    return data


def wrapped(inner: bytes, *, magic: int, codec: int = 1, attributes: int = 0) -> bytes:
    payload = compress(codec, inner, magic=magic)
    return encode_message(Record(0, 0, None, payload), magic, codec | attributes)


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
    assert accepted(data + data[:40]).batch == data


def test_the_request_is_left_as_it_was() -> None:
    data = batch.build_batch_of(THREE)
    before = bytes(data)
    prepared = accepted(data, rules=STAMPED)
    batch.assign(prepared.batch, 9, 9)
    assert data == before


def test_a_view_into_a_frame_is_enough() -> None:
    data = of("v2-none-1")
    frame = b"before" + data
    assert accepted(memoryview(frame)[6:]).batch == data


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
def test_a_good_batch_is_taken_over_as_it_is(codec: Codec) -> None:
    data = batch.build_batch_of(THREE, codec=codec)
    prepared = accepted(data)
    assert prepared.batch == data
    assert prepared[1:] == (3, T0 + 10, -1, -1, -1, -1, -1, False)


@pytest.mark.parametrize("codec", Codec)
def test_a_lying_maximum_timestamp_is_corrected(codec: Codec) -> None:
    data = batch.build_batch_of(THREE, codec=codec)
    lying = with_field(">q", 35, T0 + 999, bytearray(data))
    prepared = accepted(lying)
    assert prepared.batch == data
    assert prepared.max_timestamp == T0 + 10


@pytest.mark.parametrize("codec", Codec)
def test_a_stamping_topic_sets_bit_and_maximum_and_leaves_the_records(codec: Codec) -> None:
    data = batch.build_batch_of(THREE, codec=codec)
    prepared = accepted(data, rules=STAMPED)
    assert prepared.max_timestamp == prepared.log_append_time == NOW
    assert batch.timestamp_type(prepared.batch) == 1
    assert prepared.batch[61:] == data[61:]
    assert {record.timestamp for record in batch.records(prepared.batch)} == {NOW}


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_the_topics_codec_replaces_the_producers(codec: Codec, wanted: str) -> None:
    data = batch.build_batch_of(
        THREE, codec=codec, producer_id=7, producer_epoch=1, base_sequence=5, is_transactional=True
    )
    prepared = accepted(data, rules=ProduceRules(compression=wanted))
    expected = Codec["NONE" if wanted == "uncompressed" else wanted.upper()]
    assert batch.codec(prepared.batch) == expected
    assert list(batch.records(prepared.batch)) == THREE
    assert batch.header(prepared.batch)[6:12] == batch.header(data)[6:12]
    assert batch.is_transactional(prepared.batch)


def test_the_level_of_the_topics_codec_is_taken() -> None:
    data = batch.build_batch([(b"k", bytes(range(256)) * 20)] * 20, timestamp_ms=T0)
    fast, small = (
        accepted(data, rules=ProduceRules(compression="gzip", compression_level=level))
        for level in (1, 9)
    )
    assert len(small.batch) < len(fast.batch)


GAPPED = [Record(0, T0, b"a", b"1"), Record(2, T0 + 1, b"b", b"2")]


def test_odd_offset_deltas_are_refused_where_nothing_is_compressed() -> None:
    """Kafka lets them pass; nobody could ever fetch by such offsets."""
    assert refused(with_field(">i", 23, 1, batch.build_batch_of(GAPPED))).code == INVALID


def test_odd_offset_deltas_are_renumbered_where_all_is_compressed() -> None:
    data = batch.build_batch_of(
        GAPPED, codec=Codec.LZ4, producer_id=7, producer_epoch=0, base_sequence=3
    )
    prepared = accepted(with_field(">i", 23, 1, data))
    assert [record.offset for record in batch.records(prepared.batch)] == [0, 1]
    assert prepared.last_sequence == 4
    assert batch.codec(prepared.batch) == Codec.LZ4


@pytest.mark.parametrize("codec", Codec)
def test_more_or_fewer_records_than_counted_are_refused(codec: Codec) -> None:
    for count in (2, 4):
        data = with_field(">i", 57, count, batch.build_batch_of(THREE, codec=codec))
        assert refused(with_field(">i", 23, count - 1, data)).code == INVALID


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_what_does_not_decompress_is_refused(codec: Codec) -> None:
    data = with_field(">h", 21, codec)
    assert refused(data).code == INVALID


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_batch_that_expands_beyond_all_measure_is_refused(codec: Codec) -> None:
    data = batch.build_batch([(b"k", bytes(17 << 20))], timestamp_ms=T0, codec=codec)
    assert refused(data, rules=ProduceRules(message_bytes_max=400_000)).code == INVALID
    assert accepted(data, rules=ProduceRules(message_bytes_max=600_000))


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


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_old_messages_become_one_batch(magic: int, codec: Codec) -> None:
    prepared = accepted(encode_messages(THREE, magic, codec=codec), version=magic + 1)
    found = list(batch.records(prepared.batch))
    wanted = THREE if magic else [record._replace(timestamp=-1) for record in THREE]
    assert found == wanted
    assert batch.codec(prepared.batch) == codec
    assert prepared[1:] == (3, wanted[1].timestamp, -1, -1, -1, -1, -1, False)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages_are_stamped_and_recompressed_as_the_topic_wants(magic: int) -> None:
    rules = ProduceRules(timestamp_type="LogAppendTime", compression="zstd")
    prepared = accepted(encode_messages(THREE, magic), version=2, rules=rules)
    assert batch.codec(prepared.batch) == Codec.ZSTD
    assert prepared.log_append_time == NOW
    assert {record.timestamp for record in batch.records(prepared.batch)} == {NOW}


def test_odd_inner_offsets_of_old_clients_are_renumbered() -> None:
    """KAFKA-9669, sarama #1002."""
    odd = [THREE[0]._replace(offset=5), THREE[1]._replace(offset=5), THREE[2]._replace(offset=1)]
    inner = b"".join(encode_message(record, 1) for record in odd)
    prepared = accepted(wrapped(inner, magic=1), version=2)
    assert list(batch.records(prepared.batch)) == THREE


def test_a_cut_inner_message_is_dropped_silently() -> None:
    inner = encode_messages(THREE, 1)
    assert accepted(wrapped(inner + inner[:30], magic=1), version=2).record_count == 3


def flipped(data: bytes, position: int) -> bytes:
    changed = bytearray(data)
    changed[position] ^= 1
    return bytes(changed)


@pytest.mark.parametrize(
    ("inner", "code"),
    [
        (flipped(encode_messages(THREE, 1), -1), CORRUPT),
        (encode_messages(THREE, 0), INVALID),
        (encode_messages(THREE, 1, codec=1), INVALID),
        (b"", INVALID),
        (b"not a message set, but long enough", INVALID),
        (bytes(40), CORRUPT),
    ],
    ids=["checksum", "other magic", "nested", "empty", "cut", "zeros"],
)
def test_the_inside_of_a_wrapper_is_checked(inner: bytes, code: ErrorCode) -> None:
    assert refused(wrapped(inner, magic=1), version=2).code == code


def test_a_wrapper_without_value_is_refused() -> None:
    data = encode_message(Record(0, 0, None, None), 1, Codec.GZIP)
    assert refused(data, version=2).code == INVALID


@pytest.mark.parametrize("codec", [4, 5, 7])
@pytest.mark.parametrize("magic", [0, 1])
def test_old_wrappers_know_three_codecs(magic: int, codec: int) -> None:
    data = encode_message(Record(0, 0, None, b"x"), magic, codec)
    assert refused(data, version=2).code == INVALID


@pytest.mark.parametrize("magic", [0, 1])
def test_the_checksum_of_an_old_message_is_checked(magic: int) -> None:
    assert refused(flipped(encode_messages(THREE, magic), 20), version=2).code == CORRUPT


def test_an_old_stamped_wrapper_is_refused_by_a_stamping_topic() -> None:
    data = wrapped(encode_messages(THREE, 1), magic=1, attributes=8)
    assert refused(data, version=2, rules=STAMPED).code == TIMESTAMP
    assert accepted(data, version=2).max_timestamp == 0


def test_old_messages_obey_the_topic_too() -> None:
    rules = ProduceRules(is_compacted=True, timestamp_before_max_ms=1000)
    no_key = encode_messages(records_of(NOW, NOW, key=None), 1)
    assert [index for index, _ in refused(no_key, version=2, rules=rules).record_errors] == [0, 1]
    late = encode_messages(records_of(NOW, T0, NOW), 1)
    refusal = refused(late, version=2, rules=rules)
    assert (refusal.code, [index for index, _ in refusal.record_errors]) == (TIMESTAMP, [1])


def test_an_upconverted_batch_is_measured_again() -> None:
    data = encode_messages(THREE, 0)
    assert max(size for _, size in batch.iterate(data)) < 40
    assert refused(data, version=1, rules=ProduceRules(message_bytes_max=40)).code == TOO_LARGE
    assert refused(data, version=1, rules=ProduceRules(segment_bytes=40)).code == (
        ErrorCode.RECORD_LIST_TOO_LARGE
    )


def test_old_timestamps_that_no_batch_can_hold_are_refused() -> None:
    data = encode_messages(records_of(-(1 << 63), (1 << 63) - 1), 1)
    assert refused(data, version=2).code == TIMESTAMP


@pytest.mark.parametrize("build", [batch.build_batch_of, lambda found: encode_messages(found, 1)])
def test_tombstones_and_empty_values_survive(
    build: Callable[[list[Record]], bytes | bytearray],
) -> None:
    found = [Record(0, T0, b"k", None), Record(1, T0, b"", b""), Record(2, T0, None, b"v")]
    assert list(batch.records(accepted(build(found), version=2).batch)) == found
