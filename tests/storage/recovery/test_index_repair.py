"""A bad index of a large segment is made again in slices, docs/spec/log.md §2.3, §9 pitfall P2."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from barnabas.broker.storage.cooperative import at_once
from barnabas.broker.storage.log.log import Log
from barnabas.broker.storage.log_manager import LogManager
from barnabas.broker.storage.segment import segment as segments
from barnabas.broker.storage.segment.offset_index import OffsetIndex
from barnabas.protocol.errors import ErrorCode, Refused
from tests.harness.compiled_code import interpreted_only
from tests.storage.log_harness import LogHarness, batch, manager, offsets_of, read_all, running
from tests.storage.simulated import in_simulated_time

pytestmark = interpreted_only


@pytest.fixture(autouse=True)
def no_segment_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "REPAIR_AT_ONCE_BYTES", 0)


def lies(size: int) -> bytes:
    """An index of twenty batches of one record that points into the middle of one.

    Its last entry is right: that one is looked at when a log is loaded.
    """
    index = OffsetIndex()
    index.add(3, 3 * size)
    index.add(12, 15 * size + 7)
    index.add(18, 18 * size)
    return index.to_bytes()


@pytest.fixture
async def harness(tmp_path: Path) -> LogHarness:
    """Two segments of twenty records; the index of the first is bad from offset 12 on."""
    harness = LogHarness(tmp_path / "t-0", index_interval_bytes=100)
    for _ in range(20):
        harness.append()
    harness.log.roll()
    for _ in range(20):
        harness.append()
    await harness.log.close()
    harness.segment_file(0, ".index").write_bytes(lies(len(batch())))
    await harness.reload(is_clean=True)
    return harness


def read(log: Log, offset: int) -> list[int]:
    return offsets_of(log.read(offset, bytes_max=1, end=log.end_offset, at_least_one=True))


def test_a_reader_is_told_to_come_back_and_the_repair_is_asked_for(harness: LogHarness) -> None:
    for _ in range(2):
        with pytest.raises(Refused) as refused:
            read(harness.log, 12)
        assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert set(harness.keeper.repairs) == {harness.log.segments.view.segments[0]}
    assert not harness.log.is_offline
    assert read(harness.log, 25) == [25]


def test_after_the_repair_every_offset_is_found(harness: LogHarness) -> None:
    with pytest.raises(Refused):
        read(harness.log, 12)
    assert at_once(harness.keeper.repairs[0].repair())
    assert [read(harness.log, offset) for offset in range(40)] == [[offset] for offset in range(40)]


def test_what_is_appended_during_the_repair_is_found_too(harness: LogHarness) -> None:
    active = harness.log.segments.active
    repair = active.repair()
    next(repair)
    for _ in range(20):
        harness.append()
    assert at_once(repair)
    assert [read(harness.log, offset) for offset in range(20, 60)] == [[o] for o in range(20, 60)]


def test_a_repair_gives_up_when_the_segment_is_truncated(harness: LogHarness) -> None:
    repair = harness.log.segments.active.repair()
    next(repair)
    harness.log.truncate_to(30)
    assert not at_once(repair)
    assert read(harness.log, 29) == [29]


def test_a_follower_truncates_at_once_whatever_the_index_says(harness: LogHarness) -> None:
    harness.log.truncate_to(14)
    assert offsets_of(read_all(harness.log)) == list(range(14))


def test_a_bad_entry_does_not_spoil_a_read_of_many_batches(harness: LogHarness) -> None:
    size = len(batch())
    data = harness.log.read(10, bytes_max=6 * size, end=40, at_least_one=True)
    assert offsets_of(data) == list(range(10, 16))


async def test_an_index_that_is_not_even_plausible_is_repaired_alike(harness: LogHarness) -> None:
    await harness.log.close()
    index = OffsetIndex()
    index.add(19, 19 * len(batch()))
    harness.segment_file(0, ".index").write_bytes(bytes(16) + index.to_bytes())
    await harness.reload(is_clean=True)
    with pytest.raises(Refused):
        read(harness.log, 5)
    assert at_once(harness.keeper.repairs[0].repair())
    assert read(harness.log, 5) == [5]


async def with_bad_index(tmp_path: Path) -> LogManager:
    async with running(manager([tmp_path], index_interval_bytes=100)) as logs:
        log = logs.create("t", 0, None)
        for _ in range(20):
            log.append(batch(), leader_epoch=0, is_client=True)
        log.roll()
    (tmp_path / "t-0" / f"{0:020d}.index").write_bytes(lies(len(batch())))
    return manager([tmp_path], index_interval_bytes=100)


@in_simulated_time
async def test_a_node_repairs_it_in_the_background_and_on_disk(tmp_path: Path) -> None:
    async with running(await with_bad_index(tmp_path)) as logs:
        [log] = logs.logs()
        for _ in range(3):
            with pytest.raises(Refused):
                read(log, 13)
        await asyncio.sleep(1)
        assert read(log, 13) == [13]
    async with running(manager([tmp_path])) as logs:
        [log] = logs.logs()
        assert read(log, 13) == [13]


@in_simulated_time
async def test_a_segment_that_was_deleted_before_its_repair_is_left_alone(tmp_path: Path) -> None:
    async with running(await with_bad_index(tmp_path)) as logs:
        [log] = logs.logs()
        with pytest.raises(Refused):
            read(log, 13)
        logs.delete("t", 0)
        await asyncio.sleep(1)
