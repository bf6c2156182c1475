"""Segments that compaction wrote take the place of those it read.

Source: docs/spec/log.md §3.5 and §4.2.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.broker.storage.segment.segment import Segment
from barnabas.protocol.records.batch import assign
from tests.storage.log_harness import LogHarness, batch, offsets_of, read_all


def rewritten(harness: LogHarness, base: int, *offsets: int) -> Segment:
    """A segment of single records at these offsets, on disk as a finished compaction leaves it."""
    segment = Segment.create(harness.files, harness.directory / "made", base, harness.clock())
    for offset in offsets:
        one = batch(1)
        assign(one, offset, 0)
        segment.append(one, offset, 7)
    segment.indexes.finish()
    sync, save, _ = segment.prepare_sync()
    sync()
    save()
    size = segment.size
    segment.retire()
    for suffix in (".log", ".index", ".timeindex"):
        made = segment.path(suffix)
        harness.files.rename(made, harness.directory / f"{made.name}.swap")
    return Segment(harness.files, harness.directory, base, size=size, created_ms=harness.clock())


@pytest.fixture
async def harness(tmp_path: Path) -> LogHarness:
    """Four segments of two records: 0, 2, 4, 6; all but the last flushed."""
    harness = LogHarness(tmp_path / "t-0", segment_bytes=200)
    harness.files.make_directory(harness.directory / "made")
    for _ in range(4):
        harness.append(size=110, count=2)
    await harness.log.flush()
    return harness


async def test_what_compaction_wrote_is_read_instead_of_what_it_read(harness: LogHarness) -> None:
    old = harness.log.segments.view.segments[:3]
    harness.log.replace_segments([rewritten(harness, 0, 1, 4)], old)
    assert offsets_of(read_all(harness.log)) == [1, 4, 6, 7]
    assert harness.log.segments.view.bases == (0, 6)
    harness.recovery_point = harness.log.recovery_point  # which compaction writes down before
    await harness.crash()
    assert offsets_of(read_all(harness.log)) == [1, 4, 6, 7]


async def test_one_run_may_become_several_segments(harness: LogHarness) -> None:
    old = harness.log.segments.view.segments[1:3]
    harness.log.replace_segments([rewritten(harness, 2, 2), rewritten(harness, 4, 5)], old)
    assert offsets_of(read_all(harness.log)) == [0, 1, 2, 5, 6, 7]


async def test_a_reader_of_a_replaced_segment_goes_on(harness: LogHarness) -> None:
    first = harness.log.segments.view.segments[0]
    before = first.read(0, first.size)
    first.hold()
    harness.log.replace_segments([rewritten(harness, 0, 1)], [first])
    for path in harness.keeper.discarded:
        harness.files.unlink(path)
    assert first.read(0, first.size) == before
    first.release()


async def test_replaced_files_wait_under_another_name(harness: LogHarness) -> None:
    old = harness.log.segments.view.segments[:2]
    harness.log.replace_segments([rewritten(harness, 0, 1)], old)
    names = {path.name for path in harness.keeper.discarded}
    assert {f"{base:020d}.log.deleted" for base in (0, 2)} <= names
    assert f"{2:020d}.snapshot.deleted" in names
    assert not harness.segment_file(2).exists()
    assert harness.keeper.flushes[-1] is harness.log  # whose end syncs the directory


async def test_the_greatest_time_is_that_of_the_new_segment(harness: LogHarness) -> None:
    [first, *_] = harness.log.segments.view.segments
    harness.log.replace_segments([rewritten(harness, 0, 1)], [first])
    assert harness.log.segments.view.segments[0].largest_timestamp == 7


async def test_only_a_run_of_closed_neighbours_can_be_replaced(harness: LogHarness) -> None:
    segments, view = harness.log.segments, harness.log.segments.view.segments
    assert segments.holds(view[:3])
    assert not segments.holds(view)
    assert not segments.holds([view[0], view[2]])
    assert not segments.holds([])
    harness.log.truncate_to(4)
    assert not segments.holds(view[:3])
