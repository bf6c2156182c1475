"""Segments go by log start, size and time, and by any policy, docs/spec/log.md §4.1 and §4.2."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.settings.log_config import LogConfig
from barnabas.broker.storage.log.log import Log
from barnabas.broker.storage.log_manager import LogManager
from barnabas.broker.storage.retention import (
    RetentionPolicy,
    SegmentFacts,
    TimeAndSize,
    load_policy,
)
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.settings import ConfigError
from tests.storage.faulty_files import FaultyFiles
from tests.storage.log_harness import (
    T0,
    LogHarness,
    batch,
    config,
    manager,
    offsets_of,
    read_all,
    running,
)
from tests.storage.simulated import in_simulated_time

HOUR = 3_600_000


@pytest.fixture
def harness(tmp_path: Path) -> LogHarness:
    """Four closed segments of 100 bytes and an active one of 80, one record each."""
    return filled(tmp_path)


def filled(path: Path, **overrides: Any) -> LogHarness:
    harness = LogHarness(path / "t-0", segment_bytes=100, **overrides)
    for _ in range(4):
        harness.append(size=100)
    harness.append(size=80)
    return harness


def trim(harness: LogHarness, *, now: int = T0, mark: int | None = None, **settings: object) -> int:
    """One look with these settings; the base of the first segment that is left."""
    harness.log.config = config(
        {"segment.bytes": 100} | {name.replace("_", "."): value for name, value in settings.items()}
    )
    mark = harness.log.end_offset if mark is None else mark
    count = harness.log.count_deletable(TimeAndSize(), mark, now)
    if count:
        harness.log.delete_oldest(count)
    return harness.log.segments.view.bases[0]


def test_the_size_rule_never_shrinks_a_log_below_its_limit(harness: LogHarness) -> None:
    assert trim(harness, retention_bytes=230) == 2
    assert harness.log.size == 280
    assert (harness.log.start_offset, offsets_of(read_all(harness.log))) == (2, [2, 3, 4])
    assert trim(harness, retention_bytes=230) == 2


def test_a_segment_goes_when_it_is_older_than_the_limit_and_not_when_it_is_as_old(
    harness: LogHarness,
) -> None:
    assert trim(harness, retention_ms=HOUR, now=T0 + HOUR) == 0
    assert trim(harness, retention_ms=HOUR, now=T0 + HOUR + 1) == 5


def test_a_younger_segment_keeps_all_behind_it(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0", segment_bytes=100)
    for time in (T0, T0 + 1, T0 + HOUR, T0, T0):
        harness.append(size=100, time=time)
    assert trim(harness, retention_ms=HOUR, now=T0 + HOUR + 2) == 2


@pytest.mark.parametrize("mark", [2, 3])
def test_no_policy_deletes_a_segment_that_reaches_above_the_high_watermark(
    tmp_path: Path, mark: int
) -> None:
    harness = LogHarness(tmp_path / "t-0", segment_bytes=220)
    for _ in range(4):
        harness.append(size=110)
        harness.append(size=110)
    trim(harness, mark=mark, retention_bytes=0, retention_ms=1, now=T0 + HOUR)
    assert harness.log.start_offset == 2


def test_when_all_is_old_an_empty_segment_takes_over(harness: LogHarness) -> None:
    assert trim(harness, retention_ms=1, now=T0 + HOUR) == 5
    assert (harness.log.start_offset, harness.log.end_offset, harness.log.size) == (5, 5, 0)
    assert trim(harness, retention_ms=1, now=T0 + 3 * HOUR) == 5
    assert harness.append(size=100).base_offset == 5


def test_what_lies_below_the_log_start_goes_whatever_the_policy(harness: LogHarness) -> None:
    harness.log.advance_start(3)
    assert (
        trim(harness, cleanup_policy="compact", retention_bytes=0, retention_ms=1, now=T0 * 2) == 3
    )


def test_the_start_inside_a_segment_keeps_it(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0", segment_bytes=220)
    for _ in range(4):
        harness.append(size=110)
    harness.log.advance_start(3)
    assert trim(harness) == 2
    assert harness.log.start_offset == 3


def test_the_log_start_rule_comes_first_so_that_a_second_look_finds_nothing(
    harness: LogHarness,
) -> None:
    # KAFKA-12177
    harness.log.advance_start(2)
    assert trim(harness, retention_bytes=200) == 2
    assert trim(harness, retention_bytes=200) == 2


def test_a_topic_that_is_compacted_and_deleted_loses_its_oldest_too(harness: LogHarness) -> None:
    assert trim(harness, cleanup_policy="compact", retention_bytes=0) == 0
    assert trim(harness, cleanup_policy="compact,delete", retention_bytes=230) == 2


def test_minus_one_keeps_everything(harness: LogHarness) -> None:
    assert trim(harness, retention_ms=-1, retention_bytes=-1, now=T0 * 2) == 0


def test_records_without_time_are_as_old_as_their_file(tmp_path: Path) -> None:
    # librdkafka #1238
    harness = LogHarness(tmp_path / "t-0", segment_bytes=100)
    for _ in range(2):
        harness.append(size=100, time=-1)
    os.utime(harness.segment_file(0), (T0 / 1000, T0 / 1000))
    assert trim(harness, retention_ms=HOUR, now=T0 + HOUR) == 0
    assert trim(harness, retention_ms=HOUR, now=T0 + HOUR + 1) == 1


def test_deleted_files_wait_under_another_name_with_their_snapshot(harness: LogHarness) -> None:
    trim(harness, retention_bytes=280)
    names = sorted(
        path.name for path in harness.directory.iterdir() if path.name.endswith(".deleted")
    )
    assert names == [f"{0:020d}.log.deleted", f"{1:020d}.log.deleted", f"{1:020d}.snapshot.deleted"]
    assert {path.name for path in harness.keeper.discarded} == set(names)


def test_leader_epochs_and_recovery_point_follow_the_start(harness: LogHarness) -> None:
    harness.append(size=80, epoch=3)
    trim(harness, retention_bytes=180)
    assert harness.log.epochs.pairs == [(0, 3), (3, 5)]
    assert harness.log.recovery_point == 3


def test_a_reader_of_a_deleted_segment_goes_on_even_when_its_files_are_gone(
    harness: LogHarness,
) -> None:
    held = harness.log.segments.view.segments[0]
    before = held.read(0, held.size)
    held.hold()
    trim(harness, retention_bytes=0)
    for path in harness.keeper.discarded:
        harness.files.unlink(path)
    assert held.read(0, held.size) == before
    held.release()
    with pytest.raises(Refused) as refused:
        harness.log.read(0, bytes_max=9, end=5, at_least_one=True)
    assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_a_log_that_lost_its_oldest_is_the_same_after_a_crash(harness: LogHarness) -> None:
    trim(harness, retention_bytes=230)
    log = await harness.crash()
    assert (log.start_offset, offsets_of(read_all(log))) == (2, [2, 3, 4])


def test_on_a_full_disk_all_but_the_active_segment_goes(tmp_path: Path) -> None:
    files = FaultyFiles()
    harness = LogHarness(tmp_path / "t-0", files, segment_bytes=100)
    for _ in range(3):
        harness.append(size=100)
    files.is_full = True
    with pytest.raises(Refused):
        harness.append(size=80)
    assert harness.log.is_full
    assert trim(harness, retention_bytes=0) == 2


class NewestOnly:
    """Keeps one segment of each topic whose name is given."""

    def expired(
        self, topic: str, segments: Sequence[SegmentFacts], config: LogConfig, now_ms: int
    ) -> int:
        return len(segments) - 1 if topic == "t" else 0


class Broken:
    """Fails for one topic."""

    def expired(
        self, topic: str, segments: Sequence[SegmentFacts], config: LogConfig, now_ms: int
    ) -> int:
        if topic == "bad":
            raise ZeroDivisionError
        return len(segments)


class Useless:
    """Decides nothing."""


def test_a_node_may_decide_by_a_policy_of_its_own(harness: LogHarness) -> None:
    policy = load_policy(f"{__name__}:NewestOnly")
    assert harness.log.count_deletable(policy, harness.log.end_offset, T0) == 4
    assert harness.log.count_deletable(policy, 2, T0) == 2


@pytest.mark.parametrize(
    "name", ["nowhere:Policy", "json:Policy", "json", f"{__name__}:Useless", ""]
)
def test_a_policy_that_is_none_is_named_at_the_start(name: str) -> None:
    with pytest.raises(ConfigError, match=r"log\.retention\.policy\.class"):
        load_policy(name)


# --- the regular look -----------------------------------------------------------------------------


def kept(tmp_path: Path, policy: RetentionPolicy | None = None, **settings: Any) -> LogManager:
    """A node's logs; the clock of the rules stands at T0."""
    settings = {"segment_bytes": 100, **settings}
    logs = manager([tmp_path], **settings)
    if policy is not None:
        logs._keeping._retention._policy = policy
    return logs


