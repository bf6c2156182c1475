"""Both indexes: Kafka's bytes, lookups, and when entries are made."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.broker.storage.segment.offset_index import OffsetIndex
from barnabas.broker.storage.segment.time_index import TimeIndex
from tests.records.vectors import FILE
from tests.storage.log_harness import T0, LogHarness, batch, offsets_of

AUX = {file["id"]: file for file in FILE["aux_files"]}
BASE = 1000


def test_an_offset_index_of_kafkas_layout_finds_the_position_to_scan_from() -> None:
    index = OffsetIndex(bytes.fromhex(AUX["offset-index"]["hex"]))
    found = {offset: index.lookup(offset - BASE) for offset in (1006, 1007, 1014, 9999)}
    assert found == {1006: (0, 0), 1007: (7, 4201), 1014: (7, 4201), 9999: (15, 8410)}


def test_a_time_index_of_kafkas_layout_finds_the_offset_to_scan_from() -> None:
    index = TimeIndex(bytes.fromhex(AUX["time-index"]["hex"]))
    assert index.lookup(T0 + 49) == (-1, 0)
    assert index.lookup(T0 + 50) == (T0 + 50, 7)
    assert index.lookup(T0 + 91) == (T0 + 90, 13)


def test_indexes_are_written_in_kafkas_layout() -> None:
    offsets, times = OffsetIndex(), TimeIndex()
    offsets.add(7, 4201)
    offsets.add(15, 8410)
    times.add(T0 + 50, 7)
    times.add(T0 + 90, 13)
    assert offsets.to_bytes().hex() == AUX["offset-index"]["hex"]
    assert times.to_bytes().hex() == AUX["time-index"]["hex"]


def test_a_time_index_takes_only_later_times() -> None:
    times = TimeIndex()
    times.add(T0, 3)
    times.add(T0, 9)
    times.add(T0 - 1, 12)
    assert times.last == (T0, 3)


@pytest.mark.parametrize(
    "entries",
    [
        [(0, 0), (0, 0)],  # what a preallocated index of Kafka looks like after a crash
        [(5, 100), (3, 200)],
        [(5, 200), (6, 100)],
        [(99, 100)],
        [(5, 999)],
    ],
)
def test_an_offset_index_that_cannot_be_right_is_told_from_a_good_one(
    entries: list[tuple[int, int]],
) -> None:
    data = b"".join(o.to_bytes(4, "big") + p.to_bytes(4, "big") for o, p in entries)
    assert not OffsetIndex(data).is_plausible(50, 500)


def test_truncation_drops_entries_at_the_offset_and_above() -> None:
    offsets = OffsetIndex(bytes.fromhex(AUX["offset-index"]["hex"]))
    times = TimeIndex(bytes.fromhex(AUX["time-index"]["hex"]))
    offsets.truncate(15)
    times.truncate(13)
    assert (offsets.last_offset, times.last) == (7, (T0 + 50, 7))


def test_ten_appends_of_1000_bytes_make_an_entry_at_the_sixth(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0")
    for _ in range(11):
        harness.append(batch(size=1000))
    index = harness.log.segments.active.indexes.offsets
    assert [index.lookup(offset) for offset in (4, 5, 9, 10)] == [
        (0, 0),
        (5, 5000),
        (5, 5000),
        (10, 10_000),
    ]


def test_an_offset_is_found_when_the_index_says_nothing_about_it(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0", index_interval_bytes=100)
    for _ in range(20):
        harness.append(batch(3))
    for offset in range(60):
        data = harness.log.read(offset, bytes_max=1, end=60, at_least_one=True)
        assert offsets_of(data) == [offset // 3 * 3 + number for number in range(3)]


async def test_an_index_that_points_behind_the_offset_is_rebuilt_on_the_way(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0", index_interval_bytes=100)
    for _ in range(20):
        harness.append(batch())
    await harness.log.close()
    size = len(batch())
    lies = OffsetIndex()
    lies.add(3, 5 * size)
    lies.add(19, 15 * size + 7)
    harness.segment_file(0, ".index").write_bytes(lies.to_bytes())
    log = await harness.reload(is_clean=True)
    assert offsets_of(log.read(4, bytes_max=1, end=20, at_least_one=True)) == [4]
    assert offsets_of(log.read(19, bytes_max=1, end=20, at_least_one=True)) == [19]
