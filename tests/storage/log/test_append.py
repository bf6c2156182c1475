"""Appending: offsets, epochs, rolling by every rule of docs/spec/log.md §2.8."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.broker.storage.segment.segment_indexes import OFFSETS_MAX
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.records.batch import assign, crc_is_valid, header
from tests.storage.rig import T0, Rig, batch, config, offsets_of, read_all, spans_of


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path / "t-0")


def bases(rig: Rig) -> list[int]:
    return list(rig.log.segments.view.bases)


def test_append_gives_offsets_and_the_leaders_epoch_and_keeps_the_checksum(rig: Rig) -> None:
    rig.append(count=3, epoch=7)
    appended = rig.append(count=2, epoch=7)
    assert (appended.base_offset, appended.last_offset, rig.log.end_offset) == (3, 4, 5)
    data = rig.log.read(3, bytes_max=1000, end=5, at_least_one=True)
    assert header(data).leader_epoch == 7
    assert crc_is_valid(data, 0, len(data))


def test_append_takes_the_broker_time_from_a_batch_that_has_it(rig: Rig) -> None:
    assert rig.append().timestamp == -1
    stamped = batch(time=T0 + 5)
    stamped[22] |= 0x08
    assert rig.append(stamped).timestamp == T0 + 5


def test_append_refuses_a_batch_from_an_older_leader_epoch(rig: Rig) -> None:
    rig.append(epoch=3)
    with pytest.raises(Refused) as refused:
        rig.append(epoch=2)
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert rig.log.end_offset == 1


def test_every_epoch_is_remembered_with_its_first_offset(rig: Rig) -> None:
    for epoch in (0, 0, 4):
        rig.append(epoch=epoch)
    rig.log.assign_epoch(6, rig.log.end_offset)
    assert rig.log.epochs.pairs == [(0, 0), (4, 2), (6, 3)]
    assert rig.log.epoch_end_offset(5) == (4, 3)


def test_append_rolls_exactly_when_the_batch_would_exceed_segment_bytes(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "t-0", segment_bytes=300)
    for size in (100, 100, 100, 100):
        rig.append(batch(size=size))
    assert bases(rig) == [0, 3]
    rig.append(batch(size=201))
    assert bases(rig) == [0, 3, 4]


def test_a_batch_larger_than_a_segment_does_not_roll_an_empty_one(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "t-0", segment_bytes=100)
    rig.append(batch(size=500))
    rig.append(batch(size=500))
    assert bases(rig) == [0, 1]


def test_append_rolls_by_record_time_even_within_one_moment(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "t-0", segment_ms=1000)
    for time in (T0, T0 + 1000, T0 + 1001):
        rig.append(batch(time=time))
    assert bases(rig) == [0, 2]


def test_append_rolls_by_the_clock_when_records_have_no_time(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "t-0", segment_ms=1000)
    rig.append(batch(time=-1))
    rig.clock.ms += 1000
    rig.append(batch(time=-1))
    rig.clock.ms += 1
    rig.append(batch(time=-1))
    assert bases(rig) == [0, 2]


def test_a_compacted_log_rolls_no_later_than_its_compaction_lag(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "t-0", cleanup_policy="compact", max_compaction_lag_ms=50)
    rig.append(batch(time=T0))
    rig.append(batch(time=T0 + 51))
    assert bases(rig) == [0, 1]


def test_jitter_only_makes_a_roll_earlier(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "t-0", segment_ms=1000, segment_jitter_ms=900)
    rig.append(batch(time=T0))
    rig.append(batch(time=T0 + 100))
    assert bases(rig) == [0]
    rig.append(batch(time=T0 + 1001))
    assert bases(rig) == [0, 2]


def test_append_rolls_when_an_index_is_full(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "t-0", index_interval_bytes=0, segment_index_bytes=24)
    for number in range(4):
        rig.append(batch(time=T0 + number))
    # One of the two time index entries is kept free for the last one: the second batch fills it.
    assert bases(rig) == [0, 2]


def test_a_batch_whose_offsets_do_not_fit_lands_in_a_new_segment(rig: Rig) -> None:
    rig.append()
    far = batch(count=1)
    assign(far, OFFSETS_MAX, 0)
    rig.log.append_as_follower(bytes(far))
    assert bases(rig) == [0]
    further = batch(count=1)
    assign(further, OFFSETS_MAX + 1, 0)
    rig.log.append_as_follower(bytes(further))
    assert bases(rig) == [0, OFFSETS_MAX + 1]
    assert offsets_of(read_all(rig.log)) == [0, OFFSETS_MAX, OFFSETS_MAX + 1]


def test_a_roll_takes_a_snapshot_and_asks_for_a_flush(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "t-0", segment_bytes=100)
    rig.append(batch(size=100))
    assert rig.keeper.flushes == []
    rig.append(batch(size=100))
    assert rig.segment_file(1, ".snapshot").exists()
    assert rig.keeper.flushes == [rig.log]


def test_new_settings_apply_to_the_next_append(rig: Rig) -> None:
    rig.append(batch(size=100))
    rig.log.config = config({"segment.bytes": 150})
    rig.append(batch(size=100))
    assert bases(rig) == [0, 1]


def test_leftover_files_of_a_new_segment_are_removed(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "t-0", segment_bytes=100)
    rig.segment_file(1).write_bytes(b"old")
    rig.segment_file(1, ".index").write_bytes(b"old")
    rig.append(batch(size=100))
    rig.append(batch(size=100))
    assert spans_of(read_all(rig.log)) == [(0, 0), (1, 1)]
    assert not rig.segment_file(1, ".index").exists()
