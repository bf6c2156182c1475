"""Every vector of golden-records.json, as two third-party readers agreed on it."""

from __future__ import annotations

import json

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records import batch
from barnabas.protocol.records.convert import down_convert
from barnabas.protocol.records.produce_rules import InvalidRecords, ProduceRules
from barnabas.protocol.records.record import Record
from barnabas.protocol.records.validate import prepare
from barnabas.protocol.records.varints import VARLONG_BYTES_MAX, decode_varint, encode_varint
from barnabas.protocol.records.walk import walk
from tests.records.vectors import (
    FILE,
    GOLDEN,
    RECOVERED,
    SOUND,
    T0,
    VECTORS,
    described,
    expected,
    of,
)

ASSIGNED = [
    name
    for name, vector in VECTORS.items()
    if vector.get("transform", {}).get("op") == "broker-assign-in-place"
]
DOWN = [
    name
    for name, vector in VECTORS.items()
    if vector.get("transform", {}).get("op") == "down-convert"
]
PRODUCED = [name for name, vector in VECTORS.items() if vector["stage"] == "produce"]


@pytest.mark.parametrize("name", SOUND)
def test_every_vector_reads_as_its_records(name: str) -> None:
    assert described(of(name)) == expected(name)


@pytest.mark.parametrize("name", [*SOUND, "ok-v2-epoch-flip"])
def test_every_checksum_is_valid(name: str) -> None:
    data = of(name)
    entries = list(batch.iterate(data))
    assert sum(size for _, size in entries) == len(data)
    assert all(batch.crc_is_valid(data, position, size) for position, size in entries)


@pytest.mark.parametrize("name", [name for name in SOUND if "batch" in VECTORS[name]["expect"]])
def test_every_batch_header_reads_as_its_fields(name: str) -> None:
    fields = VECTORS[name]["expect"]["batch"]
    head = batch.header(of(name))
    renamed = {"length": "batch_length", "leader_epoch": "partition_leader_epoch"}
    assert {renamed.get(key, key): value for key, value in head._asdict().items()} == fields


@pytest.mark.parametrize("name", ["v2-compacted-gaps", "v2-empty-retained"])
def test_the_next_offset_counts_what_compaction_removed(name: str) -> None:
    assert batch.next_offset(of(name)) == VECTORS[name]["next_offset"]


@pytest.mark.parametrize("name", ASSIGNED)
def test_a_produced_batch_becomes_the_stored_one(name: str) -> None:
    """Byte for byte in magic 2; from magic 1 it becomes a magic-2 batch of the same records."""
    transform = VECTORS[name]["transform"]
    rules = ProduceRules(timestamp_type=transform["timestamp_type"])
    source = of(VECTORS[name]["derived_from"])
    version = 3 if source[16] == 2 else 2
    prepared = prepare(
        source, produce_version=version, rules=rules, now_ms=transform.get("now", T0)
    )
    assert prepared
    batch.assign(prepared.batch, transform["base_offset"], transform.get("leader_epoch", 0))
    if version == 3:
        assert bytes(prepared.batch) == of(name)
    assert described(bytes(prepared.batch)) == expected(name)


@pytest.mark.parametrize("name", PRODUCED)
def test_every_produced_vector_is_accepted(name: str) -> None:
    prepared = prepare(
        of(name), produce_version=3 if of(name)[16] == 2 else 1, rules=ProduceRules(), now_ms=T0
    )
    assert prepared
    assert prepared.record_count == len(expected(name))
    assert batch.crc_is_valid(prepared.batch, 0, len(prepared.batch))


@pytest.mark.parametrize("name", DOWN)
def test_down_conversion_gives_the_vector(name: str) -> None:
    transform = VECTORS[name]["transform"]
    source = of(VECTORS[name]["derived_from"])
    assert down_convert(source, transform["to_magic"], transform["fetch_offset"]) == of(name)


@pytest.mark.parametrize("name", RECOVERED)
def test_recovery_keeps_what_the_vector_says(name: str) -> None:
    steps = walk(of(name))
    assert sum(len(entry.data) for entry in steps) == steps.valid_bytes
    assert steps.valid_bytes == VECTORS[name]["expect"]["recovery_keeps_bytes"]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("bad-v2-crc", ErrorCode.CORRUPT_MESSAGE),
        ("bad-v0-crc", ErrorCode.CORRUPT_MESSAGE),
        ("bad-magic3", ErrorCode.CORRUPT_MESSAGE),
        ("bad-nonsense-zeros", ErrorCode.CORRUPT_MESSAGE),
        ("bad-v2-count", ErrorCode.INVALID_RECORD),
    ],
)
def test_a_corrupt_vector_is_refused_on_produce(name: str, code: ErrorCode) -> None:
    data = bytearray(of(name))
    data[:8] = bytes(8)
    with pytest.raises(InvalidRecords) as caught:
        prepare(data, produce_version=1, rules=ProduceRules(), now_ms=T0)
    assert caught.value.code == code


@pytest.mark.parametrize("varint", FILE["varints"], ids=lambda varint: str(varint["value"]))
def test_every_varint_goes_both_ways(varint: dict[str, str | int]) -> None:
    data = bytes.fromhex(str(varint["hex"]))
    value = int(varint["value"])
    assert encode_varint(value) == data
    assert decode_varint(data, 0, VARLONG_BYTES_MAX) == (value, len(data))


def test_the_offsets_batch_is_built_and_read_byte_for_byte() -> None:
    vector = json.loads((GOLDEN / "golden-protocol.json").read_text())["offsets_record_batch"]
    data = bytes.fromhex(vector["hex"])
    found = list(batch.records(data))
    assert len(found) == len(vector["records"])
    assert [record.value is None for record in found] == [
        "tombstone" in text for text in vector["records"]
    ]
    pairs = [(record.key, record.value) for record in found]
    assert batch.build_batch(pairs, timestamp_ms=T0) == data


@pytest.mark.parametrize("name", [name for name in SOUND if name.startswith("v2-none")])
def test_an_uncompressed_vector_is_rebuilt_byte_for_byte(name: str) -> None:
    head = batch.header(of(name))
    found = list(batch.records(of(name)))
    if head.append_time is not None or head.max_timestamp != max(r.timestamp for r in found):
        return
    rebuilt = batch.build_batch_of(found)
    batch.assign(rebuilt, head.base_offset, head.leader_epoch)
    assert rebuilt == of(name)


def test_a_sequence_wraps_to_zero() -> None:
    data = of("v2-txn-seqwrap")
    assert batch.last_sequence(data) == 0
    assert batch.is_transactional(data)
    assert not batch.is_control(data)


def test_a_delete_horizon_leaves_the_record_timestamps_alone() -> None:
    name = "v2-delete-horizon"
    assert batch.header(of(name)).base_timestamp == VECTORS[name]["delete_horizon_ms"]
    assert [record.timestamp for record in batch.records(of(name))] == [T0, T0 + 4]


def test_a_record_is_what_it_says() -> None:
    assert next(batch.records(of("v2-none-1"))) == Record(0, T0, b"key", b"hello kafka")
