"""segments: what Kafka's own log directory holds, where one is bad, how two replicas differ."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from barnabas.pipeline.jobs import segments
from barnabas.pipeline.jobs.inputs import UsageProblem
from barnabas.pipeline.jobs.log_directories.segment_checks import check
from barnabas.pipeline.jobs.reports.report import Report
from barnabas.pipeline.jobs.segments import SegmentsConfig
from barnabas.pipeline.source.segment_files import SegmentFile, find_segments
from barnabas.protocol.log_files.index_entries import OFFSET_ENTRY
from tests.console.log.kafka_data import extract


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return extract(tmp_path)


def largest(data: Path) -> SegmentFile:
    return max(find_segments([str(data)]), key=lambda file: file.size)


def verified(spark: SparkSession, data: Path) -> Report:
    return segments.run(spark, SegmentsConfig(step="verify", paths=[str(data)]))


def test_what_kafka_wrote_is_whole_and_a_flipped_bit_is_found(
    spark: SparkSession, data: Path
) -> None:
    report = verified(spark, data)
    assert report.exit_code == 0, report.tables
    assert report.figures["files"] == len(find_segments([str(data)]))
    victim = Path(largest(data).path)
    content = bytearray(victim.read_bytes())
    content[-1] ^= 1
    victim.write_bytes(content)
    report = verified(spark, data)
    assert report.figures["bad logs"] == 1
    (table,) = report.tables
    first = dict(zip(table.columns, table.rows[0], strict=True))
    assert first["file"] == str(victim)
    assert "at byte" in str(first["bad_log"])


def test_an_index_entry_that_leads_nowhere_is_found(data: Path) -> None:
    file = largest(data)
    whole = check(file, opens_records=False)
    assert whole["bad_index"] is None
    assert whole["records"] == check(file, opens_records=True)["records"]
    index = Path(file.path).with_suffix(".index")
    index.write_bytes(OFFSET_ENTRY.pack(1, 7))
    assert check(file, opens_records=False)["bad_index"] == (
        f"entry 0: offset {file.base_offset + 1} at byte 7"
    )


def test_records_are_counted_alike_whether_batches_are_opened_or_not(data: Path) -> None:
    files = find_segments([str(data)])
    told = [check(file, opens_records=False)["records"] for file in files]
    assert told == [check(file, opens_records=True)["records"] for file in files]
    assert any(check(file, opens_records=False)["magic"].startswith("0") for file in files)


def test_replicas_differ_in_the_records_that_one_of_them_lacks_within_its_log(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    directory = Path(largest(data).path).parent
    for copy in (mine, theirs):
        shutil.copytree(directory, copy / directory.name)
    config = SegmentsConfig(step="diff", paths=[str(mine)], other=[str(theirs)])
    assert segments.run(spark, config).exit_code == 0
    victim = Path(largest(theirs).path)
    bounds = batch_bounds(victim)
    content = victim.read_bytes()
    victim.write_bytes(content[: bounds[1]] + content[bounds[2] :])
    report = segments.run(spark, config)
    assert report.findings > 0
    assert {row[2] for row in report.tables[0].rows} == {"equal", "missing there"}


def test_a_path_without_anything_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    config = SegmentsConfig(step="verify", paths=[str(tmp_path / "nothing")])
    with pytest.raises(UsageProblem, match="there is nothing at"):
        segments.run(spark, config)


def batch_bounds(path: Path) -> list[int]:
    """Where the first three entries of a segment begin."""
    data, found = path.read_bytes(), [0]
    while len(found) < 3:
        found.append(found[-1] + 12 + int.from_bytes(data[found[-1] + 8 : found[-1] + 12], "big"))
    return found
