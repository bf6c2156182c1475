"""Which part of a log compaction may touch, when it is due, and how its memory is bounded."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.storage.compaction.cleaner_checkpoints import CLEANED
from barnabas.broker.storage.compaction.dirty_ratio import log_to_clean
from barnabas.broker.storage.compaction.worker import Throttle
from barnabas.protocol.records.compaction.offset_map import ENTRY_BYTES, OffsetMap
from tests.storage.compaction.compaction_harness import CompactionHarness
from tests.storage.log_harness import T0
from tests.storage.simulated import in_simulated_time


async def three_segments(path: Path, **overrides: Any) -> CompactionHarness:
    """Bases 0, 2, 4 at T0, T0 + 10, T0 + 20; the active segment begins at 6."""
    harness = await CompactionHarness(path, **overrides).open()
    for turn in range(3):
        for _ in range(2):
            harness.put((b"k", b"v"), time=T0 + 10 * turn)
        harness.roll()
    return harness


@in_simulated_time
async def test_young_records_keep_their_segment_and_all_after_it(tmp_path: Path) -> None:
    harness = await three_segments(tmp_path, min_compaction_lag_ms=50)
    for passed, end in ((49, 0), (50, 2), (59, 2), (60, 4), (70, 6)):
        found = log_to_clean(harness.log, 0, stable_offset=6, now_ms=T0 + passed)
        assert (found.end if found.segments else 0) == end
    await harness.close()


@in_simulated_time
async def test_a_record_that_waited_too_long_is_compacted_whatever_the_ratio(
    tmp_path: Path,
) -> None:
    harness = await three_segments(
        tmp_path, max_compaction_lag_ms=1000, min_cleanable_dirty_ratio=1.0
    )
    harness.now_ms = T0 + 1000
    assert not await harness.clean()
    harness.now_ms = T0 + 1001
    assert await harness.clean()
    assert harness.offsets() == [5]
    await harness.close()


@in_simulated_time
async def test_nothing_is_dirty_when_the_first_dirty_offset_is_in_the_active_segment(
    tmp_path: Path,
) -> None:
    harness = await three_segments(tmp_path)
    assert log_to_clean(harness.log, 6, stable_offset=6, now_ms=T0).segments == ()
    harness.put((b"k", b"v"))
    assert log_to_clean(harness.log, 7, stable_offset=7, now_ms=T0).segments == ()
    await harness.close()


@pytest.mark.parametrize("offset", [7, 1_000_000, 0])
def test_a_checkpoint_outside_of_the_log_begins_anew(tmp_path: Path, offset: int) -> None:
    check_clamped(tmp_path, offset)


@in_simulated_time
async def check_clamped(path: Path, offset: int) -> None:
    harness = await three_segments(path)
    await harness.close()
    (path / CLEANED).write_text(f"0\n1\nt 0 {offset}\n")
    await harness.open()
    assert await harness.clean()
    assert harness.offsets() == [5]
    assert (path / CLEANED).read_text() == "0\n1\nt 0 6\n"
    await harness.close()


@in_simulated_time
async def test_a_bad_checkpoint_counts_as_none(tmp_path: Path) -> None:
    harness = await three_segments(tmp_path)
    await harness.close()
    (tmp_path / CLEANED).write_text("0\n2\nt 0 6\n")
    await harness.open()
    assert await harness.clean()
    await harness.close()


@in_simulated_time
async def test_the_checkpoint_survives_a_restart_and_falls_with_a_truncation(
    tmp_path: Path,
) -> None:
    harness = await three_segments(tmp_path)
    assert await harness.clean()
    await harness.restart()
    assert not await harness.clean()
    harness.put((b"k", b"v"))
    harness.roll()
    assert await harness.clean()
    assert harness.first_dirty == 7
    await harness.close()


@in_simulated_time
async def test_gaps_at_the_end_of_a_segment_do_not_stop_the_checkpoint(tmp_path: Path) -> None:
    harness = await three_segments(tmp_path)
    assert await harness.clean()
    (tmp_path / CLEANED).unlink()
    harness.cleaner._checkpoints._offsets.clear()
    assert await harness.clean()
    assert harness.first_dirty == 6
    assert not await harness.clean()
    await harness.close()


@in_simulated_time
async def test_segments_far_apart_are_not_joined(tmp_path: Path) -> None:
    harness = await CompactionHarness(tmp_path).open()
    harness.put((b"a", b"1"))
    harness.log.truncate_fully(2**31 - 2)
    harness.put((b"b", b"1"))
    harness.roll()
    harness.put((b"c", b"1"))
    harness.roll()
    harness.log.truncate_to(harness.log.end_offset)
    assert await harness.clean()
    assert list(harness.log.segments.view.bases) == [2**31 - 2, 2**31]
    await harness.close()


def test_an_entry_of_the_map_costs_no_more_memory_than_it_says() -> None:
    count = 200_000
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        offsets = OffsetMap(count * ENTRY_BYTES, 1)
        for first in range(0, count, 100):
            keys = [
                (b"a key of more than sixteen bytes %d" % n, n) for n in range(first, first + 100)
            ]
            assert offsets.add(keys)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert len(offsets) == count
    assert not offsets.add([(b"one more than fits", count)])
    assert peak <= count * ENTRY_BYTES


def test_a_throttle_lets_bursts_through_and_holds_the_average() -> None:
    now = [0.0]
    throttle = Throttle(1000.0, lambda: now[0])
    moved = 0
    while now[0] < 10:
        moved += 50
        now[0] += 0.001 + throttle.wait_s(50)
    assert 9_000 <= moved <= 10_500
