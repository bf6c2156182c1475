"""What a leader makes of messages that old clients produce."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records import batch, validate
from barnabas.protocol.records.compression.codecs import Codec, compress
from barnabas.protocol.records.message_set import encode_message, encode_messages
from barnabas.protocol.records.produce_rules import ProduceRules
from barnabas.protocol.records.record import Record
from tests.records.producing import NOW, STAMPED, THREE, accepted, records_of, refused
from tests.records.vectors import T0

TOO_LARGE = ErrorCode.MESSAGE_TOO_LARGE
INVALID = ErrorCode.INVALID_RECORD
CORRUPT = ErrorCode.CORRUPT_MESSAGE
TIMESTAMP = ErrorCode.INVALID_TIMESTAMP


def wrapped(inner: bytes, *, magic: int, codec: int = 1, attributes: int = 0) -> bytes:
    payload = compress(codec, inner, magic=magic)
    return encode_message(Record(0, 0, None, payload), magic, codec | attributes)


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


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_a_wrapper_that_expands_too_far_is_too_large(
    magic: int, codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = encode_messages(records_of(*[T0] * 100), magic, codec=codec)
    assert accepted(data, version=2).record_count == 100
    monkeypatch.setattr(validate, "produced_bytes_max", lambda message_bytes_max: 1000)
    assert refused(data, version=2).code == TOO_LARGE


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
