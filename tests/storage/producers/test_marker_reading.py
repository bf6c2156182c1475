"""A marker is read at once when it looks as always, and as any batch of records otherwise."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.storage.producers.ongoing_transactions import (
    Ending,
    ending_in,
    ending_in_any,
)
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.control import Marker, encode_marker


def marker_batch(marker: Marker, epoch: int) -> bytearray:
    return build_batch(
        [encode_marker(marker, epoch)],
        timestamp_ms=1_780_000_000_000,
        producer_id=7,
        producer_epoch=3,
        is_transactional=True,
        is_control=True,
    )


@given(st.sampled_from(Marker), st.integers(-(2**31), 2**31 - 1))
def test_a_marker_as_it_is_written_is_read(marker: Marker, epoch: int) -> None:
    batch = marker_batch(marker, epoch)
    assert ending_in(batch) == ending_in(memoryview(batch)) == Ending(marker, epoch)


@given(
    st.sampled_from(Marker),
    st.dictionaries(st.integers(8, 77), st.integers(0, 255), min_size=1, max_size=3),
)
def test_a_marker_with_other_bytes_is_what_reading_its_records_says(
    marker: Marker, changes: dict[int, int]
) -> None:
    batch = marker_batch(marker, 5)
    for at, byte in changes.items():
        batch[at] = byte
    assert ending_in(batch) == ending_in_any(batch)
