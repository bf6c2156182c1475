"""After a crash a log is the longest good prefix of what was written.

Source: docs/spec/log.md §3.3, §3.4.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import pytest

from barnabas.broker.storage.recovery import loading
from barnabas.broker.storage.recovery.crash_leftovers import clear_leftovers
from barnabas.broker.storage.segment.segment_indexes import OFFSETS_MAX
from barnabas.protocol.records.batch import assign
from tests.records.vectors import RECOVERED, VECTORS, of
from tests.storage.faulty_files import FaultyFiles
from tests.storage.log_harness import T0, LogHarness, batch, offsets_of, read_all, spans_of

T = TypeVar("T")


@pytest.fixture
def harness(tmp_path: Path) -> LogHarness:
    """Five segments of two batches of two records each."""
    harness = LogHarness(tmp_path / "t-0", segment_bytes=200, index_interval_bytes=50)
    for _ in range(10):
        harness.append(batch(2, size=100))
    assert len(harness.log.segments.view.bases) == 5
    return harness


def damage(harness: LogHarness, base: int, position: int) -> None:
    path = harness.segment_file(base)
    data = bytearray(path.read_bytes())
    data[position] ^= 0x55
    path.write_bytes(data)


def stems(harness: LogHarness, suffix: str) -> list[int]:
    return sorted(int(path.stem) for path in harness.directory.glob(f"*{suffix}"))


async def test_recovery_cuts_the_log_at_the_first_torn_batch(harness: LogHarness) -> None:
    path = harness.segment_file(16)
    path.write_bytes(path.read_bytes()[:-5])
    log = await harness.crash()
    assert (log.end_offset, path.stat().st_size) == (18, 100)
    assert offsets_of(read_all(log)) == list(range(18))
    assert harness.append(count=2).base_offset == 18


@pytest.mark.parametrize("block", ["zeros", "random", "stale"])
async def test_recovery_cuts_a_block_of_nonsense_that_a_crash_added(
    harness: LogHarness, block: str
) -> None:
    path = harness.segment_file(16)
    good = path.read_bytes()
    added = {"zeros": bytes(512), "random": bytes(range(1, 200)), "stale": good[:100]}[block]
    path.write_bytes(good + added)
    log = await harness.crash()
    assert (log.end_offset, path.read_bytes()) == (20, good)


@pytest.mark.parametrize("name", RECOVERED)
async def test_recovery_keeps_of_a_golden_file_what_is_good(tmp_path: Path, name: str) -> None:
    harness = LogHarness(tmp_path / "t-0")
    harness.segment_file(0).write_bytes(of(name))
    harness.recovery_point = None
    log = await harness.crash()
    kept = VECTORS[name]["expect"]["recovery_keeps_bytes"]
    assert harness.segment_file(0).read_bytes() == of(name)[:kept]
    assert log.segments.active.size == kept


async def test_a_log_without_records_costs_a_start_after_a_crash_no_fsync(tmp_path: Path) -> None:
    """Most partitions of many clusters are empty."""
    files = FaultyFiles()
    harness = LogHarness(tmp_path / "t-0", files)
    await harness.log.flush()
    before = files.counts["fsync"]
    log = await harness.crash()
    assert (log.end_offset, files.counts["fsync"]) == (0, before)
    index = harness.segment_file(0).with_suffix(".index")
    index.write_bytes(bytes(8))
    await harness.crash()
    assert (index.read_bytes(), files.counts["fsync"] > before) == (b"", True)
    assert harness.append(count=2).base_offset == 0


async def test_segments_behind_an_empty_one_are_gone_for_good_before_the_log_is_used(
    tmp_path: Path,
) -> None:
    """Back after a power cut, they would stand behind whatever was written since."""
    files = FaultyFiles()
    harness = LogHarness(tmp_path / "t-0", files, segment_bytes=200)
    for _ in range(4):
        harness.append(size=100)
    await harness.log.flush()
    for suffix in (".log", ".index", ".timeindex"):
        harness.segment_file(0).with_suffix(suffix).write_bytes(b"")
    before = files.counts["fsync"]
    log = await harness.crash()
    assert (log.end_offset, stems(harness, ".log")) == (0, [0])
    assert files.counts["fsync"] > before


async def test_recovery_removes_the_segments_behind_the_damage(harness: LogHarness) -> None:
    damage(harness, 8, 150)
    log = await harness.crash()
    assert log.end_offset == 10
    assert (stems(harness, ".log"), stems(harness, ".snapshot")) == ([0, 4, 8], [4, 8, 10])
    assert offsets_of(read_all(log)) == list(range(10))


class Unsearched(list[T]):
    """A list that must not be looked through for one item: there may be ten thousand."""

    def index(self, *args: Any) -> int:
        raise AssertionError(f"looked for {args}")

    def remove(self, item: T) -> None:
        raise AssertionError(f"looked for {item}")

    def __contains__(self, item: object) -> bool:
        raise AssertionError(f"looked for {item}")


async def test_a_segment_is_not_looked_for_among_all(
    harness: LogHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = loading._Loading.open_segments

    def open_segments(this: loading._Loading) -> None:
        opened(this)
        this._segments = Unsearched(this._segments)
        bases = [segment.base_offset for segment in this._segments]
        uppers = [*bases[1:], bases[-1] + OFFSETS_MAX + 1]
        assert [this._upper(segment) for segment in this._segments] == uppers

    monkeypatch.setattr(loading._Loading, "open_segments", open_segments)
    monkeypatch.setattr(
        loading, "clear_leftovers", lambda *args: Unsearched(clear_leftovers(*args))
    )
    assert (await harness.crash()).end_offset == 20
    assert (await harness.restart()).end_offset == 20
    harness.recovery_point = 5
    damage(harness, 8, 150)
    log = await harness.crash()
    assert (log.end_offset, stems(harness, ".log")) == (10, [0, 4, 8])
    assert (await harness.crash(start_offset=30)).start_offset == 30
    assert stems(harness, ".log") == [30]


async def test_damage_below_the_recovery_point_is_not_looked_for(harness: LogHarness) -> None:
    await harness.log.flush()
    harness.recovery_point = harness.log.recovery_point
    damage(harness, 4, 150)
    log = await harness.crash()
    assert (log.end_offset, stems(harness, ".log")) == (20, [0, 4, 8, 12, 16])


async def test_recovery_begins_with_the_segment_that_holds_the_recovery_point(
    harness: LogHarness,
) -> None:
    await harness.log.flush()
    harness.recovery_point = 9
    damage(harness, 4, 150)
    damage(harness, 8, 150)
    assert (await harness.crash()).end_offset == 10


@pytest.fixture
async def long_rig(tmp_path: Path) -> LogHarness:
    """Forty batches in one segment, the first twenty flushed, an index entry for each second."""
    harness = LogHarness(tmp_path / "t-0", index_interval_bytes=150)
    for number in range(40):
        harness.append(batch(size=100, time=T0 + number))
        if number == 19:
            await harness.log.flush()
    harness.recovery_point = harness.log.recovery_point
    return harness


async def test_recovery_begins_at_the_recovery_point_inside_a_segment(long_rig: LogHarness) -> None:
    damage(long_rig, 0, 550)
    damage(long_rig, 0, 3050)
    log = await long_rig.crash()
    assert (log.end_offset, log.segments.active.size) == (30, 3000)


async def test_a_recovery_from_the_middle_makes_the_indexes_of_an_undisturbed_log(
    long_rig: LogHarness,
) -> None:
    indexes = long_rig.log.segments.active.indexes
    indexes.finish()
    before = indexes.offsets.to_bytes(), indexes.times.to_bytes()
    indexes = (await long_rig.crash()).segments.active.indexes
    assert (indexes.offsets.to_bytes(), indexes.times.to_bytes()) == before
    assert (indexes.first_timestamp, indexes.max_timestamp) == (T0, T0 + 39)


async def test_index_entries_above_the_recovery_point_are_made_anew(long_rig: LogHarness) -> None:
    await long_rig.log.flush()
    damage(long_rig, 0, 2550)
    log = await long_rig.crash()
    assert log.end_offset == 25
    assert long_rig.segment_file(0, ".index").stat().st_size == 8 * 12
    assert rig_reads(long_rig) == list(range(25))


@pytest.mark.parametrize("point", [7, 39, 41, 2**40])
async def test_a_recovery_point_that_the_files_do_not_bear_out_trusts_nothing(
    long_rig: LogHarness, point: int
) -> None:
    long_rig.recovery_point = point
    path = long_rig.segment_file(0)
    path.write_bytes(path.read_bytes()[: 35 * 100 + 50])
    if point == 7:
        long_rig.segment_file(0, ".index").unlink()
    log = await long_rig.crash()
    assert log.end_offset == 35
    assert rig_reads(long_rig) == list(range(35))


def rig_reads(harness: LogHarness) -> list[int]:
    return offsets_of(read_all(harness.log))


async def test_nothing_is_verified_after_a_clean_stop(harness: LogHarness) -> None:
    await harness.log.close()
    damage(harness, 4, 150)
    log = await harness.reload(is_clean=True)
    assert (log.end_offset, log.recovery_point) == (20, 20)


async def test_a_torn_tail_after_a_clean_stop_is_cut_all_the_same(harness: LogHarness) -> None:
    await harness.log.close()
    path = harness.segment_file(16)
    path.write_bytes(path.read_bytes()[:-5])
    assert (await harness.reload(is_clean=True)).end_offset == 18


async def test_what_recovery_kept_is_durable_before_it_is_served(harness: LogHarness) -> None:
    log = await harness.crash()
    assert log.recovery_point == log.durable_offset == 20
    assert stems(harness, ".index") == [0, 4, 8, 12, 16]


async def test_indexes_after_recovery_are_those_of_an_undisturbed_log(harness: LogHarness) -> None:
    await harness.log.flush()
    names = [
        harness.segment_file(base, suffix) for base in (0, 8) for suffix in (".index", ".timeindex")
    ]
    before = [path.read_bytes() for path in names]
    await harness.crash()
    assert [path.read_bytes() for path in names] == before


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("content", [None, b"", b"\0" * 24, b"\xff" * 12, b"123"])
async def test_a_bad_index_is_rebuilt_and_reads_are_the_same(
    harness: LogHarness, suffix: str, content: bytes | None
) -> None:
    before = read_all(harness.log)
    await harness.log.close()
    path = harness.segment_file(4, suffix)
    good = path.read_bytes()
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    log = await harness.reload(is_clean=True)
    assert read_all(log) == before
    if content in (None, b"123", b"\xff" * 12):
        assert path.read_bytes() == good


async def test_an_index_without_a_log_is_removed(harness: LogHarness) -> None:
    await harness.log.close()
    harness.segment_file(30, ".index").write_bytes(b"")
    await harness.reload(is_clean=True)
    assert stems(harness, ".index") == [0, 4, 8, 12, 16]


async def test_rebuilding_an_index_leaves_producer_snapshots_alone(harness: LogHarness) -> None:
    await harness.log.close()
    before = stems(harness, ".snapshot")
    harness.segment_file(4, ".index").unlink()
    await harness.reload(is_clean=True)
    assert stems(harness, ".snapshot") == before


async def test_an_empty_segment_does_not_stall_the_loader(harness: LogHarness) -> None:
    # KAFKA-9065
    harness.log.roll()
    for log in [await harness.crash(), await harness.restart()]:
        assert log.end_offset == 20
    assert offsets_of(read_all(harness.log)) == list(range(20))


async def test_a_log_whose_files_vanished_begins_empty_at_its_start(harness: LogHarness) -> None:
    for path in harness.directory.iterdir():
        path.unlink()
    log = await harness.reload(is_clean=False, start_offset=12)
    assert (log.start_offset, log.end_offset) == (12, 12)
    assert harness.append().base_offset == 12


async def test_a_log_that_ends_below_its_start_begins_empty_there(harness: LogHarness) -> None:
    log = await harness.reload(is_clean=False, start_offset=50)
    assert (log.start_offset, log.end_offset, log.epochs.pairs) == (50, 50, [])
    assert stems(harness, ".log") == [50]


async def test_the_log_start_survives_inside_a_segment(harness: LogHarness) -> None:
    log = await harness.reload(is_clean=False, start_offset=6)
    assert (log.start_offset, log.end_offset) == (6, 20)


async def test_an_offset_too_far_from_its_base_is_not_cut_off(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0", cleanup_policy="compact")
    far = batch()
    assign(far, OFFSETS_MAX + 1, 0)
    harness.segment_file(0).write_bytes(far)
    harness.recovery_point = None
    assert (await harness.crash()).end_offset == OFFSETS_MAX + 2


async def test_epochs_above_the_recovery_point_come_from_the_batches(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0")
    for epoch in (1, 1, 4):
        harness.append(epoch=epoch)
    assert (await harness.crash()).epochs.pairs == [(1, 0), (4, 2)]


async def test_a_damaged_epoch_file_is_rebuilt_from_the_batches(tmp_path: Path) -> None:
    # KAFKA-16541
    harness = LogHarness(tmp_path / "t-0")
    for epoch in (1, 1, 4):
        harness.append(epoch=epoch)
    await harness.log.close()
    (harness.directory / "leader-epoch-checkpoint").write_bytes(b"\0\0\0")
    assert (await harness.reload(is_clean=True)).epochs.pairs == [(1, 0), (4, 2)]


async def test_an_epoch_without_a_batch_survives_a_restart(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0")
    harness.append(epoch=1)
    harness.log.assign_epoch(3, 1)
    log = await harness.restart()
    # It begins at the log's end, where truncation finds it: only its batches would keep it.
    assert log.epochs.pairs == [(1, 0)]


async def test_leftovers_of_a_deletion_are_removed(harness: LogHarness) -> None:
    await harness.log.close()
    for name in ("00000000000000000099.log.deleted", "leader-epoch-checkpoint.tmp"):
        (harness.directory / name).write_bytes(b"x")
    await harness.reload(is_clean=True)
    assert [
        path.name for path in harness.directory.iterdir() if path.suffix in (".deleted", ".tmp")
    ] == []


async def test_an_unfinished_compaction_is_rolled_back(harness: LogHarness) -> None:
    before = read_all(harness.log)
    await harness.log.close()
    harness.segment_file(0, ".log.cleaned").write_bytes(b"half")
    harness.segment_file(4, ".log.swap").write_bytes(b"half")
    log = await harness.reload(is_clean=True)
    assert read_all(log) == before


async def test_a_finished_compaction_is_rolled_forward(harness: LogHarness) -> None:
    await harness.log.close()
    merged = harness.segment_file(0).read_bytes()[:100] + harness.segment_file(4).read_bytes()[100:]
    harness.segment_file(0, ".log.swap").write_bytes(merged)
    harness.recovery_point = harness.log.recovery_point
    log = await harness.reload(is_clean=False)
    assert spans_of(read_all(log))[:3] == [(0, 1), (6, 7), (8, 9)]
    assert stems(harness, ".log") == [0, 8, 12, 16]
