"""Produced batches for tests of what a leader makes of them."""

from __future__ import annotations

import struct

import pytest

from barnabas.protocol.records import batch
from barnabas.protocol.records.produce_rules import InvalidRecords, Prepared, ProduceRules
from barnabas.protocol.records.record import Record
from barnabas.protocol.records.validate import prepare
from tests.records.vectors import T0

RULES = ProduceRules()
STAMPED = ProduceRules(timestamp_type="LogAppendTime")
NOW = T0 + 1_000_000


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
