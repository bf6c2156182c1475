"""Compaction of one log: the checks of docs/spec/log.md §5."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.broker.settings.cleaner_settings import CleanerSettings
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.records import batch
from barnabas.protocol.records.compaction.offset_map import ENTRY_BYTES
from barnabas.protocol.records.control import Marker
from barnabas.protocol.records.header import DELETE_HORIZON
from barnabas.protocol.records.message_set import encode_messages
from barnabas.protocol.records.record import Record
from tests.storage.compaction.compaction_harness import DAY_MS, CompactionHarness
from tests.storage.log_harness import T0, offsets_of, read_all
from tests.storage.simulated import in_simulated_time


def headers(harness: CompactionHarness) -> list[batch.Header]:
    data = read_all(harness.log)
    return [batch.header(data, at) for at, _ in batch.iterate(data)]


@in_simulated_time
async def test_only_the_newest_record_of_a_key_stays_at_its_old_offset(tmp_path: Path) -> None:
    harness = await CompactionHarness(tmp_path).open()
    for key in (b"a", b"b", b"a", b"c"):
        harness.put((key, b"v"))
    harness.roll()
    assert await harness.clean()
    assert harness.offsets() == [1, 2, 3]
    assert harness.log.start_offset == 0
    data = harness.log.read(0, bytes_max=1, end=harness.log.end_offset, at_least_one=True)
    assert offsets_of(data) == [1]
    await harness.close()


@in_simulated_time
async def test_records_of_one_batch_go_without_moving_the_others(tmp_path: Path) -> None:
    harness = await CompactionHarness(tmp_path).open()
    harness.put((b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c", b"4"), codec=4)
    before = headers(harness)[0]
    harness.roll()
    assert await harness.clean()
    (after,) = headers(harness)
    assert harness.held() == [(1, b"b", b"2"), (2, b"a", b"3"), (3, b"c", b"4")]
    assert after.record_count == 3
    for field in ("base_offset", "last_offset_delta", "base_sequence", "leader_epoch"):
        assert getattr(after, field) == getattr(before, field)
    assert after.attributes == before.attributes
    await harness.close()


@in_simulated_time
async def test_a_batch_that_loses_nothing_is_copied_byte_for_byte(tmp_path: Path) -> None:
    harness = await CompactionHarness(tmp_path).open()
    harness.put((b"a", b"1"), (b"b", b"2"), codec=1)
    before = read_all(harness.log)
    harness.roll()
    assert await harness.clean()
    assert read_all(harness.log) == before
    await harness.close()


@in_simulated_time
async def test_a_tombstone_stays_until_its_horizon_and_goes_at_the_first_pass_after(
    tmp_path: Path,
) -> None:
    harness = await CompactionHarness(tmp_path, delete_retention_ms=DAY_MS).open()
    harness.put((b"a", b"1"))
    harness.put((b"a", None), (b"b", b"2"), time=T0 - 5)
    harness.roll()
    assert await harness.clean()
    (head,) = headers(harness)
    assert head.attributes & DELETE_HORIZON
    assert head.base_timestamp == T0 + DAY_MS
    data = read_all(harness.log)
    assert [record.timestamp for record in batch.records(data)] == [T0 - 5, T0 - 5]

    for passed, kept in ((DAY_MS - 1, [1, 2]), (DAY_MS, [2])):
        harness.now_ms = T0 + passed
        harness.put((b"z%d" % passed, b"x"))
        harness.roll()
        assert await harness.clean()
        assert [offset for offset in harness.offsets() if offset < 3] == kept
    (first, *_) = headers(harness)
    assert first.base_timestamp == T0 + DAY_MS, "a batch is stamped once"
    await harness.close()


@in_simulated_time
async def test_tombstones_that_are_kept_for_ever_do_not_keep_a_log_from_being_compacted(
    tmp_path: Path,
) -> None:
    """Their horizon did not fit into a timestamp, and the log was never compacted again."""
    harness = await CompactionHarness(tmp_path, delete_retention_ms=2**63 - 1).open()
    harness.put((b"a", b"1"))
    harness.put((b"a", None), (b"b", b"2"))
    harness.roll()
    for _ in range(2):
        assert await harness.clean()
        assert [offset for offset in harness.offsets() if offset < 3] == [1, 2]
        harness.now_ms += 1000 * DAY_MS
        harness.put((b"z", b"x"))
        harness.roll()
    await harness.close()


@pytest.mark.parametrize(("dirty", "is_cleaned"), [(50, False), (51, True)])
def test_a_log_is_cleaned_only_above_the_dirty_ratio(
    tmp_path: Path, dirty: int, is_cleaned: bool
) -> None:
    check_ratio(tmp_path, dirty, is_cleaned)


@in_simulated_time
async def check_ratio(path: Path, dirty: int, is_cleaned: bool) -> None:
    harness = await CompactionHarness(path).open()
    for index in range(50):
        harness.put((b"%08d" % index, b"v"))
    harness.roll()
    assert await harness.clean()
    for index in range(dirty):
        harness.put((b"%08d" % (index + 1000), b"v"))
    harness.roll()
    harness.log.config = harness.log.config.with_overrides({"min.cleanable.dirty.ratio": "0.5"})
    assert await harness.clean() is is_cleaned
    await harness.close()


@in_simulated_time
async def test_a_map_too_small_for_all_keys_still_ends_with_all_of_them_compacted(
    tmp_path: Path,
) -> None:
    two_keys = CleanerSettings(map_bytes=2 * ENTRY_BYTES, map_load_factor=1)
    harness = await CompactionHarness(tmp_path, settings=two_keys).open()
    for turn in range(2):
        for key in (b"a", b"b", b"c", b"d", b"e"):
            harness.put((key, b"%d" % turn))
    harness.roll()
    expected, checkpoints = harness.view(), [0]
    while await harness.clean():
        assert harness.view() == expected
        checkpoints.append(harness.first_dirty)
    assert checkpoints == sorted(set(checkpoints))
    assert checkpoints[-1] == 10
    assert harness.offsets() == [5, 6, 7, 8, 9]
    await harness.close()


@in_simulated_time
async def test_a_batch_with_more_keys_than_the_map_holds_is_compacted_all_the_same(
    tmp_path: Path,
) -> None:
    harness = await CompactionHarness(tmp_path, settings=CleanerSettings(map_bytes=1)).open()
    harness.put(*[(b"%d" % index, b"v") for index in range(5)])
    harness.put((b"0", b"w"))
    harness.roll()
    assert await harness.clean()
    assert harness.first_dirty == 5
    assert await harness.clean()
    assert harness.first_dirty == 6
    assert harness.offsets() == [1, 2, 3, 4, 5]
    await harness.close()


@in_simulated_time
async def test_nothing_at_or_above_the_last_stable_offset_is_cleaned(tmp_path: Path) -> None:
    harness = await CompactionHarness(tmp_path).open()
    for index in range(20):
        if index in (5, 10, 15):
            harness.roll()
        harness.put((b"k", b"%d" % index))
    harness.roll()
    harness.committed = 12
    assert await harness.clean()
    assert harness.offsets() == [9, *range(10, 20)]
    assert not await harness.clean()
    await harness.close()


@in_simulated_time
async def test_the_last_batch_of_a_producer_stays_without_records_until_it_is_forgotten(
    tmp_path: Path,
) -> None:
    harness = await CompactionHarness(tmp_path).open()
    for sequence in range(3):
        numbered = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
        harness.put((b"k", b"%d" % sequence), **numbered)
    harness.put((b"k", b"newest"))
    harness.roll()
    assert await harness.clean()
    empty, newest = headers(harness)
    assert (empty.base_offset, empty.record_count, empty.base_timestamp) == (2, 0, -1)
    assert (empty.producer_id, empty.base_sequence, empty.max_timestamp) == (7, 2, T0)
    assert newest.base_offset == 3

    await harness.restart()
    with pytest.raises(Refused) as gap:
        harness.put((b"k", b"x"), producer_id=7, producer_epoch=0, base_sequence=4)
    assert gap.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    harness.put((b"other", b"x"), producer_id=7, producer_epoch=0, base_sequence=3)

    harness.now_ms += 2 * DAY_MS
    harness.log.producers.expire(harness.now_ms, 0)
    harness.log.producers.expire(harness.now_ms + DAY_MS, 0)
    harness.roll()
    assert await harness.clean()
    assert [head.base_offset for head in headers(harness)] == [3, 4]
    await harness.close()


@in_simulated_time
async def test_records_without_a_key_are_dropped_from_a_log_that_became_compacted(
    tmp_path: Path,
) -> None:
    harness = await CompactionHarness(tmp_path).open()
    harness.put((b"a", b"1"), (None, b"legacy"), (b"b", b"2"))
    harness.put((None, b"legacy"))
    harness.roll()
    assert await harness.clean()
    assert harness.offsets() == [0, 2]
    await harness.close()


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_messages_of_older_formats_are_compacted_without_a_conversion(
    tmp_path: Path, magic: int, codec: int
) -> None:
    check_messages(tmp_path, magic, codec)


@in_simulated_time
async def check_messages(path: Path, magic: int, codec: int) -> None:
    harness = await CompactionHarness(path, delete_retention_ms=DAY_MS).open()
    found = [
        Record(offset, T0 + offset if magic else -1, key, value)
        for offset, key, value in (
            (0, b"a", b"1"),
            (1, b"b", None),
            (2, b"a", b"2"),
            (3, b"c", b""),
        )
    ]
    harness.log.append_as_follower(encode_messages(found, magic, codec=codec))
    harness.log.append_as_follower(
        encode_messages([found[0]._replace(offset=4, key=b"c")], magic, codec=codec)
    )
    harness.roll()
    assert await harness.clean()
    data = read_all(harness.log)
    kept = [record for at, _ in batch.iterate(data) for record in batch.records(data, at)]
    assert kept == [found[1], found[2], found[0]._replace(offset=4, key=b"c")]
    assert {batch.magic(data, at) for at, _ in batch.iterate(data)} == {magic}
    await harness.close()


# Transactions


def transactional(sequence: int, producer_id: int = 7) -> dict[str, object]:
    return {
        "producer_id": producer_id,
        "producer_epoch": 0,
        "base_sequence": sequence,
        "is_transactional": True,
    }


@in_simulated_time
async def test_aborted_records_go_and_hide_no_older_value(tmp_path: Path) -> None:
    harness = await CompactionHarness(tmp_path).open()
    harness.put((b"k", b"good"))
    harness.put((b"k", b"aborted"), **transactional(0))
    harness.put((b"l", b"good"))
    harness.end_transaction(7, Marker.ABORT)
    harness.put((b"m", b"good"))
    harness.roll()
    assert await harness.clean()
    assert harness.view() == {b"k": b"good", b"l": b"good", b"m": b"good"}
    # The aborted batch was its producer's last: its header stays.
    assert [head.base_offset for head in headers(harness)] == [0, 1, 2, 3, 4]
    await harness.close()


@in_simulated_time
async def test_a_key_stays_deleted_whose_producer_had_aborted_a_transaction_before(
    tmp_path: Path,
) -> None:
    """The abort lies in the clean part: it says nothing of what is committed later.

    Found by the model: the tombstone hid no older value in the pass that learnt of it, and went
    with the next one.
    """
    harness = await CompactionHarness(tmp_path, delete_retention_ms=0).open()
    harness.put((b"a", b"old"))
    harness.put((b"b", b"1"), **transactional(0))
    harness.end_transaction(7, Marker.ABORT)
    harness.put((b"b", b"2"))  # something of the run is wanted, and so its abort
    harness.roll()
    assert await harness.clean()
    harness.put((b"a", None), **transactional(1))
    harness.end_transaction(7, Marker.COMMIT)
    for _ in range(3):
        harness.put((b"b", b"3"))
        harness.roll()
        harness.now_ms += 1
        assert await harness.clean()
        assert harness.view() == {b"b": b"3"}
    assert [key for _, key, _ in harness.held()] == [b"b"]
    await harness.close()


@in_simulated_time
async def test_an_abort_that_is_still_needed_stays_in_the_transaction_index(
    tmp_path: Path,
) -> None:
    harness = await CompactionHarness(tmp_path).open()
    harness.put((b"k", b"aborted"), **transactional(0))
    harness.end_transaction(7, Marker.ABORT)
    harness.put((b"m", b"good"))
    harness.roll()
    assert await harness.clean()
    indexes = [list(segment.indexes.transactions) for segment in harness.log.segments.view.segments]
    assert [(one.producer_id, one.first_offset, one.last_offset) for one in indexes[0]] == [
        (7, 0, 1)
    ]
    await harness.restart()
    indexes = [list(segment.indexes.transactions) for segment in harness.log.segments.view.segments]
    assert len(indexes[0]) == 1
    await harness.close()


@in_simulated_time
async def test_a_marker_goes_in_two_steps_once_nothing_of_its_transaction_is_left(
    tmp_path: Path,
) -> None:
    harness = await CompactionHarness(tmp_path, delete_retention_ms=DAY_MS).open()
    harness.put((b"k", b"1"), **transactional(0))
    harness.end_transaction(7, Marker.COMMIT)
    harness.put((b"k", b"2"), **transactional(1))
    harness.end_transaction(7, Marker.COMMIT)
    harness.put((b"k", b"3"))

    def bases() -> list[tuple[int, bool]]:
        return [
            (header.base_offset, bool(header.attributes & DELETE_HORIZON))
            for header in headers(harness)
        ]

    harness.roll()
    assert await harness.clean()
    assert bases() == [(1, False), (2, False), (3, False), (4, False)], "data was there"
    for passed, expected in (
        (0, [(1, True), (2, False), (3, False), (4, False)]),
        (DAY_MS, [(2, False), (3, False), (4, False)]),
    ):
        harness.now_ms = T0 + passed
        harness.put((b"z", b"x"))
        harness.roll()
        assert await harness.clean()
        assert [base for base in bases() if base[0] < 5] == expected
    await harness.close()


@in_simulated_time
async def test_markers_are_not_taken_for_records_of_one_key(tmp_path: Path) -> None:
    harness = await CompactionHarness(tmp_path).open()
    for number in range(3):
        harness.put((b"k%d" % number, b"1"), **transactional(number))
        harness.end_transaction(7, Marker.COMMIT)
    harness.roll()
    assert await harness.clean()
    assert [head.base_offset for head in headers(harness)] == [0, 1, 2, 3, 4, 5]
    await harness.close()
