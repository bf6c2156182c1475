"""Reading: bounds, sizes, segments, readers that outlive a segment."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.records.batch import assign
from tests.storage.log_harness import LogHarness, batch, offsets_of, read_all, spans_of


@pytest.fixture
def harness(tmp_path: Path) -> LogHarness:
    """Batches 0-2, 3-7, 8-9 of 100, 200 and 100 bytes."""
    harness = LogHarness(tmp_path / "t-0")
    for count, size in ((3, 130), (5, 200), (2, 100)):
        harness.append(batch(count, size=size))
    return harness


def read(
    harness: LogHarness, offset: int, end: int = 10, bytes_max: int = 10_000
) -> list[tuple[int, int]]:
    return spans_of(harness.log.read(offset, bytes_max=bytes_max, end=end, at_least_one=True))


def test_a_read_begins_with_the_batch_that_holds_the_offset(harness: LogHarness) -> None:
    assert read(harness, 5) == [(3, 7), (8, 9)]


def test_a_read_stops_before_the_batch_that_holds_the_bound(harness: LogHarness) -> None:
    assert read(harness, 3, end=5) == []
    assert read(harness, 0, end=5) == [(0, 2)]
    assert read(harness, 0, end=8) == [(0, 2), (3, 7)]


def test_a_read_returns_whole_batches_up_to_the_limit(harness: LogHarness) -> None:
    assert read(harness, 0, bytes_max=330) == [(0, 2), (3, 7)]
    assert read(harness, 0, bytes_max=329) == [(0, 2)]


def test_a_read_returns_one_batch_larger_than_the_limit_only_when_asked_to(
    harness: LogHarness,
) -> None:
    assert read(harness, 0, bytes_max=1) == [(0, 2)]
    assert harness.log.read(0, bytes_max=1, end=10, at_least_one=False) == b""


@pytest.mark.parametrize("offset", [-1, 11])
def test_a_read_outside_the_log_is_refused(harness: LogHarness, offset: int) -> None:
    with pytest.raises(Refused) as refused:
        read(harness, offset)
    assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_read_at_the_end_or_the_bound_is_empty(harness: LogHarness) -> None:
    assert read(harness, 10) == []
    assert read(harness, 8, end=8) == []
    assert read(harness, 9, end=8) == []


def test_a_read_that_waits_at_the_end_sees_the_next_batch(harness: LogHarness) -> None:
    assert read(harness, 8) == [(8, 9)]
    assert read(harness, 10) == []
    harness.append(count=2)
    assert read(harness, 10, end=12) == [(10, 11)]


def test_a_read_covers_one_segment_and_goes_on_in_the_next(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0", segment_bytes=250)
    for _ in range(5):
        harness.append(batch(size=100))
    assert read(harness, 0, end=5) == [(0, 0), (1, 1)]
    assert read(harness, 2, end=5) == [(2, 2), (3, 3)]
    assert offsets_of(read_all(harness.log)) == [0, 1, 2, 3, 4]


def test_a_read_in_a_gap_of_compaction_returns_the_next_batch(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0")
    for base in (0, 10, 40):
        one = batch(2)
        assign(one, base, 0)
        harness.log.append_as_follower(bytes(one))
    assert read(harness, 3, end=42) == [(10, 11), (40, 41)]
    assert read(harness, 12, end=42) == [(40, 41)]
    assert read(harness, 3, end=30) == [(10, 11)]


def test_a_read_of_a_gap_at_the_end_of_a_segment_goes_on_in_the_next(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0", segment_bytes=100)
    for base in (0, 10):
        one = batch(size=100)
        assign(one, base, 0)
        harness.log.append_as_follower(bytes(one))
    assert read(harness, 5, end=11) == [(10, 10)]


def test_a_read_below_a_log_start_inside_a_batch_is_refused(harness: LogHarness) -> None:
    harness.log.start_offset = 5
    assert read(harness, 5) == [(3, 7), (8, 9)]
    with pytest.raises(Refused) as refused:
        read(harness, 4)
    assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_damaged_log_fails_the_read_and_nothing_else(harness: LogHarness) -> None:
    data = bytearray(harness.segment_file(0).read_bytes())
    data[130 + 8 : 130 + 12] = b"\0\0\0\0"
    harness.segment_file(0).write_bytes(data)
    with pytest.raises(Refused) as refused:
        read(harness, 9)
    assert refused.value.code == ErrorCode.CORRUPT_MESSAGE
    assert harness.append().base_offset == 10


def test_a_held_segment_stays_readable_after_it_left_the_log(harness: LogHarness) -> None:
    segment = harness.log.segments.active
    before = segment.read(0, 430)
    segment.hold()
    harness.log.truncate_fully(50)
    for path in harness.keeper.discarded:
        path.unlink()
    assert segment.read(0, 430) == before
    segment.release()
    assert harness.log.end_offset == 50
