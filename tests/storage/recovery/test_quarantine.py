"""Damage below the recovery point is reported and stays.

Source: docs/spec/log.md §3.4, docs/spec/reliability.md §2 failure 14.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.broker.storage.recovery.damage_inspection import DamageInspection
from barnabas.broker.storage.recovery.quarantine import FILE_NAME
from barnabas.protocol.errors import ErrorCode, Refused
from tests.storage.log_harness import LogHarness, batch, offsets_of, spans_of


@pytest.fixture
async def harness(tmp_path: Path) -> LogHarness:
    """Ten batches of two records in one segment, all of them fsynced."""
    harness = LogHarness(tmp_path / "t-0", index_interval_bytes=150)
    for _ in range(10):
        harness.append(batch(2, size=100))
    await harness.log.flush()
    harness.recovery_point = harness.log.recovery_point
    return harness


def damage(harness: LogHarness, position: int, count: int = 1, base: int = 0) -> None:
    """Turn bytes over."""
    path = harness.segment_file(base)
    data = bytearray(path.read_bytes())
    for at in range(position, position + count):
        data[at] ^= 0x55
    path.write_bytes(data)


def lose_indexes(harness: LogHarness, base: int = 0) -> None:
    """So that a start verifies the whole segment."""
    harness.segment_file(base, ".index").unlink()


def refused_at(harness: LogHarness, offset: int, bytes_max: int = 1) -> ErrorCode | None:
    try:
        harness.log.read(offset, bytes_max=bytes_max, end=harness.log.end_offset, at_least_one=True)
    except Refused as refusal:
        return refusal.code
    return None


def readable(harness: LogHarness) -> list[int]:
    """Every offset at which a reader gets the batch that holds it."""
    found = []
    for offset in range(harness.log.end_offset):
        if refused_at(harness, offset) is None:
            data = harness.log.read(
                offset, bytes_max=1, end=harness.log.end_offset, at_least_one=True
            )
            assert offset in offsets_of(data)
            found.append(offset)
    return found


# A batch: offset 0-7, length 8-11, epoch 12-15, magic 16, checksum 17-20, then what it covers.
PLACES = {"offset": 3, "length": 9, "magic": 16, "checksum": 18, "attributes": 22, "body": 80}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
async def test_a_damaged_batch_below_the_recovery_point_is_refused_and_all_others_are_read(
    harness: LogHarness, place: int
) -> None:
    damage(harness, 400 + place)
    lose_indexes(harness)
    log = await harness.crash()
    assert log.end_offset == 20
    assert harness.segment_file(0).stat().st_size == 1000
    assert readable(harness) == [*range(8), *range(10, 20)]
    assert {refused_at(harness, 8), refused_at(harness, 9)} == {ErrorCode.CORRUPT_MESSAGE}


async def test_a_read_ends_before_the_damage_and_goes_on_behind_it(harness: LogHarness) -> None:
    damage(harness, 450, 100)
    lose_indexes(harness)
    log = await harness.crash()
    before = log.read(2, bytes_max=10_000, end=20, at_least_one=True)
    assert spans_of(before)[-1] == (6, 7)
    behind = log.read(12, bytes_max=10_000, end=20, at_least_one=True)
    assert spans_of(behind) == [(12, 13), (14, 15), (16, 17), (18, 19)]


async def test_the_operator_finds_file_place_offsets_and_reason(
    harness: LogHarness, caplog: pytest.LogCaptureFixture
) -> None:
    damage(harness, 480)
    lose_indexes(harness)
    await harness.crash()
    lines = (harness.directory / FILE_NAME).read_text().splitlines()
    assert lines == ["0", "1", "0 400 500 8 10 checksum"]
    told = [
        record.getMessage() for record in caplog.records if "quarantined" in record.getMessage()
    ]
    assert len(told) == 1
    assert "position=400 bytes=100 offsets=8..9 reason=checksum" in told[0]


async def test_a_damaged_end_below_the_recovery_point_stays_and_its_offsets_are_not_used_again(
    harness: LogHarness,
) -> None:
    damage(harness, 950)
    lose_indexes(harness)
    log = await harness.crash()
    assert (log.end_offset, log.segments.view.bases) == (20, (0, 20))
    assert readable(harness) == list(range(18))
    assert harness.append(batch(2)).base_offset == 20
    assert harness.segment_file(0).stat().st_size == 1000
    for again in (await harness.restart(), await harness.crash()):
        assert again.end_offset == 22
        assert readable(harness) == [*range(18), 20, 21]


async def test_zeros_over_the_whole_segment_lose_nothing_of_the_others(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0", segment_bytes=300)
    for _ in range(9):
        harness.append(batch(2, size=100))
    await harness.log.flush()
    harness.recovery_point = 18
    harness.segment_file(6).write_bytes(bytes(300))
    lose_indexes(harness, 6)
    await harness.crash()
    assert readable(harness) == [*range(6), *range(12, 18)]


async def test_an_end_that_is_missing_is_no_damage_but_reported_all_the_same(
    harness: LogHarness, caplog: pytest.LogCaptureFixture
) -> None:
    path = harness.segment_file(0)
    path.write_bytes(path.read_bytes()[:950])
    log = await harness.crash()
    assert (log.end_offset, path.stat().st_size) == (18, 900)
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert "found a damaged tail" in errors[0].getMessage()


async def test_damage_is_cut_only_above_the_recovery_point(harness: LogHarness) -> None:
    harness.recovery_point = 12
    damage(harness, 250)
    damage(harness, 750)
    lose_indexes(harness)
    log = await harness.crash()
    assert (log.end_offset, harness.segment_file(0).stat().st_size) == (14, 700)
    assert readable(harness) == [0, 1, 2, 3, *range(6, 14)]


async def test_a_restored_file_ends_the_quarantine(harness: LogHarness) -> None:
    damage(harness, 450)
    lose_indexes(harness)
    await harness.crash()
    assert refused_at(harness, 8) is ErrorCode.CORRUPT_MESSAGE
    await harness.log.close()
    damage(harness, 450)
    await harness.reload(is_clean=True)
    assert readable(harness) == list(range(20))
    assert not (harness.directory / FILE_NAME).exists()


@pytest.mark.parametrize("is_clean", [True, False])
async def test_known_damage_is_known_again_after_a_start(
    harness: LogHarness, *, is_clean: bool
) -> None:
    damage(harness, 410)
    lose_indexes(harness)
    await harness.crash()
    log = await (harness.restart() if is_clean else harness.crash())
    assert log.end_offset == 20
    assert readable(harness) == [*range(8), *range(10, 20)]


@pytest.mark.parametrize("text", [b"", b"0\n9\n", b"\xff\xfe", b"0\n1\nx y z\n", b"0\n1\n99 1\n"])
async def test_a_list_of_damage_that_is_damaged_itself_hinders_nobody(
    harness: LogHarness, text: bytes
) -> None:
    await harness.log.close()
    (harness.directory / FILE_NAME).write_bytes(text)
    await harness.reload(is_clean=True)
    assert readable(harness) == list(range(20))


async def test_a_log_with_damage_is_truncated_before_it_inside_it_and_behind_it(
    harness: LogHarness,
) -> None:
    damage(harness, 410)
    lose_indexes(harness)
    for offset, end in ((14, 14), (9, 8), (4, 4)):
        await harness.crash()
        harness.log.truncate_to(offset)
        assert harness.log.end_offset == end
        harness.recovery_point = harness.log.recovery_point
        await harness.log.flush()
    assert readable(harness) == [0, 1, 2, 3]


async def test_the_disk_that_was_full_is_verified_around_known_damage(harness: LogHarness) -> None:
    damage(harness, 410)
    lose_indexes(harness)
    await harness.crash()
    harness.log.is_full = True
    for _ in harness.log.verify_again():
        pass
    assert not harness.log.is_full
    assert readable(harness) == [*range(8), *range(10, 20)]
    assert harness.append().base_offset == 20


@pytest.mark.parametrize("place", [3, 9, 16])
async def test_damage_that_a_reader_meets_is_inspected_while_the_log_is_in_use(
    harness: LogHarness, place: int
) -> None:
    damage(harness, 400 + place)
    assert refused_at(harness, 8) is ErrorCode.CORRUPT_MESSAGE
    assert harness.keeper.inspected == [harness.log]
    await DamageInspection(harness.files).inspect(harness.log)
    assert (harness.directory / FILE_NAME).read_text().startswith("0\n1\n0 400 500 8 10 ")
    assert readable(harness) == [*range(8), *range(10, 20)]
    assert harness.append(batch(2)).base_offset == 20
    assert readable(harness)[-1] == 21


async def test_readers_of_known_damage_are_refused_without_another_line_in_the_log(
    harness: LogHarness, caplog: pytest.LogCaptureFixture
) -> None:
    damage(harness, 410)
    lose_indexes(harness)
    await harness.crash()
    caplog.clear()
    assert refused_at(harness, 8) is ErrorCode.CORRUPT_MESSAGE
    assert caplog.records == []


# Offsets lie outside of the checksum: only their neighbours tell.


def move(harness: LogHarness, position: int, offset: int) -> None:
    """Another base offset for the batch at ``position``."""
    path = harness.segment_file(0)
    data = bytearray(path.read_bytes())
    data[position : position + 8] = offset.to_bytes(8, "big")
    path.write_bytes(data)


WRONG = [0, 7, 9, 10, 12, 16, 8 + 16, 8 + 1024, 8 + (1 << 40)]


@pytest.mark.parametrize("offset", WRONG)
@pytest.mark.parametrize("loses_indexes", [True, False])
async def test_a_flipped_base_offset_quarantines_that_batch_and_no_other(
    harness: LogHarness, offset: int, loses_indexes: bool
) -> None:
    await harness.log.close()
    move(harness, 400, offset)
    if loses_indexes:
        lose_indexes(harness)
    await harness.reload(is_clean=True)
    assert loses_indexes or refused_at(harness, 0, 10_000) == ErrorCode.CORRUPT_MESSAGE
    await DamageInspection(harness.files).inspect(harness.log)
    assert readable(harness) == [*range(8), *range(10, 20)]


async def test_headers_from_an_earlier_life_are_compared_once(harness: LogHarness) -> None:
    log = await harness.restart()
    assert log.segments.active.checked.end == 1000
    for offset in (12, 2, 0, 12):
        log.read(offset, bytes_max=400, end=20, at_least_one=True)
    assert log.segments.active.checked.end == 1000
    log.read(0, bytes_max=2000, end=20, at_least_one=True)
    assert log.segments.active.checked.end == 0
    harness.append(batch(2, size=100))
    log.read(0, bytes_max=2000, end=22, at_least_one=True)
    assert log.segments.active.checked.end == 0
