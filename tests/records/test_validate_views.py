"""A batch in a buffer that is lent is made ready where it lies; any other is copied first."""

from __future__ import annotations

import pytest

from barnabas.protocol.records import batch
from barnabas.protocol.records.compression.codecs import Codec
from barnabas.protocol.records.produce_rules import Prepared, ProduceRules
from barnabas.protocol.records.record import Record
from barnabas.protocol.records.validate import prepare
from tests.records.vectors import T0

BEFORE, AFTER = b"before", b"after"


def lent(data: bytes) -> tuple[bytearray, memoryview]:
    """A receive buffer and, in its middle, ``data``."""
    buffer = bytearray(BEFORE + data + AFTER)
    return buffer, memoryview(buffer)[len(BEFORE) : len(BEFORE) + len(data)]


def prepared(records: bytes | memoryview, rules: ProduceRules) -> Prepared:
    found = prepare(records, produce_version=9, rules=rules, now_ms=T0 + 5)
    assert found is not None
    return found


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
def test_a_lent_batch_is_restamped_in_place(codec: Codec, timestamp_type: str) -> None:
    found = [Record(index, T0 + index % 3, b"k", b"v" * 90) for index in range(100)]
    data = bytes(batch.build_batch_of(found, codec=codec))
    rules = ProduceRules(timestamp_type=timestamp_type)
    buffer, view = lent(data)
    ready = prepared(view, rules)
    assert (ready.batch.obj if isinstance(ready.batch, memoryview) else None) is buffer
    assert bytes(ready.batch) == bytes(prepared(data, rules).batch)
    assert batch.crc_is_valid(ready.batch, 0, len(data))
    assert buffer == BEFORE + bytes(ready.batch) + AFTER


def test_a_lent_batch_that_must_be_rebuilt_leaves_the_buffer_as_it_was() -> None:
    data = bytes(batch.build_batch_of([Record(0, T0, b"k", b"v" * 100)]))
    buffer, view = lent(data)
    ready = prepared(view, ProduceRules(compression="gzip"))
    assert batch.codec(ready.batch) == Codec.GZIP
    assert buffer == BEFORE + data + AFTER


def test_a_view_that_is_read_only_is_copied() -> None:
    data = bytes(batch.build_batch_of([Record(0, T0, b"k", b"v")]))
    ready = prepared(memoryview(data), ProduceRules(timestamp_type="LogAppendTime"))
    assert isinstance(ready.batch, bytearray)
    assert data == bytes(batch.build_batch_of([Record(0, T0, b"k", b"v")]))
