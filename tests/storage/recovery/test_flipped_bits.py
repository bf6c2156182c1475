"""One flipped bit in each kind of file of a data directory, and a start after it.

Never wrong records, never a silence: what a reader gets is what was appended, or he is refused and
the log names the file. docs/log.md has the table that this states. Issue 12, item 19.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from barnabas.broker.lifecycle.node_identity import NodeIdentity, read_note, write_note
from barnabas.broker.storage.checkpoints import (
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    format_offsets,
)
from barnabas.broker.storage.compaction.cleaner_checkpoints import CLEANED, CleanerCheckpoints
from barnabas.broker.storage.files import DiskFiles, StorageError
from barnabas.broker.storage.log.log import Log
from barnabas.broker.storage.log_manager import LogManager
from barnabas.broker.storage.recovery.damage import damaged_parts
from barnabas.broker.storage.recovery.damage_inspection import DamageInspection
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.records import batch
from barnabas.protocol.records.batch import build_batch
from barnabas.protocol.settings import ConfigError
from tests.storage.log_harness import T0, LogHarness, manager, running
from tests.storage.producers.transactional import Writing, aborted
from tests.storage.simulated import in_simulated_time

TOPIC_ID = bytes(range(16))
COUNT = 24
"""Records, two in a batch."""
SUFFIXES = (".log", ".index", ".timeindex", ".snapshot")
CHECKPOINTS = (RECOVERY_POINTS, HIGH_WATERMARKS, "leader-epoch-checkpoint")


def small(data: Path, **overrides: object) -> LogManager:
    """A node's logs, with segments of a few batches."""
    return manager([data], None, segment_bytes=700, index_interval_bytes=200, **overrides)


def value(offset: int) -> bytes:
    return b"value %d " % offset * 6


