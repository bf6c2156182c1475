"""Segments that compaction wrote take the place of those it read.

Source: docs/spec/log.md §3.5 and §4.2.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.broker.storage.segment.segment import Segment
from barnabas.protocol.records.batch import assign
from tests.storage.rig import Rig, batch, offsets_of, read_all


def rewritten(rig: Rig, base: int, *offsets: int) -> Segment:
    """A segment of single records at these offsets, on disk as a finished compaction leaves it."""
    segment = Segment.create(rig.files, rig.directory / "made", base, rig.clock())
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
        rig.files.rename(made, rig.directory / f"{made.name}.swap")
    return Segment(rig.files, rig.directory, base, size=size, created_ms=rig.clock())


@pytest.fixture
async def rig(tmp_path: Path) -> Rig:
    """Four segments of two records: 0, 2, 4, 6; all but the last flushed."""
    rig = Rig(tmp_path / "t-0", segment_bytes=200)
    rig.files.make_directory(rig.directory / "made")
    for _ in range(4):
        rig.append(size=110, count=2)
    await rig.log.flush()
    return rig


async def test_what_compaction_wrote_is_read_instead_of_what_it_read(rig: Rig) -> None:
    old = rig.log.segments.view.segments[:3]
    rig.log.replace_segments([rewritten(rig, 0, 1, 4)], old)
    assert offsets_of(read_all(rig.log)) == [1, 4, 6, 7]
    assert rig.log.segments.view.bases == (0, 6)
    rig.recovery_point = rig.log.recovery_point  # which compaction writes down before
    await rig.crash()
    assert offsets_of(read_all(rig.log)) == [1, 4, 6, 7]


async def test_one_run_may_become_several_segments(rig: Rig) -> None:
    old = rig.log.segments.view.segments[1:3]
    rig.log.replace_segments([rewritten(rig, 2, 2), rewritten(rig, 4, 5)], old)
    assert offsets_of(read_all(rig.log)) == [0, 1, 2, 5, 6, 7]


async def test_a_reader_of_a_replaced_segment_goes_on(rig: Rig) -> None:
    first = rig.log.segments.view.segments[0]
    before = first.read(0, first.size)
    first.hold()
    rig.log.replace_segments([rewritten(rig, 0, 1)], [first])
    for path in rig.keeper.discarded:
        rig.files.unlink(path)
    assert first.read(0, first.size) == before
    first.release()


async def test_replaced_files_wait_under_another_name(rig: Rig) -> None:
    old = rig.log.segments.view.segments[:2]
    rig.log.replace_segments([rewritten(rig, 0, 1)], old)
    names = {path.name for path in rig.keeper.discarded}
    assert {f"{base:020d}.log.deleted" for base in (0, 2)} <= names
    assert f"{2:020d}.snapshot.deleted" in names
    assert not rig.segment_file(2).exists()
    assert rig.keeper.flushes[-1] is rig.log  # whose end syncs the directory


async def test_the_greatest_time_is_that_of_the_new_segment(rig: Rig) -> None:
    [first, *_] = rig.log.segments.view.segments
    rig.log.replace_segments([rewritten(rig, 0, 1)], [first])
    assert rig.log.segments.view.segments[0].largest_timestamp == 7


async def test_only_a_run_of_closed_neighbours_can_be_replaced(rig: Rig) -> None:
    segments, view = rig.log.segments, rig.log.segments.view.segments
    assert segments.holds(view[:3])
    assert not segments.holds(view)
    assert not segments.holds([view[0], view[2]])
    assert not segments.holds([])
    rig.log.truncate_to(4)
    assert not segments.holds(view[:3])
