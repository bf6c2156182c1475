"""Whatever is in the files beside the batches, a log opens with the right answers.

Source: docs/spec/log.md §3.3 (steps 3, 5 and 8) and §3.4; §9 pitfalls P1, P2, P12, P14 and P15;
docs/spec/reliability.md §2 failure 16.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from barnabas.broker.storage.log.log import Log
from barnabas.broker.storage.log_manager import LogManager
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.records.batch import build_batch, records
from tests.storage.log_harness import T0, manager, offsets_of, read_all
from tests.storage.simulated import in_simulated_time

OVERRIDES: dict[str, Any] = {"segment_bytes": 1200, "index_interval_bytes": 200}
COUNT = 40
"""Records, in batches of two; epoch 1 begins at 0, epoch 4 at 20."""

Garbage = Callable[[bytes, bytes], bytes | None]
GARBAGE: dict[str, Garbage] = {
    "missing": lambda good, old: None,
    "empty": lambda good, old: b"",
    "zeros": lambda good, old: bytes(max(len(good), 24)),
    "random": lambda good, old: Random(1).randbytes(max(len(good), 40)),
    "cut": lambda good, old: good[: len(good) // 2],
    "one byte more": lambda good, old: good + b"\0",
    "zeros behind": lambda good, old: good + bytes(96),
    "twice": lambda good, old: good * 2,
    "old": lambda good, old: old,
}
SEGMENT_FILES = [
    f"{place}{suffix}"
    for place in ("first", "middle", "last")
    for suffix in (".index", ".timeindex", ".snapshot", ".txnindex")
]
LOG_FILES = ["leader-epoch-checkpoint", "partition.metadata", "quarantine"]
NODE_FILES = [
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
]


def write(log: Log, first: int, count: int) -> None:
    for offset in range(first, first + count, 2):
        batch = build_batch(
            [(b"key", b"%d" % wanted + bytes(100)) for wanted in (offset, offset + 1)],
            timestamp_ms=T0 + offset,
            producer_id=7,
            producer_epoch=0,
            base_sequence=offset,
        )
        log.append(batch, leader_epoch=1 if offset < 20 else 4, is_client=True)


async def written(home: Path, *, is_clean: bool) -> tuple[Path, Path]:
    """A node's directory after a clean stop or a kill, and what it was half-way through."""
    directory, old = home / "data", home / "old"
    logs = manager([directory], **OVERRIDES)
    await logs.load()
    log = logs.create("t", 0, bytes(range(16)))
    logs.record_high_watermarks(lambda: [("t", 0, 30)])
    write(log, 0, 22)
    await log.flush()
    await logs.write_recovery_points()
    shutil.copytree(directory, old)
    write(log, 22, COUNT - 22)
    if is_clean:
        await logs.close()
    else:
        await log.flush()
        await logs.write_recovery_points()
        for partition_log in logs.logs():
            partition_log.retire()
        logs.directories[0].close()
    return directory, old


def chosen(directory: Path, name: str) -> Path:
    """The file that a name of this test means."""
    if name in NODE_FILES:
        return directory / name
    place, dot, suffix = name.partition(".")
    if name in LOG_FILES or not dot:
        return directory / "t-0" / name
    logs = sorted((directory / "t-0").glob("*.log"))
    index = {"first": 0, "middle": len(logs) // 2, "last": -1}[place]
    return logs[index].with_suffix(dot + suffix)


def spoil(directory: Path, old: Path, name: str, garbage: Garbage) -> None:
    path = chosen(directory, name)
    good = path.read_bytes() if path.exists() else b""
    before = old / path.relative_to(directory)
    spoilt = garbage(good, before.read_bytes() if before.exists() else b"")
    if spoilt is None:
        path.unlink(missing_ok=True)
    else:
        path.write_bytes(spoilt)


def check(logs: LogManager) -> None:
    """Every answer of the log is the right one."""
    log = logs.get("t", 0)
    assert log is not None
    assert (log.start_offset, log.end_offset) == (0, COUNT)
    assert offsets_of(read_all(log)) == list(range(COUNT))
    for offset in range(COUNT):
        data = log.read(offset, bytes_max=1, end=COUNT, at_least_one=True)
        assert offset in offsets_of(data)
        found = log.offset_for_time(T0 + offset - offset % 2, COUNT)
        assert found is not None
        assert found.offset == offset - offset % 2
    newest = log.max_timestamp_offset(COUNT)
    assert newest is not None
    assert newest.offset == COUNT - 2
    assert log.epochs.pairs == [(1, 0), (4, 20)]
    assert log.epoch_end_offset(1) == (1, 20)
    assert 0 <= logs.high_watermark("t", 0) <= COUNT
    gap = build_batch(
        [(None, b"x")], timestamp_ms=T0, producer_id=7, producer_epoch=0, base_sequence=COUNT + 1
    )
    with pytest.raises(Refused) as refused:
        log.append(gap, leader_epoch=4, is_client=True)
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    write(log, COUNT, 2)
    last = log.read(COUNT, bytes_max=1, end=COUNT + 2, at_least_one=True)
    assert [record.offset for record in records(last)] == [COUNT, COUNT + 1]


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
@pytest.mark.parametrize("name", [*SEGMENT_FILES, *LOG_FILES, *NODE_FILES])
def test_a_log_opens_with_the_right_answers_beside_any_garbage(
    tmp_path: Path, name: str, garbage: Garbage, *, is_clean: bool
) -> None:
    opened_beside(tmp_path, [name], garbage, is_clean=is_clean)


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_a_log_opens_when_only_its_batches_are_left_of_it(
    tmp_path: Path, garbage: Garbage, *, is_clean: bool
) -> None:
    names = [*SEGMENT_FILES, *LOG_FILES, *NODE_FILES]
    opened_beside(tmp_path, names, garbage, is_clean=is_clean)


@in_simulated_time
async def opened_beside(home: Path, names: list[str], garbage: Garbage, *, is_clean: bool) -> None:
    directory, old = await written(home, is_clean=is_clean)
    for name in names:
        spoil(directory, old, name, garbage)
    logs = manager([directory], **OVERRIDES)
    await logs.load()
    assert logs.directories[0].was_clean is is_clean
    check(logs)
    await logs.close()
