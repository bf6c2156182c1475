"""Every pitfall of the storage layer, P1 to P16 of docs/spec/log.md §9, has a test that is named
here.

Those without one elsewhere are tested below; the
checks of docs/spec/log.md §2.10 and §3.7 are listed as well.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from barnabas.broker.storage.checkpoints import RECOVERY_POINTS, read_offsets
from barnabas.broker.storage.files import DiskFiles
from barnabas.protocol.errors import ErrorCode, Refused
from tests.harness.child import Child
from tests.storage.log_harness import LogHarness, batch, offsets_of, read_all

HERE = Path(__file__).parent
COVERED = {
    "P1": "recovery.test_index_entries_above_the_recovery_point_are_made_anew",
    "P2": "indexes.test_an_index_that_points_behind_the_offset_is_rebuilt_on_the_way",
    "P2, at a start": "garbage.test_a_log_opens_with_the_right_answers_beside_any_garbage",
    "P3": "flushing.test_a_flush_writes_what_a_restart_from_its_point_needs",
    "P4": "flushing.test_a_new_name_is_synced_once_not_with_every_flush",
    "P5": "recovery.test_what_recovery_kept_is_durable_before_it_is_served",
    "P6": "log_manager.test_the_marker_stands_between_a_clean_stop_and_the_next_start",
    "P6, a crash": "log_manager.test_a_crash_while_loading_leaves_the_next_start_unclean",
    "P7": "pitfalls.test_an_empty_active_segment_is_there_after_a_stop_with_or_without_its_index",
    "P8": "offset_overflow.test_such_a_segment_is_split_and_every_record_found",
    "P9": "pitfalls.test_an_index_without_room_for_an_entry_rolls_no_empty_segment",
    "P10": "recovery.test_recovery_cuts_a_block_of_nonsense_that_a_crash_added",
    "P11": "pitfalls.test_no_bytes_at_all_keep_a_log_from_being_opened",
    "P12": "recovery.test_rebuilding_an_index_leaves_producer_snapshots_alone",
    "P12, KAFKA-7401": "pitfalls.test_a_swap_that_begins_below_the_log_start_is_finished",
    "P13": "flushing.test_appends_go_on_while_a_flush_works_and_are_not_counted_by_it",
    "P14": "recovery.test_a_damaged_epoch_file_is_rebuilt_from_the_batches",
    "P15": "small_files.test_a_damaged_snapshot_is_removed_and_the_one_before_it_used",
    "P16": "truncation.test_files_are_renamed_before_they_are_unlinked_later",
    "2 (1)": "indexes.test_an_offset_index_of_kafkas_layout_finds_the_position_to_scan_from",
    "2 (1), times": "indexes.test_a_time_index_of_kafkas_layout_finds_the_offset_to_scan_from",
    "2 (2)": "indexes.test_ten_appends_of_1000_bytes_make_an_entry_at_the_sixth",
    "2 (3)": "append.test_append_rolls_exactly_when_the_batch_would_exceed_segment_bytes",
    "2 (4)": "append.test_append_rolls_by_record_time_even_within_one_moment",
    "2 (5)": "append.test_a_batch_whose_offsets_do_not_fit_lands_in_a_new_segment",
    "2 (6)": "small_files.test_a_checkpoint_that_is_cut_or_wrong_is_refused",
    "2 (7)": "small_files.test_a_snapshot_with_any_damaged_byte_is_refused",
    "2 (8)": "pitfalls.test_a_checkpoint_is_old_or_new_after_kill_9_never_a_mix",
    "3 (1)": "recovery.test_recovery_cuts_the_log_at_the_first_torn_batch",
    "3 (2)": "recovery.test_recovery_keeps_of_a_golden_file_what_is_good",
    "3 (3)": "recovery.test_recovery_removes_the_segments_behind_the_damage",
    "3 (4)": "quarantine.test_damage_that_a_reader_meets_is_inspected_while_the_log_is_in_use",
    "3 (5)": "compaction_crashes.test_power_cut_at_any_step_of_a_compaction_loses_no_value",
    "3 (6)": "recovery.test_nothing_is_verified_after_a_clean_stop",
    "3 (7)": "log_manager.test_a_crash_while_loading_leaves_the_next_start_unclean",
    "3 (8)": "recovery.test_a_bad_index_is_rebuilt_and_reads_are_the_same",
    "3 (9)": "truncation.test_a_truncated_log_takes_other_batches_and_rebuilds_the_same",
}


@pytest.mark.parametrize("name", COVERED.values(), ids=COVERED)
def test_the_test_of_a_pitfall_is_where_this_list_says(name: str) -> None:
    module, function = name.split(".")
    (file,) = HERE.rglob(f"test_{module}.py")
    tree = ast.parse(file.read_text())
    names = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert function in names


@pytest.mark.parametrize("has_index", [True, False])
async def test_an_empty_active_segment_is_there_after_a_stop_with_or_without_its_index(
    tmp_path: Path, *, has_index: bool
) -> None:
    harness = LogHarness(tmp_path / "t-0")
    harness.append()
    harness.log.roll()
    await harness.log.close()
    assert harness.segment_file(1).exists()
    if not has_index:
        harness.segment_file(1, ".index").unlink(missing_ok=True)
    harness.recovery_point = 1
    log = await harness.reload(is_clean=True)
    assert (log.end_offset, log.segments.view.bases) == (1, (0, 1))
    assert harness.append().base_offset == 1


def test_an_index_without_room_for_an_entry_rolls_no_empty_segment(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0", segment_index_bytes=4, index_interval_bytes=0)
    for _ in range(5):
        harness.append()
    assert offsets_of(read_all(harness.log)) == list(range(5))
    assert all(segment.size for segment in harness.log.segments.view.segments)


@pytest.mark.parametrize("seed", range(40))
async def test_no_bytes_at_all_keep_a_log_from_being_opened(tmp_path: Path, seed: int) -> None:
    rng = Random(seed)
    harness = LogHarness(tmp_path / "t-0")
    for _ in range(3):
        harness.append(batch(2, size=120))
    path = harness.segment_file(0)
    data = bytearray(path.read_bytes())
    if seed % 2:
        data += rng.randbytes(rng.randrange(400))
    for _ in range(rng.randrange(6)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    path.write_bytes(data)
    harness.recovery_point = rng.choice((None, 0, 3, 6, 1 << 40))
    log = await harness.crash()
    codes = set()
    for offset in range(log.start_offset, log.end_offset):
        try:
            log.read(offset, bytes_max=100, end=log.end_offset, at_least_one=True)
        except Refused as refusal:
            codes.add(refusal.code)
    assert codes <= {ErrorCode.CORRUPT_MESSAGE}
    # The epoch of a batch is the one field that no checksum covers.
    assert harness.append(epoch=max(0, log.epochs.latest)).base_offset == log.end_offset - 1


async def test_a_swap_that_begins_below_the_log_start_is_finished(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0", segment_bytes=200)
    for _ in range(6):
        harness.append(size=100)
    await harness.log.close()
    path = harness.segment_file(0)
    path.rename(path.with_name(path.name + ".swap"))
    harness.recovery_point = 6
    log = await harness.reload(is_clean=False, start_offset=3)
    assert (log.start_offset, log.end_offset) == (3, 6)
    assert log.segments.view.bases == (0, 2, 4)


WRITER = """
import sys
from pathlib import Path
from barnabas.broker.storage.checkpoints import RECOVERY_POINTS, format_offsets
from barnabas.broker.storage.files import DiskFiles

path = Path(sys.argv[1]) / RECOVERY_POINTS
number = 0
while True:
    number += 1
    offsets = {("t" * 200, partition): number for partition in range(50)}
    DiskFiles().write_atomically(path, format_offsets(offsets), is_synced=number % 2 == 0)
    if number == 2:
        print("going", flush=True)
"""


@pytest.mark.parametrize("turn", range(4))
def test_a_checkpoint_is_old_or_new_after_kill_9_never_a_mix(tmp_path: Path, turn: int) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    with Child(command, cwd=HERE.parents[1], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        for _ in range(turn * 30):
            read_offsets(DiskFiles(), tmp_path / RECOVERY_POINTS)
        writer.kill()
    offsets = read_offsets(DiskFiles(), tmp_path / RECOVERY_POINTS)
    assert len(offsets) == 50
    assert len(set(offsets.values())) == 1
