"""Appending: offsets, epochs, rolling by every rule of docs/spec/log.md §2.8."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.broker.storage.segment.segment_indexes import OFFSETS_MAX
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.records.batch import assign, crc_is_valid, header
from tests.storage.log_harness import T0, LogHarness, batch, config, offsets_of, read_all, spans_of


@pytest.fixture
def harness(tmp_path: Path) -> LogHarness:
    return LogHarness(tmp_path / "t-0")


def bases(harness: LogHarness) -> list[int]:
    return list(harness.log.segments.view.bases)


def test_append_gives_offsets_and_the_leaders_epoch_and_keeps_the_checksum(
    harness: LogHarness,
) -> None:
    harness.append(count=3, epoch=7)
    appended = harness.append(count=2, epoch=7)
    assert (appended.base_offset, appended.last_offset, harness.log.end_offset) == (3, 4, 5)
    data = harness.log.read(3, bytes_max=1000, end=5, at_least_one=True)
    assert header(data).leader_epoch == 7
    assert crc_is_valid(data, 0, len(data))


def test_append_takes_the_broker_time_from_a_batch_that_has_it(harness: LogHarness) -> None:
    assert harness.append().timestamp == -1
    stamped = batch(time=T0 + 5)
    stamped[22] |= 0x08
    assert harness.append(stamped).timestamp == T0 + 5


def test_append_refuses_a_batch_from_an_older_leader_epoch(harness: LogHarness) -> None:
    harness.append(epoch=3)
    with pytest.raises(Refused) as refused:
        harness.append(epoch=2)
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert harness.log.end_offset == 1


def test_every_epoch_is_remembered_with_its_first_offset(harness: LogHarness) -> None:
    for epoch in (0, 0, 4):
        harness.append(epoch=epoch)
    harness.log.assign_epoch(6, harness.log.end_offset)
    assert harness.log.epochs.pairs == [(0, 0), (4, 2), (6, 3)]
    assert harness.log.epoch_end_offset(5) == (4, 3)


def test_append_rolls_exactly_when_the_batch_would_exceed_segment_bytes(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0", segment_bytes=300)
    for size in (100, 100, 100, 100):
        harness.append(batch(size=size))
    assert bases(harness) == [0, 3]
    harness.append(batch(size=201))
    assert bases(harness) == [0, 3, 4]


def test_a_batch_larger_than_a_segment_does_not_roll_an_empty_one(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0", segment_bytes=100)
    harness.append(batch(size=500))
    harness.append(batch(size=500))
    assert bases(harness) == [0, 1]


def test_append_rolls_by_record_time_even_within_one_moment(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0", segment_ms=1000)
    for time in (T0, T0 + 1000, T0 + 1001):
        harness.append(batch(time=time))
    assert bases(harness) == [0, 2]


def test_append_rolls_by_the_clock_when_records_have_no_time(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0", segment_ms=1000)
    harness.append(batch(time=-1))
    harness.clock.ms += 1000
    harness.append(batch(time=-1))
    harness.clock.ms += 1
    harness.append(batch(time=-1))
    assert bases(harness) == [0, 2]


def test_a_compacted_log_rolls_no_later_than_its_compaction_lag(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0", cleanup_policy="compact", max_compaction_lag_ms=50)
    harness.append(batch(time=T0))
    harness.append(batch(time=T0 + 51))
    assert bases(harness) == [0, 1]


def test_jitter_only_makes_a_roll_earlier(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0", segment_ms=1000, segment_jitter_ms=900)
    harness.append(batch(time=T0))
    harness.append(batch(time=T0 + 100))
    assert bases(harness) == [0]
    harness.append(batch(time=T0 + 1001))
    assert bases(harness) == [0, 2]


def test_append_rolls_when_an_index_is_full(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0", index_interval_bytes=0, segment_index_bytes=24)
    for number in range(4):
        harness.append(batch(time=T0 + number))
    # One of the two time index entries is kept free for the last one: the second batch fills it.
    assert bases(harness) == [0, 2]


def test_a_batch_whose_offsets_do_not_fit_lands_in_a_new_segment(harness: LogHarness) -> None:
    harness.append()
    far = batch(count=1)
    assign(far, OFFSETS_MAX, 0)
    harness.log.append_as_follower(bytes(far))
    assert bases(harness) == [0]
    further = batch(count=1)
    assign(further, OFFSETS_MAX + 1, 0)
    harness.log.append_as_follower(bytes(further))
    assert bases(harness) == [0, OFFSETS_MAX + 1]
    assert offsets_of(read_all(harness.log)) == [0, OFFSETS_MAX, OFFSETS_MAX + 1]


def test_a_roll_takes_a_snapshot_and_asks_for_a_flush(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0", segment_bytes=100)
    harness.append(batch(size=100))
    assert harness.keeper.flushes == []
    harness.append(batch(size=100))
    assert harness.segment_file(1, ".snapshot").exists()
    assert harness.keeper.flushes == [harness.log]


def test_new_settings_apply_to_the_next_append(harness: LogHarness) -> None:
    harness.append(batch(size=100))
    harness.log.config = config({"segment.bytes": 150})
    harness.append(batch(size=100))
    assert bases(harness) == [0, 1]


def test_leftover_files_of_a_new_segment_are_removed(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0", segment_bytes=100)
    harness.segment_file(1).write_bytes(b"old")
    harness.segment_file(1, ".index").write_bytes(b"old")
    harness.append(batch(size=100))
    harness.append(batch(size=100))
    assert spans_of(read_all(harness.log)) == [(0, 0), (1, 1)]
    assert not harness.segment_file(1, ".index").exists()
