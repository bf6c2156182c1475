"""Reading: bounds, sizes, segments, readers that outlive a segment."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.records.batch import assign
from tests.storage.rig import Rig, batch, offsets_of, read_all, spans_of


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """Batches 0-2, 3-7, 8-9 of 100, 200 and 100 bytes."""
    rig = Rig(tmp_path / "t-0")
    for count, size in ((3, 130), (5, 200), (2, 100)):
        rig.append(batch(count, size=size))
    return rig


def read(rig: Rig, offset: int, end: int = 10, bytes_max: int = 10_000) -> list[tuple[int, int]]:
    return spans_of(rig.log.read(offset, bytes_max=bytes_max, end=end, at_least_one=True))


def test_a_read_begins_with_the_batch_that_holds_the_offset(rig: Rig) -> None:
    assert read(rig, 5) == [(3, 7), (8, 9)]


def test_a_read_stops_before_the_batch_that_holds_the_bound(rig: Rig) -> None:
    assert read(rig, 3, end=5) == []
    assert read(rig, 0, end=5) == [(0, 2)]
    assert read(rig, 0, end=8) == [(0, 2), (3, 7)]


def test_a_read_returns_whole_batches_up_to_the_limit(rig: Rig) -> None:
    assert read(rig, 0, bytes_max=330) == [(0, 2), (3, 7)]
    assert read(rig, 0, bytes_max=329) == [(0, 2)]


def test_a_read_returns_one_batch_larger_than_the_limit_only_when_asked_to(rig: Rig) -> None:
    assert read(rig, 0, bytes_max=1) == [(0, 2)]
    assert rig.log.read(0, bytes_max=1, end=10, at_least_one=False) == b""


@pytest.mark.parametrize("offset", [-1, 11])
def test_a_read_outside_the_log_is_refused(rig: Rig, offset: int) -> None:
    with pytest.raises(Refused) as refused:
        read(rig, offset)
    assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_read_at_the_end_or_the_bound_is_empty(rig: Rig) -> None:
    assert read(rig, 10) == []
    assert read(rig, 8, end=8) == []
    assert read(rig, 9, end=8) == []


def test_a_read_that_waits_at_the_end_sees_the_next_batch(rig: Rig) -> None:
    assert read(rig, 8) == [(8, 9)]
    assert read(rig, 10) == []
    rig.append(count=2)
    assert read(rig, 10, end=12) == [(10, 11)]


def test_a_read_covers_one_segment_and_goes_on_in_the_next(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "t-0", segment_bytes=250)
    for _ in range(5):
        rig.append(batch(size=100))
    assert read(rig, 0, end=5) == [(0, 0), (1, 1)]
    assert read(rig, 2, end=5) == [(2, 2), (3, 3)]
    assert offsets_of(read_all(rig.log)) == [0, 1, 2, 3, 4]


def test_a_read_in_a_gap_of_compaction_returns_the_next_batch(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "t-0")
    for base in (0, 10, 40):
        one = batch(2)
        assign(one, base, 0)
        rig.log.append_as_follower(bytes(one))
    assert read(rig, 3, end=42) == [(10, 11), (40, 41)]
    assert read(rig, 12, end=42) == [(40, 41)]
    assert read(rig, 3, end=30) == [(10, 11)]


def test_a_read_of_a_gap_at_the_end_of_a_segment_goes_on_in_the_next(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "t-0", segment_bytes=100)
    for base in (0, 10):
        one = batch(size=100)
        assign(one, base, 0)
        rig.log.append_as_follower(bytes(one))
    assert read(rig, 5, end=11) == [(10, 10)]


def test_a_read_below_a_log_start_inside_a_batch_is_refused(rig: Rig) -> None:
    rig.log.start_offset = 5
    assert read(rig, 5) == [(3, 7), (8, 9)]
    with pytest.raises(Refused) as refused:
        read(rig, 4)
    assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_damaged_log_fails_the_read_and_nothing_else(rig: Rig) -> None:
    data = bytearray(rig.segment_file(0).read_bytes())
    data[130 + 8 : 130 + 12] = b"\0\0\0\0"
    rig.segment_file(0).write_bytes(data)
    with pytest.raises(Refused) as refused:
        read(rig, 9)
    assert refused.value.code == ErrorCode.CORRUPT_MESSAGE
    assert rig.append().base_offset == 10


def test_a_held_segment_stays_readable_after_it_left_the_log(rig: Rig) -> None:
    segment = rig.log.segments.active
    before = segment.read(0, 430)
    segment.hold()
    rig.log.truncate_fully(50)
    for path in rig.keeper.discarded:
        path.unlink()
    assert segment.read(0, 430) == before
    segment.release()
    assert rig.log.end_offset == 50
