"""What a follower does to its log: verbatim appends and truncation.

Source: docs/spec/log.md §2.9 and §3.6.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.records.batch import assign
from tests.storage.log_harness import LogHarness, batch, offsets_of, read_all, spans_of


def fetched(*bases: int, count: int = 2, epoch: int = 0) -> bytes:
    data = b""
    for base in bases:
        one = batch(count, size=100 if count == 2 else 0)
        assign(one, base, epoch)
        data += one
    return data


@pytest.fixture
def harness(tmp_path: Path) -> LogHarness:
    """Ten batches of two records in five segments; from offset 10 on of epoch 1."""
    harness = LogHarness(tmp_path / "t-0", segment_bytes=200, index_interval_bytes=50)
    harness.log.append_as_follower(fetched(0, 2, 4, 6, 8))
    harness.log.append_as_follower(fetched(10, 12, 14, 16, 18, epoch=1))
    return harness


def test_a_follower_keeps_the_leaders_bytes(harness: LogHarness) -> None:
    assert read_all(harness.log) == fetched(0, 2, 4, 6, 8) + fetched(10, 12, 14, 16, 18, epoch=1)
    assert harness.log.epochs.pairs == [(0, 0), (1, 10)]


def test_a_follower_leaves_out_a_batch_that_is_cut(harness: LogHarness) -> None:
    harness.log.append_as_follower(fetched(20, 22)[:-1])
    assert harness.log.end_offset == 22


def test_a_follower_refuses_a_damaged_batch_and_keeps_those_before(harness: LogHarness) -> None:
    data = bytearray(fetched(20, 22))
    data[-1] ^= 1
    with pytest.raises(Refused) as refused:
        harness.log.append_as_follower(bytes(data))
    assert (refused.value.code, harness.log.end_offset) == (ErrorCode.CORRUPT_MESSAGE, 22)


def test_a_follower_refuses_offsets_below_its_end(harness: LogHarness) -> None:
    with pytest.raises(Refused) as refused:
        harness.log.append_as_follower(fetched(18))
    assert (refused.value.code, harness.log.end_offset) == (ErrorCode.INVALID_RECORD, 20)


def test_an_empty_follower_begins_at_the_batch_that_holds_its_start(tmp_path: Path) -> None:
    # KAFKA-6975
    harness = LogHarness(tmp_path / "t-0")
    harness.log.truncate_fully(5)
    harness.log.append_as_follower(fetched(3, count=4))
    assert (harness.log.start_offset, harness.log.end_offset) == (5, 7)
    assert spans_of(read_all(harness.log)) == [(3, 6)]


@pytest.mark.parametrize(
    ("offset", "end"), [(10, 10), (11, 10), (12, 12), (16, 16), (1, 0), (20, 20)]
)
async def test_truncation_drops_the_batch_that_holds_the_offset_and_all_after(
    harness: LogHarness, offset: int, end: int
) -> None:
    harness.log.truncate_to(offset)
    assert harness.log.end_offset == end
    assert offsets_of(read_all(harness.log)) == list(range(end))
    assert offsets_of(read_all(await harness.crash())) == list(range(end))


def test_truncation_forgets_epochs_and_snapshots_above(harness: LogHarness) -> None:
    harness.log.truncate_to(10)
    assert harness.log.epochs.pairs == [(0, 0)]
    assert harness.log.snapshots.offsets == (4, 8)


async def test_truncation_lowers_the_recovery_point(harness: LogHarness) -> None:
    await harness.log.flush()
    assert harness.log.recovery_point == 20
    harness.log.truncate_to(7)
    assert harness.log.recovery_point == harness.log.end_offset == 6


def test_a_truncated_log_takes_other_batches_and_rebuilds_the_same(harness: LogHarness) -> None:
    harness.log.truncate_to(9)
    harness.log.append_as_follower(fetched(8, 10, 12, 14, epoch=2))
    assert offsets_of(read_all(harness.log)) == list(range(16))
    assert harness.log.epochs.pairs == [(0, 0), (2, 8)]
    active = harness.log.segments.active.indexes
    before = active.offsets.to_bytes(), active.times.to_bytes()
    harness.log.segments.active.rebuild_indexes()
    assert (active.offsets.to_bytes(), active.times.to_bytes()[: len(before[1])]) == before


def test_files_are_renamed_before_they_are_unlinked_later(harness: LogHarness) -> None:
    # KAFKA-12964: the same names come back at once
    harness.log.truncate_to(9)
    harness.log.append_as_follower(fetched(8, 10, 12, 14, 16, 18, epoch=2))
    assert all(path.suffix == ".deleted" for path in harness.keeper.discarded)
    for path in harness.keeper.discarded:
        path.unlink()
    assert offsets_of(read_all(harness.log)) == list(range(20))


def test_full_truncation_begins_anew_at_an_offset(harness: LogHarness) -> None:
    harness.log.truncate_fully(8, start_offset=9)
    log = harness.log
    assert (log.start_offset, log.end_offset) == (9, 8)
    assert (log.epochs.pairs, log.segments.view.bases) == ([], (8,))
    harness.log.append_as_follower(fetched(8))
    assert offsets_of(read_all(harness.log)) == [8, 9]


async def test_full_truncation_is_durable_after_the_flush_that_it_asks_for(
    harness: LogHarness,
) -> None:
    point = harness.log.recovery_point
    harness.keeper.flushes.clear()
    harness.log.truncate_fully(50)
    assert harness.log.recovery_point == point
    assert harness.keeper.flushes == [harness.log]
    await harness.log.flush()
    assert harness.log.recovery_point == 50


def test_truncation_below_the_first_segment_begins_anew(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0")
    harness.log.truncate_fully(50)
    harness.log.append_as_follower(fetched(50))
    harness.log.truncate_to(20)
    assert (harness.log.start_offset, harness.log.end_offset) == (20, 20)