def fill(logs: LogManager, topic: str = "t", count: int = 5, **fields: Any) -> Log:
    log = logs.create(topic, 0, None)
    for _ in range(count):
        log.append(batch(size=100, **fields), leader_epoch=0, is_client=True)
    return log


def committed(logs: LogManager) -> None:
    """Everything is committed at once."""
    logs.bound_deletion(
        lambda topic, index: log.end_offset if (log := logs.get(topic, index)) else 0
    )


@in_simulated_time
async def test_old_segments_are_looked_for_at_the_interval(tmp_path: Path) -> None:
    async with running(kept(tmp_path, retention_bytes=200)) as logs:
        committed(logs)
        log = fill(logs)
        await asyncio.sleep(29)
        assert log.start_offset == 0
        await asyncio.sleep(2)
        assert log.start_offset == 3
        fill(logs, count=2)
        await asyncio.sleep(300)
        assert log.start_offset == 5


@in_simulated_time
async def test_files_of_deleted_segments_are_unlinked_after_the_delay(tmp_path: Path) -> None:
    async with running(kept(tmp_path, retention_bytes=0, file_delete_delay_ms=5000)) as logs:
        committed(logs)
        log = fill(logs)
        await logs.delete_old()
        assert len(list(log.directory.glob("*.log.deleted"))) == 5
        await asyncio.sleep(7)
        assert [path.name for path in log.directory.glob("*.log*")] == [f"{5:020d}.log"]


