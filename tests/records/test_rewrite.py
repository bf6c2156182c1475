"""What a leader changes in a produced batch, and what it leaves alone."""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records import batch
from barnabas.protocol.records.compression.codecs import Codec
from barnabas.protocol.records.produce_rules import ProduceRules
from barnabas.protocol.records.record import Record
from tests.records.producing import NOW, STAMPED, THREE, accepted, refused, with_field
from tests.records.vectors import T0

INVALID = ErrorCode.INVALID_RECORD


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
