"""The transaction index of one segment: Kafka's bytes, bad ones, and what a flush writes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.broker.storage.files import DiskFiles
from barnabas.broker.storage.segment.segment import Segment
from barnabas.broker.storage.segment.transaction_index import (
    AbortedTransaction,
    BadTransactionIndex,
    TransactionIndex,
    aborted_transactions,
    format_aborted,
    parse_aborted,
)
from tests.records.vectors import FILE
from tests.storage.log_harness import T0

GOLDEN = next(bytes.fromhex(file["hex"]) for file in FILE["aux_files"] if file["id"] == "txn-index")
FIRST = AbortedTransaction(7, first_offset=3, last_offset=6, last_stable_offset=5)
SECOND = AbortedTransaction(8, first_offset=5, last_offset=9, last_stable_offset=10)


def segment_in(directory: Path, *entries: AbortedTransaction, base: int = 0) -> Segment:
    segment = Segment.create(DiskFiles(), directory, base, T0)
    for entry in entries:
        segment.indexes.transactions.add(entry)
    return segment


def save(segment: Segment) -> None:
    sync, write, state = segment.prepare_sync()
    sync()
    write()
    segment.indexes.mark_saved(state)


def stored(segment: Segment) -> list[AbortedTransaction]:
    return parse_aborted(segment.path(".txnindex").read_bytes())


def test_an_entry_is_read_and_written_as_kafka_does() -> None:
    entries = parse_aborted(GOLDEN)
    assert entries == [AbortedTransaction(4242, 1003, 1009, 1010)]
    assert format_aborted(entries) == GOLDEN


@pytest.mark.parametrize(
    "data",
    [
        GOLDEN[:-1],
        bytes([0, 1]) + GOLDEN[2:],
        GOLDEN * 2,
        bytes(34 * 2),
        bytes([255]) * 34,
        format_aborted([FIRST._replace(first_offset=7)]),
        format_aborted([FIRST._replace(last_stable_offset=8)]),
        format_aborted([SECOND, FIRST]),
    ],
    ids=["cut", "version", "twice", "zeros", "ones", "backwards", "unstable", "order"],
)
def test_what_kafka_would_not_write_is_refused(data: bytes) -> None:
    with pytest.raises(BadTransactionIndex):
        parse_aborted(data)


def test_a_segment_without_aborts_has_no_file(tmp_path: Path) -> None:
    segment = segment_in(tmp_path)
    save(segment)
    assert not segment.path(".txnindex").exists()
    segment.retire()


def test_a_flush_writes_what_the_file_lacks(tmp_path: Path) -> None:
    segment = segment_in(tmp_path, FIRST)
    save(segment)
    assert stored(segment) == [FIRST]
    segment.indexes.transactions.add(SECOND)
    assert segment.indexes.transactions.unsaved() == (34, format_aborted([SECOND]))
    save(segment)
    assert stored(segment) == [FIRST, SECOND]
    assert segment.indexes.transactions.unsaved() is None
    segment.retire()


def test_a_truncation_drops_the_transactions_whose_markers_go(tmp_path: Path) -> None:
    segment = segment_in(tmp_path, FIRST, SECOND)
    save(segment)
    segment.indexes.truncate(9)
    save(segment)
    assert stored(segment) == list(segment.indexes.transactions) == [FIRST]
    segment.indexes.truncate(0)
    save(segment)
    assert not segment.path(".txnindex").exists()
    segment.retire()


def test_an_index_is_loaded_when_it_is_first_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.txnindex"
    path.write_bytes(format_aborted([FIRST, SECOND]))
    index = TransactionIndex(DiskFiles(), path, is_empty=False)
    assert list(index.since(7)) == [SECOND]
    assert index.unsaved() is None


def test_a_damaged_index_keeps_nothing_and_is_written_again(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.txnindex"
    path.write_bytes(format_aborted([FIRST, SECOND])[:-1])
    index = TransactionIndex(DiskFiles(), path, is_empty=False)
    with pytest.raises(BadTransactionIndex):
        index.load()
    assert list(index) == []
    index.add(FIRST)
    assert index.unsaved() == (0, format_aborted([FIRST]))


def test_transactions_of_a_range_are_those_whose_data_or_marker_reach_into_it(
    tmp_path: Path,
) -> None:
    third = AbortedTransaction(7, first_offset=11, last_offset=12, last_stable_offset=13)
    one, two = segment_in(tmp_path, FIRST), segment_in(tmp_path, SECOND, third, base=8)
    assert list(aborted_transactions([one, two], 0, 4)) == [FIRST]
    assert list(aborted_transactions([one, two], 0, 6)) == [FIRST, SECOND]
    assert list(aborted_transactions([one, two], 7, 11)) == [SECOND]
    assert list(aborted_transactions([one, two], 7, 100)) == [SECOND, third]
    assert list(aborted_transactions([one, two], 13, 100)) == []
    one.retire()
    two.retire()


def test_the_search_ends_where_nothing_behind_can_reach_into_the_range(tmp_path: Path) -> None:
    one, unread = segment_in(tmp_path, FIRST), segment_in(tmp_path, base=8)
    unread.path(".txnindex").write_bytes(b"garbage")
    unread.indexes.transactions = TransactionIndex(
        DiskFiles(), unread.path(".txnindex"), is_empty=False
    )
    assert list(aborted_transactions([one, unread], 0, 5)) == [FIRST]
    one.retire()
    unread.retire()


def test_an_index_whose_segment_left_the_log_under_a_flush_leaves_no_file_of_zeros(
    tmp_path: Path,
) -> None:
    segment = segment_in(tmp_path)
    segment.indexes.offsets.add(5, 100)
    save(segment)
    segment.indexes.offsets.add(9, 200)
    _, write, _ = segment.prepare_sync()
    path = segment.path(".index")
    path.rename(path.with_suffix(".index.deleted"))  # as when the log is emptied meanwhile
    write()
    assert not path.exists()
