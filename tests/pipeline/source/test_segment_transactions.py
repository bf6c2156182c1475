"""Segment files read for committed records: markers tell which, wherever a log is cut into files.

Source: docs/spec/transactions.md §5.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import EqualTo

from barnabas.pipeline.source.layout import RECORDS
from barnabas.pipeline.source.modes import batch_reader
from barnabas.pipeline.source.rows import RecordRows
from barnabas.pipeline.source.segment_reader import (
    FilteringSegmentReader,
    SegmentReader,
    segment_options,
)
from barnabas.protocol.records import batch
from barnabas.protocol.records.compaction.record_removal import emptied
from barnabas.protocol.records.control import Marker
from tests.harness.transaction_data import LEVELS, TOPIC, Shown, shown, unpack
from tests.pipeline.source.test_reading import marker_at, records_at


def options(path: Path, level: str, **more: str) -> dict[str, str]:
    return {"mode": "segments", "path": str(path), "isolation.level": level, **more}


def rows(reader: SegmentReader) -> list[Shown]:
    """The records that the tasks of a reader yield, one after the other."""
    made = [
        row
        for task in reader.partitions()
        for batch_of_rows in reader.read(task)
        for row in batch_of_rows.to_pylist()
    ]
    return sorted(Shown(row["partition"], row["offset"], row["key"], row["value"]) for row in made)


def read(path: Path, level: str, **more: str) -> list[Shown]:
    return rows(SegmentReader(segment_options(options(path, level, **more)), RecordRows(RECORDS)))


def offsets(path: Path, level: str) -> list[int]:
    return [row.offset for row in read(path, level)]


@pytest.mark.parametrize("level", LEVELS)
def test_files_of_kafka_show_what_its_own_consumers_were_given(tmp_path: Path, level: str) -> None:
    """T5.10, of the files alone."""
    assert read(unpack(tmp_path), level, subscribe=TOPIC) == shown(level)


@pytest.fixture(scope="module")
def golden_entries(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """The batches of one partition of Kafka's."""
    log = unpack(tmp_path_factory.mktemp("whole")) / f"{TOPIC}-0" / f"{0:020}.log"
    data = log.read_bytes()
    return [data[at : at + size] for at, size in batch.iterate(data)]


def write(directory: Path, segments: Iterable[Sequence[bytes]]) -> None:
    """Files of a log, each of these entries."""
    directory.mkdir(parents=True)
    for segment in segments:
        path = directory / f"{batch.base_offset(segment[0]):020}.log"
        path.write_bytes(b"".join(segment))


@settings(max_examples=20)
@given(cuts=st.sets(st.integers(1, 13)), task_bytes=st.sampled_from(["1", "400", "100000"]))
def test_committed_records_are_the_same_wherever_the_log_is_cut_into_segments(
    golden_entries: list[bytes], cuts: set[int], task_bytes: str
) -> None:
    marks = [0, *sorted(cuts), len(golden_entries)]
    segments = [golden_entries[first:stop] for first, stop in pairwise(marks)]
    with TemporaryDirectory() as directory:
        write(Path(directory) / f"{TOPIC}-0", segments)
        for level in LEVELS:
            found = read(Path(directory), level, segmentBytesPerTask=task_bytes)
            assert found == [row for row in shown(level) if row.partition == 0]


def transactional(first: int, count: int, producer: int) -> bytes:
    return records_at(
        first,
        count,
        is_transactional=True,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=first,
    )


def test_files_end_for_committed_readers_where_the_first_open_transaction_begins(
    tmp_path: Path,
) -> None:
    write(
        tmp_path / "t-0",
        [
            [records_at(0, 2), transactional(2, 2, 7)],
            [records_at(4, 1), transactional(5, 1, 8), marker_at(6, 8, Marker.COMMIT)],
            [records_at(7, 1)],
        ],
    )

    assert offsets(tmp_path, "read_uncommitted") == [0, 1, 2, 3, 4, 5, 7]
    assert offsets(tmp_path, "read_committed") == [0, 1]


def test_a_transaction_that_compaction_has_emptied_keeps_nothing_back(tmp_path: Path) -> None:
    write(
        tmp_path / "t-0", [[bytes(emptied(batch.header(transactional(0, 2, 7)))), records_at(5, 2)]]
    )

    assert offsets(tmp_path, "read_committed") == [5, 6]


def test_an_abort_in_a_later_file_hides_records_though_the_first_file_is_gone(
    tmp_path: Path,
) -> None:
    write(
        tmp_path / "t-0",
        [[transactional(0, 2, 7)], [transactional(2, 2, 7), marker_at(4, 7, Marker.ABORT)]],
    )
    (tmp_path / "t-0" / f"{0:020}.log").unlink()

    assert offsets(tmp_path, "read_committed") == []
    assert offsets(tmp_path, "read_uncommitted") == [2, 3]


def test_copies_of_a_log_in_two_directories_are_two_logs(tmp_path: Path) -> None:
    log = [records_at(0, 1), transactional(1, 1, 7), marker_at(2, 7, Marker.ABORT)]
    write(tmp_path / "a" / "t-0", [log])
    write(tmp_path / "b" / "t-0", [log[:2]])
    paths = f"{tmp_path}/a,{tmp_path}/b"

    reader = SegmentReader(
        segment_options({"mode": "segments", "path": paths, "isolation.level": "read_committed"}),
        RecordRows(RECORDS),
    )

    assert [row.offset for row in rows(reader)] == [0, 0]


def test_filters_do_not_keep_a_marker_from_being_seen(tmp_path: Path) -> None:
    """The file with the marker is not read, but what it says of the one before counts."""
    write(
        tmp_path / "t-0",
        [[records_at(0, 2), transactional(2, 2, 7)], [marker_at(4, 7, Marker.ABORT)]],
    )
    reader = FilteringSegmentReader(
        segment_options(options(tmp_path, "read_committed")), RecordRows(RECORDS)
    )
    list(reader.pushFilters([EqualTo(("offset",), 3)]))

    assert [len(task.value) for task in reader.partitions()] == [1]
    assert [row.offset for row in rows(reader)] == [0, 1]


def test_offset_commits_of_aborted_and_open_transactions_are_left_out(tmp_path: Path) -> None:
    logs = unpack(tmp_path)
    found = {}
    for level in LEVELS:
        told = {**options(logs, level), "mode": "commits"}
        reader = batch_reader(told)
        assert isinstance(reader, SegmentReader)
        made = [
            row
            for task in reader.partitions()
            for rows_of_task in reader.read(task)
            for row in rows_of_task.to_pylist()
        ]
        found[level] = {
            (row["group"], row["topic"], row["partition"], row["offset"]) for row in made
        }

    assert found["read_committed"] < found["read_uncommitted"]
    assert not any(group == "group-b" for group, *_ in found["read_committed"])
