"""Transaction markers."""

from __future__ import annotations

import pytest

from barnabas.protocol.records import batch
from barnabas.protocol.records.control import (
    Marker,
    coordinator_epoch,
    encode_marker,
    parse_marker,
)
from barnabas.protocol.records.corrupt_records import CorruptRecords
from tests.records.vectors import T0, of

VECTORS = [("v2-control-commit", Marker.COMMIT), ("v2-control-abort", Marker.ABORT)]


@pytest.mark.parametrize(("name", "marker"), VECTORS)
def test_a_marker_tells_how_and_in_which_epoch(name: str, marker: Marker) -> None:
    data = of(name)
    record = next(batch.records(data))
    assert batch.is_control(data)
    assert parse_marker(record.key) is marker
    assert coordinator_epoch(record.value) == 9


@pytest.mark.parametrize(("name", "marker"), VECTORS)
def test_a_marker_is_built_byte_for_byte(name: str, marker: Marker) -> None:
    data = batch.build_batch(
        [encode_marker(marker, 9)],
        timestamp_ms=T0 + 100,
        producer_id=4242,
        producer_epoch=3,
        is_transactional=True,
        is_control=True,
    )
    batch.assign(data, 63, 1)
    assert data == of(name)


def test_an_unknown_type_is_skipped_and_an_unknown_version_read_as_0() -> None:
    assert parse_marker(bytes.fromhex("00000002")) is None
    assert parse_marker(bytes.fromhex("00070001ffff")) is Marker.COMMIT


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0"])
def test_a_marker_without_a_type_is_corrupt(key: bytes | None) -> None:
    with pytest.raises(CorruptRecords):
        parse_marker(key)


@pytest.mark.parametrize("value", [None, b"", b"\0\0\0\0\0"])
def test_a_marker_without_an_epoch_is_corrupt(value: bytes | None) -> None:
    with pytest.raises(CorruptRecords):
        coordinator_epoch(value)
