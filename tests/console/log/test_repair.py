"""``barnabas log repair``: dry by default, keeps what it replaces, loses no more than it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.console.__main__ import main
from barnabas.console.log.repair import repairs
from barnabas.protocol.offsets_topic import offset_key, offset_value
from barnabas.protocol.records import batch
from barnabas.protocol.records.batch import build_batch
from barnabas.protocol.records.bit_repair import mended
from tests.console.log.test_dump import Captured
from tests.storage.log_harness import T0, manager, running
from tests.storage.simulated import in_simulated_time

TOPIC = "__consumer_offsets"
SIZE = 10


def commit(group: str, offset: int) -> bytearray:
    return build_batch(
        [(offset_key(group, "orders", 0), offset_value(offset, -1, "", T0))], timestamp_ms=T0
    )


async def stored(data: Path, *, segment_bytes: int = 1 << 20) -> list[bytes]:
    """Ten commits of one batch each, as a node that stopped in order leaves them."""
    async with running(manager([data], segment_bytes=segment_bytes)) as logs:
        log = logs.create(TOPIC, 0, None)
        for index in range(SIZE):
            log.append(commit(f"group-{index}", index), leader_epoch=3, is_client=False)
    return batches(data)


def segments(data: Path) -> list[Path]:
    return sorted((data / f"{TOPIC}-0").glob("*.log"))


def batches(data: Path) -> list[bytes]:
    found = []
    for path in segments(data):
        whole = path.read_bytes()
        found += [whole[at : at + size] for at, size in batch.iterate(whole)]
    return found


def turn(path: Path, position: int, *bits: int) -> None:
    data = bytearray(path.read_bytes())
    for at, mask in enumerate(bits):
        data[position + at] ^= mask
    path.write_bytes(data)


def contents(data: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}


async def served(data: Path) -> list[int]:
    """The offsets of the records that a node serves."""
    async with running(manager([data])) as logs:
        log = logs.get(TOPIC, 0)
        assert log is not None
        assert log.end_offset == SIZE
        found, offset = [], log.start_offset
        while offset < log.end_offset:
            piece = log.read(offset, bytes_max=1, end=SIZE, at_least_one=True)
            found += [record.offset for record in batch.records(piece)]
            offset = batch.next_offset(piece)
        return found


@in_simulated_time
async def test_a_dry_run_says_what_is_lost_and_changes_nothing(
    tmp_path: Path, capsys: Captured
) -> None:
    first = await stored(tmp_path)
    position = sum(map(len, first[:4]))
    turn(segments(tmp_path)[0], position + len(first[4]) - 12, 0x18)
    before = contents(tmp_path)
    assert main(["log", "repair", str(tmp_path)]) == 1
    told = capsys.readouterr().out
    assert f"position {position}, {len(first[4])} bytes, offsets 4..4: checksum" in told
    assert "lost: up to 1 records, what is readable names group-4:orders-0" in told
    assert "dry run: nothing was changed" in told
    assert before == contents(tmp_path)


@in_simulated_time
async def test_what_cannot_be_put_right_is_replaced_and_kept_aside(
    tmp_path: Path, capsys: Captured
) -> None:
    first = await stored(tmp_path)
    path, position = segments(tmp_path)[0], sum(map(len, first[:4]))
    turn(path, position + len(first[4]) - 12, 0x18)
    damaged = path.read_bytes()[position : position + len(first[4])]
    assert main(["log", "repair", str(path.parent), "--execute", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["repairs"]) == 1
    assert path.with_name(f"{path.stem}.{position}.damaged").read_bytes() == damaged
    after = batches(tmp_path)
    assert after[:4] + after[5:] == first[:4] + first[5:]
    assert (batch.record_count(after[4]), batch.leader_epoch(after[4])) == (0, 3)
    assert main(["log", "repair", str(tmp_path)]) == 0
    assert main(["log", "verify", str(tmp_path)]) == 0
    assert await served(tmp_path) == [0, 1, 2, 3, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("place", [0, 6, 7, 9, 11, 16, 18, 21, 26, 40, 57, 61, 70, -1])
@in_simulated_time
async def test_one_flipped_bit_is_put_right_and_nothing_is_lost(
    tmp_path: Path, place: int, capsys: Captured
) -> None:
    first = await stored(tmp_path, segment_bytes=300)
    turn(segments(tmp_path)[1], place % len(first[0]), 0x10)
    assert main(["log", "repair", str(tmp_path), "--execute"]) == 0
    assert "is put right: nothing is lost" in capsys.readouterr().out
    assert batches(tmp_path) == first
    assert await served(tmp_path) == list(range(SIZE))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(st.data())
def test_any_bit_but_those_of_the_leader_epoch_is_found(data: st.DataObject) -> None:
    whole = commit("g", data.draw(st.integers(0, 2**40)))
    batch.assign(whole, 1000, 7)
    place = data.draw(st.sampled_from([*range(12), *range(16, len(whole))]))
    wrong = bytearray(whole)
    wrong[place] ^= 1 << data.draw(st.integers(0, 7))
    found = mended(bytes(wrong), 1000, 1001)
    assert found is not None
    assert found == (bytes(whole), place)


@in_simulated_time
async def test_a_running_nodes_log_is_not_repaired(tmp_path: Path, capsys: Captured) -> None:
    await stored(tmp_path)
    turn(segments(tmp_path)[0], 70, 1)
    async with running(manager([tmp_path])):
        assert main(["log", "repair", str(tmp_path), "--execute"]) == 1
        assert "stop it first" in capsys.readouterr().err
    assert main(["log", "repair", str(tmp_path)]) == 1


@in_simulated_time
async def test_a_damaged_end_is_replaced_up_to_the_recovery_point(tmp_path: Path) -> None:
    first = await stored(tmp_path)
    path = segments(tmp_path)[0]
    turn(path, sum(map(len, first[:-1])) + 61, 0xFF, 0xFF, 0xFF)
    found = repairs(tmp_path, is_executed=True)
    assert [(repair.first_offset, repair.next_offset) for repair in found] == [(9, 10)]
    assert await served(tmp_path) == list(range(9))