@in_simulated_time
async def test_a_log_nobody_uses_is_bounded_by_the_mark_that_was_written_down(
    tmp_path: Path,
) -> None:
    async with running(kept(tmp_path)) as logs:
        fill(logs)
        logs.record_high_watermarks(lambda: [("t", 0, 3)])
    async with running(kept(tmp_path, retention_bytes=0)) as logs:
        await logs.delete_old()
        assert [log.start_offset for log in logs.logs()] == [3]


@in_simulated_time
async def test_a_log_under_compaction_is_left_alone(tmp_path: Path) -> None:
    async with running(kept(tmp_path, retention_bytes=0)) as logs:
        committed(logs)
        log = fill(logs)
        log.is_being_cleaned = True
        await logs.delete_old()
        assert log.start_offset == 0


@in_simulated_time
async def test_a_policy_that_fails_keeps_that_log_and_no_other(tmp_path: Path) -> None:
    async with running(kept(tmp_path, Broken())) as logs:
        committed(logs)
        bad, good = fill(logs, "bad"), fill(logs, "good")
        await logs.delete_old()
        assert (bad.start_offset, good.start_offset) == (0, 5)


@in_simulated_time
async def test_new_limits_of_a_topic_count_at_the_next_look(tmp_path: Path) -> None:
    overrides: dict[str, str] = {}
    logs = kept(tmp_path)
    logs._overrides = lambda topic: overrides
    async with running(logs):
        committed(logs)
        log = fill(logs)
        await logs.delete_old()
        assert log.start_offset == 0
        overrides["retention.bytes"] = "100"
        logs.reconfigure("t")
        await logs.delete_old()
        assert log.start_offset == 4


@in_simulated_time
async def test_many_segments_go_in_one_look(tmp_path: Path) -> None:
    async with running(kept(tmp_path, retention_bytes=0)) as logs:
        committed(logs)
        log = fill(logs, count=50)
        await logs.delete_old()
        assert log.segments.view.bases == (50,)


async def test_records_from_the_future_are_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # KAFKA-18929
    logs = kept(tmp_path)
    await logs.load()
    fill(logs, time=T0 + HOUR)
    for _ in range(3):
        await logs.delete_old()
    assert sum("future" in record.message for record in caplog.records) == 1
    await logs.close()
