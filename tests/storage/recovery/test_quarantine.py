"""Damage below the recovery point is reported and stays.

Source: docs/spec/log.md §3.4, docs/spec/reliability.md §2 failure 14.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.broker.storage.recovery.damage_inspection import Inspection
from barnabas.broker.storage.recovery.quarantine import FILE_NAME
from barnabas.protocol.errors import ErrorCode, Refused
from tests.storage.rig import Rig, batch, offsets_of, spans_of


@pytest.fixture
async def rig(tmp_path: Path) -> Rig:
    """Ten batches of two records in one segment, all of them fsynced."""
    rig = Rig(tmp_path / "t-0", index_interval_bytes=150)
    for _ in range(10):
        rig.append(batch(2, size=100))
    await rig.log.flush()
    rig.recovery_point = rig.log.recovery_point
    return rig


def damage(rig: Rig, position: int, count: int = 1, base: int = 0) -> None:
    """Turn bytes over."""
    path = rig.segment_file(base)
    data = bytearray(path.read_bytes())
    for at in range(position, position + count):
        data[at] ^= 0x55
    path.write_bytes(data)


def lose_indexes(rig: Rig, base: int = 0) -> None:
    """So that a start verifies the whole segment."""
    rig.segment_file(base, ".index").unlink()


def refused_at(rig: Rig, offset: int, bytes_max: int = 1) -> ErrorCode | None:
    try:
        rig.log.read(offset, bytes_max=bytes_max, end=rig.log.end_offset, at_least_one=True)
    except Refused as refusal:
        return refusal.code
    return None


def readable(rig: Rig) -> list[int]:
    """Every offset at which a reader gets the batch that holds it."""
    found = []
    for offset in range(rig.log.end_offset):
        if refused_at(rig, offset) is None:
            data = rig.log.read(offset, bytes_max=1, end=rig.log.end_offset, at_least_one=True)
            assert offset in offsets_of(data)
            found.append(offset)
    return found


# A batch: offset 0-7, length 8-11, epoch 12-15, magic 16, checksum 17-20, then what it covers.
PLACES = {"offset": 3, "length": 9, "magic": 16, "checksum": 18, "attributes": 22, "body": 80}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
async def test_a_damaged_batch_below_the_recovery_point_is_refused_and_all_others_are_read(
    rig: Rig, place: int
) -> None:
    damage(rig, 400 + place)
    lose_indexes(rig)
    log = await rig.crash()
    assert log.end_offset == 20
    assert rig.segment_file(0).stat().st_size == 1000
    assert readable(rig) == [*range(8), *range(10, 20)]
    assert {refused_at(rig, 8), refused_at(rig, 9)} == {ErrorCode.CORRUPT_MESSAGE}


async def test_a_read_ends_before_the_damage_and_goes_on_behind_it(rig: Rig) -> None:
    damage(rig, 450, 100)
    lose_indexes(rig)
    log = await rig.crash()
    before = log.read(2, bytes_max=10_000, end=20, at_least_one=True)
    assert spans_of(before)[-1] == (6, 7)
    behind = log.read(12, bytes_max=10_000, end=20, at_least_one=True)
    assert spans_of(behind) == [(12, 13), (14, 15), (16, 17), (18, 19)]


async def test_the_operator_finds_file_place_offsets_and_reason(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    damage(rig, 480)
    lose_indexes(rig)
    await rig.crash()
    lines = (rig.directory / FILE_NAME).read_text().splitlines()
    assert lines == ["0", "1", "0 400 500 8 10 checksum"]
    told = [each.getMessage() for each in caplog.records if "quarantined" in each.getMessage()]
    assert len(told) == 1
    assert "position=400 bytes=100 offsets=8..9 reason=checksum" in told[0]


async def test_a_damaged_end_below_the_recovery_point_stays_and_its_offsets_are_not_used_again(
    rig: Rig,
) -> None:
    damage(rig, 950)
    lose_indexes(rig)
    log = await rig.crash()
    assert (log.end_offset, log.segments.view.bases) == (20, (0, 20))
    assert readable(rig) == list(range(18))
    assert rig.append(batch(2)).base_offset == 20
    assert rig.segment_file(0).stat().st_size == 1000
    for again in (await rig.restart(), await rig.crash()):
        assert again.end_offset == 22
        assert readable(rig) == [*range(18), 20, 21]


async def test_zeros_over_the_whole_segment_lose_nothing_of_the_others(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "t-0", segment_bytes=300)
    for _ in range(9):
        rig.append(batch(2, size=100))
    await rig.log.flush()
    rig.recovery_point = 18
    rig.segment_file(6).write_bytes(bytes(300))
    lose_indexes(rig, 6)
    await rig.crash()
    assert readable(rig) == [*range(6), *range(12, 18)]


async def test_an_end_that_is_missing_is_no_damage_but_reported_all_the_same(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    path = rig.segment_file(0)
    path.write_bytes(path.read_bytes()[:950])
    log = await rig.crash()
    assert (log.end_offset, path.stat().st_size) == (18, 900)
    errors = [each for each in caplog.records if each.levelname == "ERROR"]
    assert "found a damaged tail" in errors[0].getMessage()


async def test_damage_is_cut_only_above_the_recovery_point(rig: Rig) -> None:
    rig.recovery_point = 12
    damage(rig, 250)
    damage(rig, 750)
    lose_indexes(rig)
    log = await rig.crash()
    assert (log.end_offset, rig.segment_file(0).stat().st_size) == (14, 700)
    assert readable(rig) == [0, 1, 2, 3, *range(6, 14)]


async def test_a_restored_file_ends_the_quarantine(rig: Rig) -> None:
    damage(rig, 450)
    lose_indexes(rig)
    await rig.crash()
    assert refused_at(rig, 8) is ErrorCode.CORRUPT_MESSAGE
    await rig.log.close()
    damage(rig, 450)
    await rig.reload(is_clean=True)
    assert readable(rig) == list(range(20))
    assert not (rig.directory / FILE_NAME).exists()


@pytest.mark.parametrize("is_clean", [True, False])
async def test_known_damage_is_known_again_after_a_start(rig: Rig, *, is_clean: bool) -> None:
    damage(rig, 410)
    lose_indexes(rig)
    await rig.crash()
    log = await (rig.restart() if is_clean else rig.crash())
    assert log.end_offset == 20
    assert readable(rig) == [*range(8), *range(10, 20)]


@pytest.mark.parametrize("text", [b"", b"0\n9\n", b"\xff\xfe", b"0\n1\nx y z\n", b"0\n1\n99 1\n"])
async def test_a_list_of_damage_that_is_damaged_itself_hinders_nobody(
    rig: Rig, text: bytes
) -> None:
    await rig.log.close()
    (rig.directory / FILE_NAME).write_bytes(text)
    await rig.reload(is_clean=True)
    assert readable(rig) == list(range(20))


async def test_a_log_with_damage_is_truncated_before_it_inside_it_and_behind_it(rig: Rig) -> None:
    damage(rig, 410)
    lose_indexes(rig)
    for offset, end in ((14, 14), (9, 8), (4, 4)):
        await rig.crash()
        rig.log.truncate_to(offset)
        assert rig.log.end_offset == end
        rig.recovery_point = rig.log.recovery_point
        await rig.log.flush()
    assert readable(rig) == [0, 1, 2, 3]


async def test_the_disk_that_was_full_is_verified_around_known_damage(rig: Rig) -> None:
    damage(rig, 410)
    lose_indexes(rig)
    await rig.crash()
    rig.log.is_full = True
    for _ in rig.log.verify_again():
        pass
    assert not rig.log.is_full
    assert readable(rig) == [*range(8), *range(10, 20)]
    assert rig.append().base_offset == 20


@pytest.mark.parametrize("place", [3, 9, 16])
async def test_damage_that_a_reader_meets_is_inspected_while_the_log_is_in_use(
    rig: Rig, place: int
) -> None:
    damage(rig, 400 + place)
    assert refused_at(rig, 8) is ErrorCode.CORRUPT_MESSAGE
    assert rig.keeper.inspected == [rig.log]
    await Inspection(rig.files).inspect(rig.log)
    assert (rig.directory / FILE_NAME).read_text().startswith("0\n1\n0 400 500 8 10 ")
    assert readable(rig) == [*range(8), *range(10, 20)]
    assert rig.append(batch(2)).base_offset == 20
    assert readable(rig)[-1] == 21


async def test_readers_of_known_damage_are_refused_without_another_line_in_the_log(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    damage(rig, 410)
    lose_indexes(rig)
    await rig.crash()
    caplog.clear()
    assert refused_at(rig, 8) is ErrorCode.CORRUPT_MESSAGE
    assert caplog.records == []


# Offsets lie outside of the checksum: only their neighbours tell.


def move(rig: Rig, position: int, offset: int) -> None:
    """Another base offset for the batch at ``position``."""
    path = rig.segment_file(0)
    data = bytearray(path.read_bytes())
    data[position : position + 8] = offset.to_bytes(8, "big")
    path.write_bytes(data)


WRONG = [0, 7, 9, 10, 12, 16, 8 + 16, 8 + 1024, 8 + (1 << 40)]


@pytest.mark.parametrize("offset", WRONG)
@pytest.mark.parametrize("loses_indexes", [True, False])
async def test_a_flipped_base_offset_quarantines_that_batch_and_no_other(
    rig: Rig, offset: int, loses_indexes: bool
) -> None:
    await rig.log.close()
    move(rig, 400, offset)
    if loses_indexes:
        lose_indexes(rig)
    await rig.reload(is_clean=True)
    assert loses_indexes or refused_at(rig, 0, 10_000) == ErrorCode.CORRUPT_MESSAGE
    await Inspection(rig.files).inspect(rig.log)
    assert readable(rig) == [*range(8), *range(10, 20)]


async def test_headers_from_an_earlier_life_are_compared_once(rig: Rig) -> None:
    log = await rig.restart()
    assert log.segments.active.checked.end == 1000
    for offset in (12, 2, 0, 12):
        log.read(offset, bytes_max=400, end=20, at_least_one=True)
    assert log.segments.active.checked.end == 1000
    log.read(0, bytes_max=2000, end=20, at_least_one=True)
    assert log.segments.active.checked.end == 0
    rig.append(batch(2, size=100))
    log.read(0, bytes_max=2000, end=22, at_least_one=True)
    assert log.segments.active.checked.end == 0
