"""Open, committed and aborted transactions in one log: docs/spec/log.md §7.1 to §7.4."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from barnabas.broker.storage.log.log import Log
from barnabas.broker.storage.producers.producer_snapshots import format_snapshot
from barnabas.broker.storage.segment.transaction_index import AbortedTransaction
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.records.batch import build_batch
from barnabas.protocol.records.control import Marker
from tests.storage.log_harness import T0, LogHarness, read_all, spans_of
from tests.storage.producers.transactional import Writing, aborted, aborted_on_disk, marker_of

Start = Callable[[LogHarness], Awaitable[Log]]
STARTS = pytest.mark.parametrize("start", [LogHarness.restart, LogHarness.crash])

A, B, C = 71, 72, 73


@pytest.fixture
def harness(tmp_path: Path) -> LogHarness:
    return LogHarness(tmp_path / "t-0")


@pytest.fixture
def writing(harness: LogHarness) -> Writing:
    return Writing(harness)


def stable(log: Log, mark: int | None = None) -> int:
    return log.last_stable_offset(log.end_offset if mark is None else mark)


def code_of_append(harness: LogHarness, batch: bytearray) -> ErrorCode:
    end_offset = harness.log.end_offset
    with pytest.raises(Refused) as refused:
        harness.append(batch, is_client=False)
    assert harness.log.end_offset == end_offset
    return refused.value.code


def test_without_transactions_the_stable_offset_is_the_high_watermark(
    harness: LogHarness, writing: Writing
) -> None:
    writing.plain(5)
    assert (stable(harness.log), stable(harness.log, 3)) == (5, 3)


def test_the_stable_offset_stays_where_the_earliest_open_transaction_begins(
    harness: LogHarness, writing: Writing
) -> None:
    writing.plain(3)
    writing.send(A)
    writing.send(B)
    writing.send(A, 4)
    assert (stable(harness.log), stable(harness.log, 2)) == (3, 2)
    writing.commit(A)
    assert stable(harness.log) == 4
    writing.abort(B)
    assert stable(harness.log) == harness.log.end_offset == 11


def test_the_stable_offset_stays_until_the_marker_is_committed(
    harness: LogHarness, writing: Writing
) -> None:
    writing.plain(3)
    writing.send(A, 3)
    assert writing.commit(A).base_offset == 6
    writing.plain()
    assert [stable(harness.log, mark) for mark in (4, 6, 7, 8)] == [3, 3, 7, 8]


def test_of_transactions_with_uncommitted_markers_the_earliest_counts(
    harness: LogHarness, writing: Writing
) -> None:
    for producer in (A, B, C):
        writing.send(producer)
    for producer in (C, A, B):
        writing.commit(producer)
    assert [stable(harness.log, mark) for mark in (3, 4, 5, 6)] == [0, 0, 1, 6]


def test_the_stable_offset_is_never_below_the_start_of_the_log(
    harness: LogHarness, writing: Writing
) -> None:
    writing.send(A, 4)
    harness.log.advance_start(2)
    assert stable(harness.log) == 2


def test_an_aborted_transaction_is_noted_with_the_stable_offset_it_leaves(
    harness: LogHarness, writing: Writing
) -> None:
    writing.plain(3)
    writing.send(A, 3)
    assert writing.abort(A).base_offset == 6
    assert aborted(harness.log) == [AbortedTransaction(A, 3, 6, 7)]


def test_the_stable_offset_of_an_entry_is_where_the_next_open_transaction_begins(
    harness: LogHarness, writing: Writing
) -> None:
    writing.send(A)
    writing.send(B)
    writing.send(C)
    writing.abort(A)
    writing.commit(B)
    writing.abort(C)
    assert aborted(harness.log) == [AbortedTransaction(A, 0, 3, 1), AbortedTransaction(C, 2, 5, 6)]


def test_a_committed_transaction_leaves_no_entry(harness: LogHarness, writing: Writing) -> None:
    writing.send(A)
    writing.commit(A)
    assert aborted(harness.log) == []
    assert not harness.log.has_aborted


def test_a_marker_without_a_transaction_changes_nothing_but_the_epoch(
    harness: LogHarness, writing: Writing
) -> None:
    writing.abort(A, epoch=4)
    assert aborted(harness.log) == []
    producer = harness.log.producers.get(A)
    assert producer is not None
    assert (producer.epoch, producer.timestamp, stable(harness.log)) == (4, T0, 1)
    assert code_of_append(harness, marker_of(A, Marker.ABORT, epoch=3)) == (
        ErrorCode.INVALID_PRODUCER_EPOCH
    )


def test_a_marker_of_an_older_coordinator_is_refused(harness: LogHarness, writing: Writing) -> None:
    writing.send(A)
    writing.commit(A, coordinator_epoch=5)
    old = marker_of(A, Marker.ABORT, coordinator_epoch=4)
    assert code_of_append(harness, old) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    writing.commit(A, coordinator_epoch=5)


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"\0\0\0\5", b"\0\0\0\0\0\0"), (b"\0\0", b""), (None, None), (b"\0\0\0\1", b"\0")],
    ids=["unknown type", "no type", "nothing", "no epoch"],
)
def test_a_control_record_of_another_kind_ends_no_transaction(
    harness: LogHarness, writing: Writing, key: bytes | None, value: bytes | None
) -> None:
    writing.send(A)
    other = build_batch(
        [(key, value)],
        timestamp_ms=T0,
        producer_id=A,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
    )
    harness.append(other, is_client=False)
    assert stable(harness.log) == 0


def test_a_producer_goes_on_at_its_sequence_after_a_transaction(
    harness: LogHarness, writing: Writing
) -> None:
    for _ in range(3):
        writing.send(A, 2)
        writing.abort(A)
    writing.send(A)
    assert stable(harness.log) == 9


@pytest.mark.parametrize("marker", list(Marker))
async def test_a_batch_of_an_ended_transaction_is_no_duplicate_of_one_in_the_next(
    harness: LogHarness, writing: Writing, marker: Marker
) -> None:
    """librdkafka gives the sequences of an aborted batch whose answer was lost away again."""
    writing.send(A, 2)
    writing.end(A, marker)
    end = harness.log.end_offset

    def code_of_the_same_sequences() -> ErrorCode:
        with pytest.raises(Refused) as refused:
            writing.send(A, 2, sequence=0)
        assert harness.log.end_offset == end
        return refused.value.code

    assert code_of_the_same_sequences() is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    await harness.restart()
    assert code_of_the_same_sequences() is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    sent = writing.send(A, 3)
    end = harness.log.end_offset
    assert code_of_the_same_sequences() is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    again = writing.send(A, 3, sequence=2)
    assert (again.is_duplicate, again.base_offset) == (True, sent.base_offset)


def test_each_batch_of_an_open_transaction_is_recognised_when_it_is_repeated(
    harness: LogHarness, writing: Writing
) -> None:
    writing.send(A)
    writing.commit(A)
    sent = [writing.send(A).base_offset for _ in range(4)]
    again = [writing.send(A, sequence=1 + number) for number in range(4)]
    assert [one.base_offset for one in again] == sent
    assert all(one.is_duplicate for one in again)


def test_after_a_marker_with_a_newer_epoch_sequences_begin_at_0(
    harness: LogHarness, writing: Writing
) -> None:
    writing.send(A, 3)
    writing.abort(A, epoch=1)
    with pytest.raises(Refused) as refused:
        writing.send(A, epoch=1)
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    Writing(harness).send(A, epoch=1)


def write_some(writing: Writing) -> None:
    """Transactions of three producers across several small segments; that of A stays open."""
    for round_ in range(6):
        writing.send(A)
        writing.send(B, 2)
        writing.plain()
        writing.send(C)
        writing.commit(C)
        (writing.abort if round_ % 2 else writing.commit)(B)
        if round_ < 4:
            writing.abort(A)


@STARTS
async def test_open_and_aborted_transactions_are_the_same_after_a_start(
    tmp_path: Path, start: Start
) -> None:
    harness = LogHarness(tmp_path / "t-0", segment_bytes=300)
    write_some(Writing(harness))
    before, entries, state = (
        stable(harness.log),
        aborted(harness.log),
        format_snapshot(harness.log.producers),
    )
    log = await start(harness)
    assert (stable(log), aborted(log), format_snapshot(log.producers)) == (before, entries, state)
    assert before < log.end_offset
    assert len(entries) == 7
    assert log.has_aborted


async def test_a_flush_writes_aborted_transactions_before_the_recovery_point_moves(
    tmp_path: Path,
) -> None:
    harness = LogHarness(tmp_path / "t-0", segment_bytes=300)
    write_some(Writing(harness))
    entries = aborted(harness.log)
    await harness.log.flush()
    assert harness.log.recovery_point == harness.log.end_offset
    assert aborted_on_disk(harness) == entries
    harness.recovery_point = harness.log.recovery_point
    assert aborted(await harness.crash()) == entries


@pytest.mark.parametrize("damage", ["missing", "garbage", "cut", "stale", "of another segment"])
async def test_what_a_crash_left_of_an_index_is_made_again_from_the_log(
    tmp_path: Path, damage: str
) -> None:
    harness = LogHarness(tmp_path / "t-0", segment_bytes=300)
    write_some(Writing(harness))
    entries = aborted(harness.log)
    await harness.log.flush()
    paths = sorted(harness.directory.glob("*.txnindex"))
    spoil(paths, damage)
    assert aborted(await harness.crash()) == entries
    assert aborted_on_disk(harness) == entries


def spoil(paths: list[Path], damage: str) -> None:
    data = [path.read_bytes() for path in paths]
    for path, content, other in zip(paths, data, data[1:] + data[:1], strict=True):
        match damage:
            case "missing":
                path.unlink()
            case "garbage":
                path.write_bytes(b"\1" * len(content))
            case "cut":
                path.write_bytes(content[:-3])
            case "stale":
                path.write_bytes(content + content[-34:])
            case _:
                path.write_bytes(other)


@pytest.mark.parametrize("damage", ["garbage", "cut", "stale", "of another segment"])
async def test_a_damaged_index_is_made_again_after_a_clean_stop_too(
    tmp_path: Path, damage: str
) -> None:
    harness = LogHarness(tmp_path / "t-0", segment_bytes=300)
    write_some(Writing(harness))
    entries = aborted(harness.log)
    await harness.log.close()
    spoil(sorted(harness.directory.glob("*.txnindex")), damage)
    assert aborted(await harness.reload(is_clean=True)) == entries
    assert aborted_on_disk(harness) == entries


async def test_an_index_is_made_again_without_any_snapshot(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0", segment_bytes=300)
    write_some(Writing(harness))
    entries, state = aborted(harness.log), format_snapshot(harness.log.producers)
    await harness.log.close()
    for path in [*harness.directory.glob("*.snapshot"), *harness.directory.glob("*.txnindex")]:
        path.unlink()
    log = await harness.crash()
    assert (aborted(log), format_snapshot(log.producers)) == (entries, state)


async def test_only_what_lies_above_the_recovery_point_is_made_again(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0")
    writing = Writing(harness)
    writing.send(A)
    writing.send(B)
    writing.abort(A)
    await harness.log.flush()
    harness.recovery_point = harness.log.end_offset
    writing.abort(B)
    assert len(aborted_on_disk(harness)) == 1
    log = await harness.crash()
    assert aborted(log) == [AbortedTransaction(A, 0, 2, 1), AbortedTransaction(B, 1, 3, 4)]
    assert aborted_on_disk(harness) == aborted(log)


async def test_a_torn_marker_leaves_its_transaction_open(
    harness: LogHarness, writing: Writing
) -> None:
    writing.send(A)
    writing.abort(A)
    path = harness.segment_file(0)
    harness.log.retire()
    path.write_bytes(path.read_bytes()[:-1])
    log = await harness.reload(is_clean=False)
    assert (log.end_offset, stable(log), aborted(log)) == (1, 0, [])


def test_a_truncated_marker_opens_its_transaction_again(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0", segment_bytes=300)
    writing = Writing(harness)
    write_some(writing)
    whole = aborted(harness.log)
    cut = whole[3].last_offset
    harness.log.truncate_to(cut)
    assert aborted(harness.log) == whole[:3]
    assert stable(harness.log) == whole[3].first_offset
    harness.append(marker_of(whole[3].producer_id, Marker.ABORT), is_client=False)
    assert aborted(harness.log) == whole[:4]


async def test_a_truncation_reaches_the_files_with_the_next_flush(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0", segment_bytes=300)
    write_some(Writing(harness))
    await harness.log.flush()
    harness.log.truncate_to(aborted(harness.log)[1].last_offset)
    for path in harness.keeper.discarded:
        path.unlink()
    await harness.log.close()
    assert aborted_on_disk(harness) == aborted(harness.log)
    assert len(aborted_on_disk(harness)) == 1


def test_an_emptied_log_knows_of_no_transaction(harness: LogHarness, writing: Writing) -> None:
    writing.send(A)
    writing.abort(A)
    writing.send(B)
    harness.log.truncate_fully(10)
    assert (stable(harness.log), aborted(harness.log)) == (10, [])


async def test_a_follower_comes_to_the_state_of_its_leader(tmp_path: Path) -> None:
    leader = LogHarness(tmp_path / "leader-0", segment_bytes=300)
    follower = LogHarness(tmp_path / "follower-0", segment_bytes=450)
    write_some(Writing(leader))
    data = read_all(leader.log)
    follower.log.append_as_follower(data)
    assert spans_of(read_all(follower.log)) == spans_of(data)
    assert aborted(follower.log) == aborted(leader.log)
    for mark in range(leader.log.end_offset + 1):
        assert stable(follower.log, mark) == stable(leader.log, mark)
    ahead = [format_snapshot(sorted(replica.log.producers)) for replica in (leader, follower)]
    assert ahead[0] == ahead[1]
    follower.append(epoch=1)


def test_index_entries_are_deleted_with_their_segments(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0", segment_bytes=300)
    write_some(Writing(harness))
    entries = aborted(harness.log)
    harness.log.delete_oldest(2)
    assert aborted(harness.log) == [
        entry for entry in entries if entry.last_offset >= harness.log.start_offset
    ]


def test_aborted_transactions_of_a_read_are_those_that_reach_into_it(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0", segment_bytes=600, index_interval_bytes=100)
    write_some(Writing(harness))
    log, entries = harness.log, aborted(harness.log)
    for offset in range(log.end_offset):
        for limit in (1, 200, 10_000):
            data = log.read(offset, bytes_max=limit, end=log.end_offset, at_least_one=True)
            end = spans_of(data)[-1][1] + 1
            needed = {
                entry
                for entry in entries
                if entry.last_offset >= offset and entry.first_offset < end
            }
            found = log.aborted_in(offset, len(data))
            assert needed <= set(found)
            assert all(transaction.last_offset >= offset for transaction in found)


def test_a_read_of_a_short_range_names_few_of_many_aborted_transactions(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0", index_interval_bytes=0)
    writing = Writing(harness)
    for _ in range(100):
        writing.send(A)
        writing.abort(A)
    data = harness.log.read(20, bytes_max=1, end=200, at_least_one=True)
    assert len(harness.log.aborted_in(20, len(data))) <= 2
    assert harness.log.aborted_in(20, 0) == []
