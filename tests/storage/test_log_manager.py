"""All logs of a node: start, stop, checkpoints, deletion, failing directories."""

from __future__ import annotations

import asyncio
from collections import UserDict
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.storage.checkpoints import parse_offsets
from barnabas.broker.storage.files import Data, DiskFiles, StorageError
from barnabas.broker.storage.log_manager import LogManager
from barnabas.broker.storage.partition_metadata import METADATA, format_metadata, read_topic_id
from barnabas.broker.storage.segment.open_files import open_files
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.settings import ConfigError
from tests.storage.faulty_files import FaultyFiles
from tests.storage.log_harness import batch, manager, offsets_of, read_all, running
from tests.storage.simulated import in_simulated_time

MARKER = ".kafka_cleanshutdown"
TOPIC_ID = bytes(range(16))


def append(logs: LogManager, topic: str = "t", count: int = 1) -> int:
    log = logs.get(topic, 0)
    assert log is not None
    return log.append(batch(count), leader_epoch=0, is_client=True).base_offset


def end_offset(logs: LogManager, topic: str = "t") -> int:
    log = logs.get(topic, 0)
    assert log is not None
    return log.end_offset


def checkpoint(path: Path, name: str) -> dict[tuple[str, int], int]:
    return parse_offsets((path / name).read_text())


def names(directory: Path, pattern: str) -> list[str]:
    return sorted(path.name for path in directory.glob(pattern))


def crash(logs: LogManager) -> None:
    """The process is gone: its descriptors and locks are closed, nothing else is done."""
    for log in logs.logs():
        log.retire()
    for directory in logs.directories:
        directory.close()


@in_simulated_time
async def test_logs_are_found_again_after_a_stop(tmp_path: Path) -> None:
    async with running(manager([tmp_path])) as logs:
        logs.create("t", 0, TOPIC_ID)
        logs.create("a-b", 3, None)
        append(logs, count=5)
    async with running(manager([tmp_path])) as logs:
        assert end_offset(logs) == 5
        assert [log.topic_id for log in logs.logs()] == [None, TOPIC_ID]
        assert sorted((log.topic, log.partition) for log in logs.logs()) == [("a-b", 3), ("t", 0)]


@in_simulated_time
async def test_the_marker_stands_between_a_clean_stop_and_the_next_start(tmp_path: Path) -> None:
    async with running(manager([tmp_path])) as logs:
        logs.create("t", 0, None)
        append(logs)
        assert not (tmp_path / MARKER).exists()
    assert (tmp_path / MARKER).exists()
    again = manager([tmp_path])
    await again.load()
    assert again.directories[0].was_clean
    assert not (tmp_path / MARKER).exists()
    crash(again)
    unclean = manager([tmp_path])
    await unclean.load()
    assert not unclean.directories[0].was_clean
    await unclean.close()


@in_simulated_time
async def test_a_torn_tail_is_cut_at_the_start_after_a_crash(tmp_path: Path) -> None:
    logs = manager([tmp_path])
    await logs.load()
    logs.create("t", 0, None)
    for _ in range(3):
        append(logs)
    crash(logs)
    path = tmp_path / "t-0" / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:-5])
    async with running(manager([tmp_path])) as logs:
        assert end_offset(logs) == 2


@in_simulated_time
async def test_a_second_process_is_kept_out_of_the_directory(tmp_path: Path) -> None:
    async with running(manager([tmp_path])):
        with pytest.raises(StorageError, match="locked"):
            await manager([tmp_path]).load()
    async with running(manager([tmp_path])):
        pass


@in_simulated_time
async def test_two_directories_for_one_partition_refuse_to_start(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "t-0").mkdir(parents=True)
    with pytest.raises(ConfigError, match="one log"):
        await manager([tmp_path / "a", tmp_path / "b"]).load()


@in_simulated_time
async def test_a_directory_that_is_no_log_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "t-0.0123456789abcdef0123456789abcdef-stray").mkdir()
    (tmp_path / "cluster.json").write_text("{}")
    async with running(manager([tmp_path])) as logs:
        assert logs.logs() == []
    assert (tmp_path / "lost+found").exists()