async def filled(data: Path) -> None:
    """A log of several segments and leader epochs, as a stop in order leaves it."""
    async with running(small(data)) as logs:
        log = logs.create("t", 0, TOPIC_ID)
        for first in range(0, COUNT, 2):
            made = build_batch(
                [(b"k", value(first)), (b"k", value(first + 1))],
                timestamp_ms=T0 + first,
                producer_id=7,
                producer_epoch=0,
                base_sequence=first,
            )
            log.append(made, leader_epoch=first // 8, is_client=True)
        logs.record_high_watermarks(lambda: [("t", 0, COUNT)])


def files_of(data: Path, kind: str) -> list[Path]:
    found = sorted((data / "t-0").iterdir()) + sorted(path for path in data.iterdir())
    return [outcome for outcome in found if outcome.is_file() and outcome.name.endswith(kind)]


def flip(path: Path, place: int, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1 << bit
    path.write_bytes(data)


def read_all(log: Log) -> tuple[dict[int, bytes], set[int]]:
    """The value of every record that is served, and the offsets that are refused."""
    found, refused, offset = {}, set(), log.start_offset
    while offset < log.end_offset:
        try:
            piece = log.read(offset, bytes_max=1, end=log.end_offset, at_least_one=True)
        except Refused as refusal:
            if refusal.code not in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR):
                raise
            refused.add(offset)
            offset += 1
            continue
        for position, size in batch.iterate(piece):
            if batch.crc_is_valid(piece, position, size):  # as clients look at it
                for record in batch.records(piece, position):
                    found[record.offset] = bytes(record.value or b"")
            else:
                refused |= {offset, offset + 1}  # a client stops here, whatever the header says
        following = batch.next_offset(piece)
        assert following > offset
        offset = following
    return found, refused


async def judge(logs: LogManager, caplog: pytest.LogCaptureFixture, path: Path) -> None:
    log = logs.get("t", 0)
    assert log is not None
    found, _ = read_all(log)
    await DamageInspection(log._files).inspect(log)
    again, still_refused = read_all(log)
    for outcome in (found, again):
        assert all(outcome[offset] == value(offset) for offset in outcome)
    assert {*again, *still_refused} >= set(range(COUNT))
    assert len(still_refused) <= 2, "more than the damaged batch"
    if still_refused and list(damaged_parts(log)):
        assert str(path) in caplog.text


def sample(size: int) -> list[int]:
    """Places all over a file; every one of the first headers."""
    return sorted({*range(min(size, 70)), *range(0, size, max(1, size // 40))})


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("kind", [*SUFFIXES, *CHECKPOINTS, "partition.metadata"])
@in_simulated_time
async def test_no_flipped_bit_serves_wrong_records_or_hides_any_in_silence(
    tmp_path: Path, kind: str, is_clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    whole = tmp_path / "whole"
    await filled(whole)
    if not is_clean:
        (whole / ".kafka_cleanshutdown").unlink()
    paths = files_of(whole, kind)
    assert paths, kind
    one = paths[len(paths) // 2]
    for place in sample(one.stat().st_size):
        data = tmp_path / "data"
        shutil.copytree(whole, data)
        path = data / one.relative_to(whole)
        flip(path, place, place % 8)
        caplog.clear()
        logs = small(data)
        try:
            async with running(logs):
                logs.create("t", 0, TOPIC_ID)
                await judge(logs, caplog, path)
        except (StorageError, ConfigError) as refusal:
            told = str(refusal) + caplog.text
            if str(path) not in told:
                pytest.fail(f"{path} is not named: {told}")
        shutil.rmtree(data)


@in_simulated_time
async def test_a_log_start_above_the_end_of_a_log_that_was_closed_deletes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await filled(tmp_path)
    (tmp_path / LOG_STARTS).write_text("0\n1\nt 0 90\n")
    async with running(small(tmp_path)) as logs:
        log = logs.get("t", 0)
        assert log is not None
        assert len(read_all(log)[0]) == COUNT
    assert "its checkpoint is damaged" in caplog.text


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
@in_simulated_time
async def test_a_missing_segment_in_the_middle_is_told_at_the_start(
    tmp_path: Path, is_clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    await filled(tmp_path)
    if not is_clean:
        (tmp_path / ".kafka_cleanshutdown").unlink()
    bases = [int(file.stem) for file in files_of(tmp_path, ".log")]
    for file in files_of(tmp_path, ""):
        if file.name.startswith(f"{bases[1]:020d}."):
            file.unlink()
    async with running(small(tmp_path)) as logs:
        log = logs.get("t", 0)
        assert log is not None
        assert log.end_offset == COUNT
    assert f"found no segment for offsets={bases[1]}..{bases[2] - 1}" in caplog.text


@in_simulated_time
async def test_holes_that_compaction_leaves_are_not_told_unless_an_index_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await filled(tmp_path)
    bases = [int(file.stem) for file in files_of(tmp_path, ".log")]
    (tmp_path / "t-0" / f"{bases[1]:020d}.log").unlink()
    async with running(small(tmp_path, cleanup_policy="compact")):
        assert f"offsets={bases[1]}..{bases[2] - 1}" in caplog.text
    caplog.clear()
    async with running(small(tmp_path, cleanup_policy="compact")):
        assert "found no segment" not in caplog.text


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
@in_simulated_time
async def test_no_flipped_bit_in_a_transaction_index_shows_or_hides_a_transaction(
    tmp_path: Path, is_clean: bool
) -> None:
    harness = LogHarness(tmp_path / "t-0", segment_bytes=900)
    writing = Writing(harness)
    for round_ in range(6):
        for producer in (1, 2):
            writing.send(producer, 2)
        writing.plain()
        (writing.commit if round_ % 3 else writing.abort)(1)
        writing.send(1)
        writing.abort(2)
        writing.abort(1)
    await harness.log.close()
    harness.recovery_point = harness.log.end_offset
    said = aborted(harness.log)
    paths = sorted(harness.directory.glob("*.txnindex"))
    assert len(paths) > 2
    for path in paths[-1:]:
        whole = path.read_bytes()
        for place in range(len(whole)):
            flip(path, place, place % 8)
            await harness.reload(is_clean=is_clean)
            assert aborted(harness.log) == said, f"{path} byte {place}"
            await harness.log.flush()
            assert path.read_bytes() == whole, "not mended on disk"


@in_simulated_time
async def test_a_flipped_bit_in_the_cleaners_checkpoint_hides_no_record(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    await filled(whole)
    text = format_offsets({("t", 0): 10})
    for place in range(len(text)):
        data = tmp_path / "data"
        shutil.copytree(whole, data)
        (data / CLEANED).write_bytes(text)
        flip(data / CLEANED, place, place % 8)
        logs = small(data, cleanup_policy="compact")
        async with running(logs):
            log = logs.create("t", 0, TOPIC_ID)
            checkpoints = CleanerCheckpoints(DiskFiles(), logs)
            checkpoints.load()
            assert 0 <= checkpoints.first_dirty(log) <= COUNT
            assert len(read_all(log)[0]) == COUNT
        shutil.rmtree(data)


def test_no_flipped_bit_in_meta_properties_lets_a_node_take_a_new_id(tmp_path: Path) -> None:
    write_note(DiskFiles(), tmp_path, NodeIdentity(7, "x" * 22))
    path = tmp_path / "meta.properties"
    whole = path.read_bytes()
    for place in range(len(whole)):
        for bit in range(8):
            path.write_bytes(whole)
            flip(path, place, bit)
            try:
                assert "broker.id" in read_note(DiskFiles(), tmp_path)
            except ConfigError as refusal:
                if "cannot be read" not in str(refusal):
                    pytest.fail(str(refusal))
