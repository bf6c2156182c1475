"""segments compact: a copy holds the last value of each key, and the original is left as it was.

Source: docs/spec/pipeline.md §4, job 6; docs/spec/log.md §5.3 to §5.7.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from barnabas.pipeline.frames import read_segments
from barnabas.pipeline.jobs import segments
from barnabas.pipeline.jobs.inputs import UsageProblem
from barnabas.pipeline.jobs.log_directories.segment_compaction import CompactionConfig, compact
from barnabas.pipeline.jobs.segments import SegmentsConfig
from barnabas.pipeline.source.segment_files import find_segments
from barnabas.protocol.records.compaction.offset_map import ENTRY_BYTES
from barnabas.protocol.records.control import Marker
from tests.console.log.kafka_data import extract
from tests.storage.compaction.compaction_harness import DAY_MS, CompactionHarness, Pair, newest
from tests.storage.log_harness import T0

RULES: dict[str, Any] = {
    "now_ms": T0,
    "delete_retention_ms": DAY_MS,
    "producer_expiration_ms": DAY_MS,
    "map_bytes": 1 << 20,
    "segment_bytes": 1 << 30,
}


@pytest.fixture
async def rig(tmp_path: Path) -> CompactionHarness:
    """A log of a node, which is closed before it is compacted."""
    (tmp_path / "logs").mkdir()
    return await CompactionHarness(tmp_path / "logs").open()


async def compacted(rig: CompactionHarness, out: Path, **others: object) -> dict[str, Any]:
    await rig.close()
    (directory,) = rig.directory.glob("t-*")
    return compact(
        directory, find_segments([str(directory)]), CompactionConfig(out=str(out), **RULES | others)
    )


async def held(directory: Path) -> CompactionHarness:
    """The log in ``directory`` as a node opens it, indexes made anew."""
    return await CompactionHarness(directory).open()


def contents(directory: Path) -> dict[Path, tuple[bytes, int]]:
    return {
        path: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in directory.rglob("*")
        if path.is_file()
    }


def fill(rig: CompactionHarness, seed: int) -> list[Pair]:
    """Keys written again and again, tombstones among them; what was acknowledged, in order."""
    rng = random.Random(seed)
    pairs: list[Pair] = []
    for number in range(60):
        its: list[Pair] = [
            (b"k%d" % rng.randrange(20), rng.choice((None, b"v%d" % number)))
            for _ in range(rng.randrange(1, 8))
        ]
        rig.put(*its, codec=rng.randrange(5))
        pairs += its
        if rng.random() < 0.2:
            rig.roll()
    return pairs


@pytest.mark.parametrize("seed", range(3))
async def test_a_node_that_opens_the_copy_has_the_last_value_of_each_key(
    rig: CompactionHarness, tmp_path: Path, seed: int
) -> None:
    pairs, end = fill(rig, seed), rig.log.end_offset
    before = contents(rig.directory)
    found = await compacted(rig, tmp_path / "out")
    assert found["bad"] is None
    assert {path: before[path] for path in before if path.suffix == ".log"} == {
        path: item for path, item in contents(rig.directory).items() if path.suffix == ".log"
    }
    assert (found["records"], found["keys"]) == (len(pairs), len({key for key, _ in pairs}))
    assert found["records_after"] == found["keys"]
    assert found["tombstones"] == found["keys"] - len(newest(pairs))
    assert (found["compacted_to"], found["end"]) == (end, end)
    copy = await held(tmp_path / "out")
    assert copy.view() == newest(pairs)
    assert copy.log.end_offset == end
    assert found["bytes_after"] == sum(
        path.stat().st_size for path in (tmp_path / "out").rglob("*.log")
    )
    await copy.close()


async def test_aborted_records_go_and_an_open_transaction_stays_as_it_is(
    rig: CompactionHarness, tmp_path: Path
) -> None:
    transaction: dict[str, Any] = {
        "producer_epoch": 0,
        "base_sequence": 0,
        "is_transactional": True,
    }
    rig.put((b"a", b"1"), (b"b", b"1"))
    rig.put((b"a", b"never"), producer_id=7, **transaction)
    rig.end_transaction(7, Marker.ABORT)
    rig.put((b"a", b"2"))
    rig.put((b"b", b"perhaps"), producer_id=8, **transaction)
    rig.put((b"a", b"3"))
    found = await compacted(rig, tmp_path / "out")
    assert (found["compacted_to"], found["end"]) == (5, 7)
    copy = await held(tmp_path / "out")
    assert [(key, value) for _, key, value in copy.held()] == [
        (b"b", b"1"), (b"a", b"2"), (b"b", b"perhaps"), (b"a", b"3")
    ]  # fmt: skip
    await copy.close()


async def test_keys_beyond_the_memory_given_are_left_uncompacted(
    rig: CompactionHarness, tmp_path: Path
) -> None:
    for turn in range(2):
        for number in range(20):
            rig.put((b"k%d" % number, b"%d" % turn))
    found = await compacted(rig, tmp_path / "out", map_bytes=int(12 * ENTRY_BYTES / 0.9))
    assert found["compacted_to"] < found["end"] == 40
    copy = await held(tmp_path / "out")
    assert copy.view() == {b"k%d" % number: b"1" for number in range(20)}
    await copy.close()


async def test_a_log_with_records_without_key_or_with_damage_is_told_and_not_copied(
    rig: CompactionHarness, tmp_path: Path
) -> None:
    rig.put((b"a", b"1"), (None, b"2"))
    rig.put((b"a", b"3"))
    found = await compacted(rig, tmp_path / "out")
    assert "without key" in found["bad"]
    assert (found["without_key"], found["records"], found["records_after"]) == (1, 3, 1)
    (path,) = rig.directory.rglob("*.log")
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    damaged = compact(
        path.parent, find_segments([str(path)]), CompactionConfig(out=str(tmp_path), **RULES)
    )
    assert "at byte 0" in damaged["bad"]
    assert not (tmp_path / "out").exists()
    assert not any(name.startswith(".t-0") for name in rig.files.list_directory(tmp_path))


async def test_our_source_reads_of_the_copies_the_last_value_of_each_key(
    spark: SparkSession, rig: CompactionHarness, tmp_path: Path
) -> None:
    pairs = fill(rig, 9)
    await rig.close()
    before = contents(rig.directory)
    paths, out = [str(rig.directory)], tmp_path / "out"
    told = segments.run(spark, SegmentsConfig(step="compact", paths=paths, now_ms=T0))
    assert not out.exists()
    report = segments.run(
        spark, SegmentsConfig(step="compact", paths=paths, out=str(out), now_ms=T0)
    )
    assert told.figures.pop("not compactable") == report.figures.pop("not copied") == 0
    assert report.figures == told.figures
    rows = read_segments(spark, str(out)).orderBy("offset").collect()
    found = [(bytes(row.key), None if row.value is None else bytes(row.value)) for row in rows]
    assert newest(found) == newest(pairs)
    assert len({key for key, _ in found}) == len(found) == report.figures["keys"]
    assert contents(rig.directory) == before
    for taken, said in ((out, "is there already"), (rig.log.directory / "x", "name another")):
        with pytest.raises(UsageProblem, match=said):
            segments.run(spark, SegmentsConfig(step="compact", paths=paths, out=str(taken)))


def test_what_kafka_wrote_is_judged_in_every_format(spark: SparkSession, tmp_path: Path) -> None:
    config = SegmentsConfig(step="compact", paths=[str(extract(tmp_path))])
    (table,) = segments.run(spark, config).tables
    for row in table.rows:
        told = dict(zip(table.columns, row, strict=True))
        assert told["bad"] is None
        assert int(str(told["records_after"])) <= int(str(told["records"]))