@in_simulated_time
async def test_a_new_log_goes_where_the_fewest_are(tmp_path: Path) -> None:
    async with running(manager([tmp_path / "a", tmp_path / "b"])) as logs:
        parents = [logs.create("t", index, None).directory.parent.name for index in range(4)]
        assert sorted(parents) == ["a", "a", "b", "b"]
        assert logs.create("t", 0, None) is logs.get("t", 0)


@pytest.mark.parametrize("place", range(len(format_metadata(TOPIC_ID))))
@pytest.mark.parametrize("bit", [0, 6])
@in_simulated_time
async def test_a_flipped_bit_in_partition_metadata_is_mended_as_the_controller_says(
    tmp_path: Path, place: int, bit: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(manager([tmp_path])) as logs:
        logs.create("t", 0, TOPIC_ID)
        append(logs, count=5)
    path = tmp_path / "t-0" / METADATA
    data = bytearray(path.read_bytes())
    data[place] ^= 1 << bit
    path.write_bytes(data)
    async with running(manager([tmp_path])) as logs:
        assert logs.create("t", 0, TOPIC_ID).end_offset == 5
    assert read_topic_id(DiskFiles(), path.parent) == TOPIC_ID
    # The last letter has bits that mean nothing.
    assert str(path) in caplog.text or place == len(data) - 1


@in_simulated_time
async def test_a_log_of_another_topic_of_that_name_is_refused(tmp_path: Path) -> None:
    async with running(manager([tmp_path])) as logs:
        logs.create("t", 0, None)
        logs.create("t", 0, TOPIC_ID)
        with pytest.raises(Refused) as refused:
            logs.create("t", 0, bytes(15) + b"\1")
        assert refused.value.code == ErrorCode.INCONSISTENT_TOPIC_ID
        assert (tmp_path / "t-0" / METADATA).read_bytes() == format_metadata(TOPIC_ID)


@in_simulated_time
async def test_a_deleted_log_gives_its_name_back_at_once_and_its_files_later(
    tmp_path: Path,
) -> None:
    async with running(manager([tmp_path], file_delete_delay_ms=5000)) as logs:
        logs.create("t", 0, None)
        append(logs, count=7)
        logs.delete("t", 0)
        assert logs.get("t", 0) is None
        logs.create("t", 0, None)
        assert append(logs) == 0
        await asyncio.sleep(4)
        assert len(names(tmp_path, "*-delete")) == 1
        await asyncio.sleep(3)
        assert names(tmp_path, "*-delete") == []
        assert offsets_of(read_all(logs.logs()[0])) == [0]


@in_simulated_time
async def test_a_deletion_that_a_crash_interrupted_is_finished(tmp_path: Path) -> None:
    logs = manager([tmp_path])
    await logs.load()
    logs.create("t", 0, None)
    logs.delete("t", 0)
    crash(logs)
    assert len(names(tmp_path, "*-delete")) == 1
    async with running(manager([tmp_path])) as logs:
        await asyncio.sleep(2)
        assert (logs.logs(), names(tmp_path, "*-delete")) == ([], [])


@in_simulated_time
async def test_checkpoints_are_written_at_their_intervals(tmp_path: Path) -> None:
    async with running(manager([tmp_path])) as logs:
        log = logs.create("t", 0, None)
        append(logs, count=9)
        logs.record_high_watermarks(lambda: [("t", 0, 4)])
        await asyncio.sleep(6)
        assert checkpoint(tmp_path, "replication-offset-checkpoint") == {("t", 0): 4}
        log.start_offset = 3
        await log.flush()
        await asyncio.sleep(60)
        assert checkpoint(tmp_path, "recovery-point-offset-checkpoint") == {("t", 0): 9}
        assert checkpoint(tmp_path, "log-start-offset-checkpoint") == {("t", 0): 3}


@in_simulated_time
async def test_high_watermarks_survive_until_somebody_knows_better(tmp_path: Path) -> None:
    async with running(manager([tmp_path])) as logs:
        logs.create("t", 0, None)
        append(logs, count=9)
        logs.record_high_watermarks(lambda: [("t", 0, 4), ("gone", 1, 7)])
    for _ in range(2):
        async with running(manager([tmp_path])) as logs:
            assert logs.high_watermark("t", 0) == 4
            await asyncio.sleep(6)
    assert checkpoint(tmp_path, "replication-offset-checkpoint") == {("t", 0): 4}


class CountedMarks(UserDict[tuple[str, int], int]):
    """Offsets of a checkpoint that count how often all of them are looked at."""

    looks = 0

    def __iter__(self) -> Iterator[tuple[str, int]]:
        self.looks += 1
        return super().__iter__()


@in_simulated_time
async def test_what_a_checkpoint_says_of_all_logs_is_copied_once_however_many_ask(
    tmp_path: Path,
) -> None:
    """Each partition asks when it is led: of 100,000 that was half of a start."""
    async with running(manager([tmp_path])) as logs:
        logs.create("t", 0, None)
        append(logs, count=9)
        marks = CountedMarks({("t", 0): 4})
        logs.directories[0].high_watermarks = marks
        assert [logs.high_watermark("t", 0) for _ in range(3)] == [4, 4, 4]
        assert marks.looks == 1


@in_simulated_time
async def test_a_high_watermark_is_clamped_to_its_log(tmp_path: Path) -> None:
    async with running(manager([tmp_path])) as logs:
        logs.create("t", 0, None)
        append(logs, count=3)
    for text, mark in (("0\n1\nt 0 99\n", 3), ("0\n9\nt 0 99\n", 0)):
        (tmp_path / "replication-offset-checkpoint").write_text(text)
        async with running(manager([tmp_path])) as logs:
            assert logs.high_watermark("t", 0) == mark


@in_simulated_time
async def test_a_log_start_survives_a_crash_through_its_checkpoint(tmp_path: Path) -> None:
    logs = manager([tmp_path])
    await logs.load()
    logs.create("t", 0, None)
    append(logs, count=9)
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nt 0 4\n")
    crash(logs)
    async with running(manager([tmp_path])) as logs:
        assert [log.start_offset for log in logs.logs()] == [4]


@in_simulated_time
async def test_policy_m_flushes_in_the_background_and_says_when_that_is_done(
    tmp_path: Path,
) -> None:
    async with running(manager([tmp_path], flush_messages=1)) as logs:
        log = logs.create("t", 0, None)
        durable: list[int] = []
        log.on_durable.append(lambda: durable.append(log.durable_offset))
        for _ in range(3):
            append(logs)
        assert log.durable_offset == 0
        await asyncio.sleep(1)
        assert durable == [3]
        append(logs)
        await asyncio.sleep(1)
        assert durable == [3, 4]


@in_simulated_time
async def test_policy_s_flushes_what_is_old_enough(tmp_path: Path) -> None:
    async with running(manager([tmp_path], flush_ms=3000)) as logs:
        log = logs.create("t", 0, None)
        await asyncio.sleep(1)
        append(logs)
        await asyncio.sleep(1)
        assert log.recovery_point == 0
        await asyncio.sleep(4)
        assert log.recovery_point == 1


@in_simulated_time
async def test_without_a_policy_a_crash_still_costs_no_more_than_some_minutes_of_checks(
    tmp_path: Path,
) -> None:
    async with running(manager([tmp_path])) as logs:
        logs.create("t", 0, None)
        await asyncio.sleep(1)
        append(logs, count=5)
        await asyncio.sleep(121)
        assert checkpoint(tmp_path, "recovery-point-offset-checkpoint") == {("t", 0): 5}


@in_simulated_time
async def test_a_failing_directory_goes_offline_and_the_other_goes_on(tmp_path: Path) -> None:
    files = FaultyFiles()
    told: list[tuple[Path, list[tuple[str, int]]]] = []
    async with running(manager([tmp_path / "a", tmp_path / "b"], files)) as logs:
        logs.offline.append(lambda path, keys: told.append((path, list(keys))))
        one, other = logs.create("t", 0, None), logs.create("u", 0, None)
        files.fail_next("write")
        for _ in range(2):
            with pytest.raises(Refused) as refused:
                append(logs)
            assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert told == [(one.directory.parent, [("t", 0)])]
        assert append(logs, "u") == 0
        assert logs.create("t", 1, None).directory.parent == other.directory.parent
    assert not (one.directory.parent / MARKER).exists()
    assert (other.directory.parent / MARKER).exists()


@in_simulated_time
async def test_the_last_failing_directory_ends_the_node(tmp_path: Path) -> None:
    files = FaultyFiles()
    logs = manager([tmp_path], files)
    await logs.load()
    logs.create("t", 0, None)
    running = asyncio.create_task(logs.run())
    await asyncio.sleep(1)
    append(logs)
    files.fail_next("fsync")
    with pytest.raises(Refused):
        await logs.logs()[0].flush()
    with pytest.raises(ExceptionGroup) as failed:
        await running
    assert failed.value.subgroup(StorageError) is not None
    await logs.close()
    assert not (tmp_path / MARKER).exists()


@in_simulated_time
async def test_a_full_disk_heals_by_itself(tmp_path: Path) -> None:
    files = FaultyFiles()
    async with running(manager([tmp_path], files)) as logs:
        log = logs.create("t", 0, None)
        append(logs)
        files.is_full = True
        with pytest.raises(Refused):
            append(logs)
        await asyncio.sleep(10)
        assert log.is_full
        files.is_full = False
        await asyncio.sleep(2)
        assert append(logs) == 1


@in_simulated_time
async def test_a_log_that_found_no_room_is_asked_for_again(tmp_path: Path) -> None:
    files = FaultyFiles()
    async with running(manager([tmp_path], files)) as logs:
        told: list[bool] = []
        logs.on_space_available.append(lambda: told.append(files.is_full))
        files.is_full = True
        with pytest.raises(StorageError):
            logs.create("t", 0, b"i" * 16)
        await asyncio.sleep(10)
        files.is_full = False
        await asyncio.sleep(10)
        assert told == [False]
        assert logs.create("t", 0, b"i" * 16).end_offset == 0


@in_simulated_time
async def test_a_log_that_could_not_be_made_keeps_no_file_open(tmp_path: Path) -> None:
    class FullForNames(DiskFiles):
        """Empty files still fit; what would hold the topic's id does not."""

        def write_atomically(self, path: Path, data: Data, *, is_synced: bool = True) -> None:
            if path.name == METADATA:
                raise StorageError(path, "injected: no space", is_full=True)
            super().write_atomically(path, data, is_synced=is_synced)

    async with running(manager([tmp_path], FullForNames())) as logs:
        before = len(open_files)
        for _ in range(3):
            with pytest.raises(StorageError):
                logs.create("t", 0, TOPIC_ID)
        assert (logs.get("t", 0), len(open_files)) == (None, before)


@in_simulated_time
async def test_a_full_disk_keeps_the_old_checkpoints(tmp_path: Path) -> None:
    files = FaultyFiles()
    async with running(manager([tmp_path], files)) as logs:
        log = logs.create("t", 0, None)
        append(logs)
        await log.flush()
        files.is_full = True
        await asyncio.sleep(120)
        assert not log.is_offline
        files.is_full = False


@in_simulated_time
async def test_a_directory_that_cannot_be_opened_leaves_the_others(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a file")
    async with running(manager([tmp_path / "a", tmp_path / "b"])) as logs:
        assert logs.create("t", 0, None).directory.parent.name == "b"
    with pytest.raises(StorageError, match="no log directory works"):
        await manager([tmp_path / "a"]).load()


@in_simulated_time
async def test_a_crash_while_loading_leaves_the_next_start_unclean(tmp_path: Path) -> None:
    async with running(manager([tmp_path])) as logs:
        logs.create("t", 0, None)
        append(logs)
    files = FaultyFiles()
    files.fail_next("read")
    with pytest.raises(StorageError):
        await manager([tmp_path], files).load()
    assert not (tmp_path / MARKER).exists()
    again = manager([tmp_path])
    await again.load()
    assert not again.directories[0].was_clean
    await again.close()


@in_simulated_time
async def test_new_settings_of_a_topic_reach_its_logs(tmp_path: Path) -> None:
    overrides: dict[str, str] = {}
    logs = manager([tmp_path])
    logs._overrides = lambda topic: overrides if topic == "t" else {}
    async with running(logs):
        for topic in ("t", "u"):
            logs.create(topic, 0, None)
        overrides["segment.bytes"] = "100"
        logs.reconfigure("t")
        logs.reconfigure("u")
        for _ in range(3):
            append(logs, "t")
            append(logs, "u")
        assert [len(log.segments.view.bases) for log in logs.logs()] == [3, 1]
        overrides["segment.bytes"] = "nonsense"
        logs.reconfigure("t")
        assert logs.logs()[0].config.segment_bytes == 1 << 30


@given(st.lists(st.tuples(st.booleans(), st.sampled_from("tuv"), st.integers(0, 3)), max_size=30))
@in_simulated_time
async def test_the_logs_of_a_directory_and_of_a_topic_are_those_of_a_look_at_all(
    changes: list[tuple[bool, str, int]],
) -> None:
    with TemporaryDirectory() as base:
        overrides: dict[str, str] = {}
        logs = manager([Path(base) / name for name in "ab"])
        logs._overrides = lambda topic: overrides if topic == "t" else {}
        await logs.load()
        for step, (is_created, topic, partition) in enumerate(changes):
            if is_created:
                logs.create(topic, partition, None)
            else:
                logs.delete(topic, partition)
            for directory in logs.directories:
                assert logs.logs_in(directory) == [
                    log for log in logs.logs() if log.directory.parent == directory.path
                ]
            overrides["segment.bytes"] = str(100 + step)
            logs.reconfigure("t")
            assert [log for log in logs.logs() if log.config.segment_bytes == 100 + step] == [
                log for log in logs.logs() if log.topic == "t"
            ]
        await logs.close()


@in_simulated_time
async def test_deleted_segments_are_unlinked_after_their_delay(tmp_path: Path) -> None:
    async with running(manager([tmp_path], file_delete_delay_ms=5000)) as logs:
        log = logs.create("t", 0, None)
        append(logs)
        log.truncate_fully(5)
        assert len(names(log.directory, "*.log.deleted")) == 1
        await asyncio.sleep(7)
        assert names(log.directory, "*.log*") == [f"{5:020d}.log"]


class _CountingFiles(DiskFiles):
    """Notes what is replaced and fsynced."""

    def __init__(self) -> None:
        super().__init__()
        self.replaced: list[str] = []

    def write_atomically(self, path: Path, data: Data, *, is_synced: bool = True) -> None:
        self.replaced.append(path.name)
        super().write_atomically(path, data, is_synced=is_synced)


@in_simulated_time
async def test_a_start_after_a_clean_stop_waits_for_the_disk_for_no_log(tmp_path: Path) -> None:
    async with running(manager([tmp_path])) as logs:
        for partition in range(3):
            logs.create("t", partition, None)
        append(logs)
        for partition in range(3):
            log = logs.get("t", partition)
            assert log is not None
            log.assign_epoch(5, log.end_offset)  # elected, and nothing written since
    files = _CountingFiles()
    async with running(manager([tmp_path], files)) as logs:
        assert "leader-epoch-checkpoint" not in files.replaced
        assert [log.epochs.latest for log in logs.logs()] == [0, -1, -1]


@in_simulated_time
async def test_an_epoch_left_at_the_end_of_the_file_gives_way_to_the_one_that_writes_there(
    tmp_path: Path,
) -> None:
    async with running(manager([tmp_path])) as logs:
        log = logs.create("t", 0, None)
        append(logs)
        log.assign_epoch(5, log.end_offset)
    again = manager([tmp_path])
    await again.load()
    log = again.logs()[0]
    log.append(batch(1), leader_epoch=7, is_client=True)
    crash(again)
    third = manager([tmp_path])
    await third.load()
    assert third.logs()[0].epochs.pairs == [(0, 0), (7, 1)]
    await third.close()


@in_simulated_time
async def test_who_writes_log_starts_is_told_where_there_was_no_room(tmp_path: Path) -> None:
    files = FaultyFiles()
    async with running(manager([tmp_path], files)) as logs:
        log = logs.create("t", 0, None)
        append(logs, count=3)
        log.advance_start(2)
        files.is_full = True
        assert await logs.write_log_starts() == {tmp_path}
        files.is_full = False
        assert await logs.write_log_starts() == frozenset()
        assert checkpoint(tmp_path, "log-start-offset-checkpoint") == {("t", 0): 2}
