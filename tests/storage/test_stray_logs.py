"""Logs that were set aside: kept, and taken back whole by the partition that they belong to."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from barnabas.broker.storage.log_manager import LogManager
from barnabas.protocol.errors import ErrorCode, Refused
from tests.storage.log_harness import batch, manager, running
from tests.storage.simulated import in_simulated_time

TOPIC_ID = bytes(range(16))
OTHER_ID = bytes(16)[:-1] + b"\x01"
LONG = "t" * 249
MARKER = ".kafka_cleanshutdown"


def with_records(logs: LogManager, count: int, topic: str = "t", epoch: int = 0) -> None:
    log = logs.create(topic, 0, TOPIC_ID)
    log.assign_epoch(epoch, log.end_offset)
    log.append(batch(count), leader_epoch=epoch, is_client=True)


def end_offset(logs: LogManager, topic: str = "t") -> int | None:
    log = logs.get(topic, 0)
    return None if log is None else log.end_offset


def strays(directory: Path) -> list[Path]:
    return list(directory.glob("*-stray"))


def loaded(logs: LogManager) -> asyncio.Event:
    """Set when a log that was refused may be asked for again."""
    told = asyncio.Event()
    logs.on_space_available.append(told.set)
    return told


async def taken_back(logs: LogManager, topic: str) -> None:
    told = loaded(logs)
    assert logs.take_back(topic, 0, TOPIC_ID)
    await told.wait()


@pytest.mark.parametrize("topic", ["t", LONG])
@pytest.mark.parametrize("is_restarted", [False, True])
@in_simulated_time
async def test_a_log_that_was_set_aside_is_taken_back_with_all_records(
    tmp_path: Path, topic: str, is_restarted: bool
) -> None:
    logs = manager([tmp_path])
    async with running(logs):
        with_records(logs, 5, topic)
        aside = logs.set_aside(topic, 0)
        assert aside is not None
        assert aside.is_dir()
        if not is_restarted:
            await taken_back(logs, topic)
    logs = manager([tmp_path])
    async with running(logs):
        if is_restarted:
            assert end_offset(logs, topic) is None
            await taken_back(logs, topic)
        assert end_offset(logs, topic) == 5
        assert not logs.take_back(topic, 0, TOPIC_ID)
        assert logs.create(topic, 0, TOPIC_ID) is logs.get(topic, 0)
    assert strays(tmp_path) == []


@in_simulated_time
async def test_nothing_is_created_in_the_place_of_a_log_that_is_being_loaded(
    tmp_path: Path,
) -> None:
    async with running(manager([tmp_path])) as logs:
        with_records(logs, 5)
        logs.set_aside("t", 0)
        told = loaded(logs)
        assert logs.take_back("t", 0, TOPIC_ID)
        with pytest.raises(Refused) as refused:
            logs.create("t", 0, TOPIC_ID)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert logs.take_back("t", 0, TOPIC_ID), "it is still being loaded"
        await told.wait()
        assert logs.create("t", 0, TOPIC_ID).end_offset == 5


@in_simulated_time
async def test_what_was_set_aside_of_another_topic_or_partition_stays(tmp_path: Path) -> None:
    async with running(manager([tmp_path])) as logs:
        with_records(logs, 5)
        aside = logs.set_aside("t", 0)
        assert aside is not None
        assert not logs.take_back("t", 0, OTHER_ID)
        assert not logs.take_back("t", 1, TOPIC_ID)
        assert not logs.take_back("other", 0, TOPIC_ID)
        assert aside.is_dir()


@in_simulated_time
async def test_a_log_in_use_is_not_replaced_by_what_was_set_aside(tmp_path: Path) -> None:
    async with running(manager([tmp_path])) as logs:
        with_records(logs, 5)
        aside = logs.set_aside("t", 0)
        assert aside is not None
        with_records(logs, 2)
        assert not logs.take_back("t", 0, TOPIC_ID)
        assert end_offset(logs) == 2
        assert aside.is_dir()


@in_simulated_time
async def test_the_newest_of_several_is_taken_back(tmp_path: Path) -> None:
    async with running(manager([tmp_path])) as logs:
        for count, epoch in ((5, 1), (2, 7), (9, 4)):
            with_records(logs, count, epoch=epoch)
            log = logs.get("t", 0)
            assert log is not None
            await log.flush()
            logs.set_aside("t", 0)
        told = loaded(logs)
        assert logs.take_back("t", 0, TOPIC_ID)
        await told.wait()
        assert end_offset(logs) == 2
    assert len(strays(tmp_path)) == 2


@in_simulated_time
async def test_what_an_operator_deleted_is_not_taken_back(tmp_path: Path) -> None:
    async with running(manager([tmp_path])) as logs:
        with_records(logs, 5)
        aside = logs.set_aside("t", 0)
        assert aside is not None
        aside.rename(tmp_path / "elsewhere")
        assert not logs.take_back("t", 0, TOPIC_ID)


@in_simulated_time
async def test_a_log_that_is_deleted_while_it_is_taken_back_is_gone(tmp_path: Path) -> None:
    async with running(manager([tmp_path])) as logs:
        with_records(logs, 5)
        logs.set_aside("t", 0)
        told = loaded(logs)
        assert logs.take_back("t", 0, TOPIC_ID)
        logs.delete("t", 0)
        await told.wait()
        assert logs.get("t", 0) is None
        assert not (tmp_path / "t-0").exists()


@in_simulated_time
async def test_a_stop_before_a_log_is_loaded_again_is_no_clean_one(tmp_path: Path) -> None:
    logs = manager([tmp_path])
    await logs.load()
    with_records(logs, 5)
    logs.set_aside("t", 0)
    assert logs.take_back("t", 0, TOPIC_ID)
    await logs.close()
    assert not (tmp_path / MARKER).exists()
    async with running(manager([tmp_path])) as logs:
        assert end_offset(logs) == 5
