"""kafka-python and aiokafka read what is written here, and the reverse, in every codec."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder as AiokafkaLegacyBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaReader

from barnabas.protocol.records import batch
from barnabas.protocol.records.compression.codecs import Codec
from barnabas.protocol.records.convert import down_convert
from barnabas.protocol.records.message_set import encode_messages
from barnabas.protocol.records.produce_rules import ProduceRules
from barnabas.protocol.records.record import Record
from barnabas.protocol.records.validate import prepare
from tests.records.vectors import T0

with warnings.catch_warnings():
    # kafka-python 3.0 reads its schemas by a function that Python 3.11 deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
    from kafka.record.legacy_records import LegacyRecordBatchBuilder as KafkaPythonLegacyBuilder
    from kafka.record.memory_records import MemoryRecords as KafkaPythonReader

READERS = [AiokafkaReader, KafkaPythonReader]
BUILDERS = [AiokafkaBuilder, KafkaPythonBuilder]
OLD = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]

OLD_FORMS = [(magic, codec) for magic in (0, 1) for codec in OLD]
OLD_FORMS_OF_AIOKAFKA = [form for form in OLD_FORMS if form != (0, Codec.LZ4)]
"""aiokafka never speaks LZ4 to brokers that know only magic 0."""


def with_old_forms(aiokafka: Any, kafka_python: Any) -> list[tuple[Any, int, Codec]]:
    return [(aiokafka, *form) for form in OLD_FORMS_OF_AIOKAFKA] + [
        (kafka_python, *form) for form in OLD_FORMS
    ]


FOUND = [
    Record(50, T0, b"a", b"x" * 3000, (("h", b"1"), ("h", None))),
    Record(51, T0 + 10, None, b"y" * 70_000),
    Record(52, T0 + 5, b"", None, (("größe", b""),)),
    *[Record(offset, T0 + offset, b"k%d" % offset, b"z" * offset) for offset in range(53, 400)],
]
BARE = [record._replace(headers=()) for record in FOUND]


def read_by(reader: Any, data: bytes | bytearray) -> list[Record]:
    """What a rival makes of the bytes; it checks the checksums too."""
    found = []
    entries = reader(bytes(data))
    while entries.has_next():
        entry = entries.next_batch()
        assert entry.validate_crc()
        found += [
            Record(
                record.offset,
                -1 if record.timestamp is None else record.timestamp,
                record.key,
                record.value,
                tuple(record.headers),
            )
            for record in entry
        ]
    return found


def built_by(builder: Any, codec: Codec, *, is_transactional: bool = False) -> bytes:
    """A batch as a rival's producer sends it."""
    building = builder(
        magic=2,
        compression_type=int(codec),
        is_transactional=int(is_transactional),
        producer_id=7 if is_transactional else -1,
        producer_epoch=2 if is_transactional else -1,
        base_sequence=11 if is_transactional else -1,
        batch_size=1 << 20,
    )
    for index, record in enumerate(FOUND):
        building.append(index, record.timestamp, record.key, record.value, list(record.headers))
    return bytes(building.build())


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("codec", Codec)
def test_rivals_read_our_batches(reader: Any, codec: Codec) -> None:
    data = batch.build_batch_of(FOUND, codec=codec)
    batch.assign(data, 50, 3)
    assert read_by(reader, data) == FOUND


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("codec", Codec)
def test_rivals_read_our_pairs(reader: Any, codec: Codec) -> None:
    pairs = [(record.key, record.value) for record in FOUND]
    data = batch.build_batch(pairs, timestamp_ms=T0, codec=codec)
    assert read_by(reader, data) == [
        Record(index, T0, key, value) for index, (key, value) in enumerate(pairs)
    ]


@pytest.mark.parametrize("builder", BUILDERS)
@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("is_transactional", [False, True])
def test_we_take_and_read_the_batches_of_rivals(
    builder: Any, codec: Codec, is_transactional: bool
) -> None:
    data = built_by(builder, codec, is_transactional=is_transactional)
    prepared = prepare(data, produce_version=9, rules=ProduceRules(), now_ms=T0)
    assert prepared
    assert bytes(prepared.batch) == data
    assert prepared.is_transactional == is_transactional
    batch.assign(prepared.batch, 50, 1)
    assert list(batch.records(prepared.batch)) == FOUND


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("builder", BUILDERS)
@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_rivals_read_what_we_recompressed_and_stamped(
    reader: Any, builder: Any, codec: Codec, wanted: str
) -> None:
    rules = ProduceRules(compression=wanted, timestamp_type="LogAppendTime")
    prepared = prepare(built_by(builder, codec), produce_version=9, rules=rules, now_ms=T0 + 99)
    assert prepared
    batch.assign(prepared.batch, 50, 1)
    assert read_by(reader, bytes(prepared.batch)) == [
        record._replace(timestamp=T0 + 99) for record in FOUND
    ]


def legacy_built_by(builder: Any, magic: int, codec: Codec) -> bytes:
    building = builder(magic=magic, compression_type=int(codec), batch_size=1 << 20)
    for index, record in enumerate(BARE):
        building.append(index, record.timestamp if magic else None, record.key, record.value)
    return bytes(building.build())


@pytest.mark.parametrize(
    ("builder", "magic", "codec"), with_old_forms(AiokafkaLegacyBuilder, KafkaPythonLegacyBuilder)
)
def test_we_take_the_messages_of_rivals(builder: Any, magic: int, codec: Codec) -> None:
    data = legacy_built_by(builder, magic, codec)
    prepared = prepare(data, produce_version=magic + 1, rules=ProduceRules(), now_ms=T0)
    assert prepared
    batch.assign(prepared.batch, 50, 1)
    assert list(batch.records(prepared.batch)) == [
        record if magic else record._replace(timestamp=-1) for record in BARE
    ]


@pytest.mark.parametrize(
    ("reader", "magic", "codec"), with_old_forms(AiokafkaReader, KafkaPythonReader)
)
def test_rivals_read_our_messages(reader: Any, magic: int, codec: Codec) -> None:
    assert read_by(reader, encode_messages(BARE, magic, codec=codec)) == [
        record if magic else record._replace(timestamp=-1) for record in BARE
    ]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("codec", OLD)
def test_rivals_read_what_we_converted_down(reader: Any, codec: Codec) -> None:
    data = down_convert(batch.build_batch_of(FOUND, codec=codec), 1, 50)
    assert read_by(reader, data) == BARE
