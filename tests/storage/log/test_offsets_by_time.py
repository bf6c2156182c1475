"""ListOffsets: by time, greatest time, and the segment offsets of version 0."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from barnabas.broker.storage.log.log import Log
from barnabas.broker.storage.log.log_reader import offsets_before
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.records.batch import Record, build_batch_of
from tests.storage.log_harness import T0, LogHarness, batch


def timed(*times: int) -> bytearray:
    return build_batch_of(
        [Record(index, T0 + time, b"k", b"v") for index, time in enumerate(times)]
    )


@pytest.fixture
def harness(tmp_path: Path) -> LogHarness:
    """Three records of times 10, 30, 20 in one batch, then 25 and 40, then 35 in a new segment."""
    harness = LogHarness(tmp_path / "t-0")
    harness.append(timed(10, 30, 20))
    harness.append(timed(25, 40))
    harness.log.roll()
    harness.append(timed(35))
    return harness


def test_the_first_record_at_a_time_or_later_is_found_inside_its_batch(harness: LogHarness) -> None:
    found = {time: harness.log.offset_for_time(T0 + time, 6) for time in (0, 10, 15, 31, 40, 41)}
    offsets = {
        time: expected and (expected.offset, expected.timestamp - T0)
        for time, expected in found.items()
    }
    assert offsets == {0: (0, 10), 10: (0, 10), 15: (1, 30), 31: (4, 40), 40: (4, 40), 41: None}


def test_a_segment_without_records_hides_none_of_a_later_one(harness: LogHarness) -> None:
    """Compaction leaves such segments; the time of their file is later than that of any record."""
    harness.log.roll()
    harness.append(timed(50))
    assert harness.log.segments.view.segments[1].size
    harness.log.segments.view.segments[1].truncate(0)
    found = harness.log.offset_for_time(T0 + 45, 7)
    assert found is not None
    assert found.offset == 6


def test_a_record_at_the_bound_is_not_found(harness: LogHarness) -> None:
    assert harness.log.offset_for_time(T0 + 35, 4) is None
    assert harness.log.max_timestamp_offset(4) is None


def test_a_record_below_the_log_start_is_not_found(harness: LogHarness) -> None:
    harness.log.start_offset = 2
    found = harness.log.offset_for_time(T0, 6)
    assert found is not None
    assert found.offset == 2


def test_the_greatest_time_is_found_with_its_first_record(harness: LogHarness) -> None:
    found = harness.log.max_timestamp_offset(6)
    assert found is not None
    assert (found.offset, found.timestamp, found.leader_epoch) == (4, T0 + 40, 0)


def test_records_without_time_have_no_greatest(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0")
    assert harness.log.max_timestamp_offset(0) is None
    harness.append(batch(time=-1))
    assert harness.log.max_timestamp_offset(1) is None


@pytest.mark.parametrize("how", [LogHarness.restart, LogHarness.crash])
async def test_times_are_found_alike_after_a_restart(
    harness: LogHarness, how: Callable[[LogHarness], Awaitable[Log]]
) -> None:
    before = [harness.log.offset_for_time(T0 + time, 6) for time in range(45)]
    newest = harness.log.max_timestamp_offset(6)
    log = await how(harness)
    assert [log.offset_for_time(T0 + time, 6) for time in range(45)] == before
    assert log.max_timestamp_offset(6) == newest


def test_a_segment_whose_records_have_no_time_counts_by_its_file(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0")
    harness.append(batch(time=-1))
    os.utime(harness.segment_file(0), (5, 5))
    assert harness.log.segments.active.largest_timestamp == 5000


BOUNDS = [(0, 1000), (100, 2000), (200, 3000), (250, 4000)]


@pytest.mark.parametrize(
    ("timestamp", "count", "high_watermark", "answer"),
    [
        (-1, 10, 220, [220, 200, 100, 0]),
        (-1, 10, None, [250, 200, 100, 0]),
        (-1, 2, 220, [220, 200]),
        (-2, 1, 220, [0]),
        (2999, 10, 220, [100, 0]),
        (999, 10, 220, []),
    ],
)
def test_version_0_lists_segment_offsets_backwards(
    timestamp: int, count: int, high_watermark: int | None, answer: list[int]
) -> None:
    assert offsets_before(BOUNDS, timestamp, count, high_watermark) == answer


def test_version_0_knows_two_special_times() -> None:
    with pytest.raises(Refused) as refused:
        offsets_before(BOUNDS, -3, 1, None)
    assert refused.value.code == ErrorCode.UNSUPPORTED_VERSION


def test_segment_offsets_end_with_the_logs_end_unless_the_last_segment_is_empty(
    harness: LogHarness,
) -> None:
    assert [offset for offset, _ in harness.log.segment_offsets()] == [0, 5, 6]
    harness.log.roll()
    assert [offset for offset, _ in harness.log.segment_offsets()] == [0, 5, 6]
    assert harness.log.offsets_before(-1, 9, 5) == [5, 0]
