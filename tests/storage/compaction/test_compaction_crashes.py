"""A compaction interrupted before every single change of the disk: docs/spec/log.md §3.5 and §5.

The process is killed, or the power cut; what is found afterwards has the same newest value of
every key, and compacts and restarts like any other log.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.storage.compaction.compaction_harness import CompactionHarness
from tests.storage.log_harness import T0
from tests.storage.simulated import in_simulated_time
from tests.storage.stopping_files import Died, StoppingFiles, copied, cut

DIRECTORY = Path("/data")
OVERRIDES: dict[str, Any] = {"index_interval_bytes": 100, "delete_retention_ms": 0}


async def filled(disk: StoppingFiles, segment_bytes: int) -> CompactionHarness:
    """A log that was compacted before and has new records, tombstones and rolled segments."""
    harness = await CompactionHarness(DIRECTORY, disk, segment_bytes=500, **OVERRIDES).open()
    for turn in range(2):
        for number in range(10):
            value = None if (turn, number % 5) == (1, 3) else b"%d" % turn + b"." * 30
            harness.put((b"k%d" % (number % 7), value))
        if not turn:
            harness.roll()
            assert await harness.clean()
            harness.now_ms += 10
    harness.roll()
    await harness.log.flush()
    await harness.logs.write_recovery_points()
    harness.log.config = harness.log.config.with_overrides({"segment.bytes": str(segment_bytes)})
    return harness


async def interrupted(
    stop_before: int, segment_bytes: int, after: Callable[[StoppingFiles], StoppingFiles]
) -> bool:
    """Compact, die before one change, start again; False when it was over before that."""
    disk = StoppingFiles(lambda: T0)
    harness = await filled(disk, segment_bytes)
    expected, end = harness.view(), harness.log.end_offset
    disk.arm(stop_before)
    is_over = True
    try:
        assert await harness.clean()
    except Died:
        is_over = False
    disk.arm(None)
    disk.is_dead = True
    again = await CompactionHarness(DIRECTORY, after(disk), segment_bytes=500, **OVERRIDES).open()
    assert again.view() == expected
    assert again.log.end_offset == end
    offsets = again.offsets()
    assert offsets == sorted(set(offsets))
    assert not again.files_named(".cleaned")
    assert not again.files_named(".swap")
    while await again.clean():
        pass
    assert not again.cleaner.uncleanable
    assert again.view() == expected
    await again.restart()
    assert again.view() == expected
    await again.close()
    return not is_over


SEGMENT_BYTES = pytest.mark.parametrize(
    "segment_bytes", [500, 200], ids=["segments are joined", "a segment becomes many"]
)


@SEGMENT_BYTES
def test_a_process_killed_at_any_step_of_a_compaction_loses_no_value(segment_bytes: int) -> None:
    check_every_step(segment_bytes, copied)


@SEGMENT_BYTES
def test_power_cut_at_any_step_of_a_compaction_loses_no_value(segment_bytes: int) -> None:
    rng = Random(segment_bytes)
    check_every_step(segment_bytes, lambda disk: cut(disk, rng.randrange(2**32)))


@in_simulated_time
async def check_every_step(
    segment_bytes: int, after: Callable[[StoppingFiles], StoppingFiles]
) -> None:
    step = 0
    while await interrupted(step, segment_bytes, after):
        step += 1
    assert step > 30
