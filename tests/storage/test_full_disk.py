"""A disk that is really full.

Source: docs/spec/log.md §3.1, docs/spec/reliability.md §3 P18 and §2 failure 15.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.broker.storage.housekeeping import FREE_BYTES_MIN
from barnabas.broker.storage.log.log import Log
from barnabas.broker.storage.log_manager import LogManager
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.records.batch import build_batch
from tests.crash.powered_disk import REMEDY_OF_NONE, PoweredDisk, why_not
from tests.harness.needs import REMEDY
from tests.storage.log_harness import T0, manager, offsets_of, read_all, running
from tests.storage.simulated import in_simulated_time

MIB = 1 << 20
needs_mounts = pytest.mark.skipif(
    bool(why_not()),
    reason=f"no disk to fill ({why_not()}){REMEDY}{REMEDY_OF_NONE}",
)


@pytest.fixture(params=["tmpfs", "ext4"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A file system of some MiB."""
    if request.param == "ext4":
        small = PoweredDisk(tmp_path, image_bytes=8 * MIB)
        small.format()
        small.mount()
        yield small.root
        small.close()
        return
    root = tmp_path / "disk"
    root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(root)], check=True)
    yield root
    subprocess.run(["umount", "--lazy", str(root)], check=True)


def batch(offset: int, size: int = 3000) -> bytearray:
    return build_batch(
        [(b"key", b"%d" % offset + os.urandom(size))],
        timestamp_ms=T0 + offset,
        producer_id=7,
        producer_epoch=0,
        base_sequence=offset,
    )


def append(log: Log, size: int = 3000) -> int:
    return log.append(batch(log.end_offset, size), leader_epoch=1, is_client=True).base_offset


def fill_with_records(log: Log, size: int = 70_000) -> int:
    """Append until the disk refuses; returns how many records were acknowledged."""
    code = ErrorCode.NONE
    while code is ErrorCode.NONE:
        try:
            append(log, size)
        except Refused as refusal:
            code = refusal.code
    assert (code, log.is_full, log.is_offline) == (ErrorCode.KAFKA_STORAGE_ERROR, True, False)
    return log.end_offset


def fill_to_the_last_byte(path: Path) -> None:
    """Leave no block free, by a file that is not ours."""
    with path.open("ab", buffering=0) as file:
        for size in (65536, 4096, 512, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                pass


def node(root: Path) -> LogManager:
    return manager([root / "data"], segment_bytes=400_000, index_interval_bytes=2000)


@needs_mounts
def test_a_full_disk_refuses_appends_with_one_code_and_serves_all_that_was_acknowledged(
    disk: Path,
) -> None:
    refuses_and_serves(disk)


@in_simulated_time
async def refuses_and_serves(disk: Path) -> None:
    async with running(node(disk)) as logs:
        log = logs.create("t", 0, None)
        count = fill_with_records(log)
        assert count > 20
        assert offsets_of(read_all(log)) == list(range(count))
        with pytest.raises(Refused) as refused:
            append(log)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


@needs_mounts
@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "stopped"])
def test_a_node_starts_on_the_full_disk_and_serves_everything(
    disk: Path, *, is_killed: bool
) -> None:
    starts_full(disk, is_killed=is_killed)


@in_simulated_time
async def starts_full(disk: Path, *, is_killed: bool) -> None:
    logs = node(disk)
    await logs.load()
    log = logs.create("t", 0, None)
    await log.flush()
    (disk / "foreign").write_bytes(bytes(2 * FREE_BYTES_MIN))
    count = fill_with_records(log)
    fill_to_the_last_byte(disk / "foreign")
    if is_killed:
        for partition_log in logs.logs():
            partition_log.retire()
        logs.directories[0].close()
    else:
        await logs.close()
    async with running(node(disk)) as again:
        assert again.is_complete
        found = again.get("t", 0)
        assert found is not None
        assert offsets_of(read_all(found)) == list(range(count))
        await asyncio.sleep(120)  # background work on a full disk
        assert again.is_complete
        assert offsets_of(read_all(found)) == list(range(count))
        (disk / "foreign").unlink()
        await asyncio.sleep(5)
        assert append(found) == count
        await found.flush()
    async with running(node(disk)) as last:
        found = last.get("t", 0)
        assert found is not None
        assert found.end_offset == count + 1


@needs_mounts
def test_space_that_returns_is_used_within_seconds_whatever_was_being_written(disk: Path) -> None:
    heals(disk)


@in_simulated_time
async def heals(disk: Path) -> None:
    async with running(node(disk)) as logs:
        log = logs.create("t", 0, None)
        logs.record_high_watermarks(lambda: [("t", 0, log.end_offset)])
        for _ in range(6):
            fill_to_the_last_byte(disk / "foreign")
            acknowledged = fill_with_records(log, 3000)
            await asyncio.sleep(70)  # checkpoints and flushes, all refused
            assert not log.is_offline
            (disk / "foreign").unlink()
            await asyncio.sleep(5)
            for _ in range(150):  # over a roll
                append(log)
            await log.flush()
            assert log.recovery_point == log.end_offset == acknowledged + 150
            assert offsets_of(read_all(log)) == list(range(log.start_offset, log.end_offset))
            log.advance_start(log.end_offset - 10)
            await asyncio.sleep(400)  # what lies below goes at the next look
