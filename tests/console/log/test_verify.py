"""``barnabas log verify`` finds what is wrong with every kind of file, and touches none."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path

import pytest

from barnabas.console.__main__ import main
from barnabas.console.command_line.failure import Failure
from barnabas.console.log.verify import VerifyReport, verify
from barnabas.protocol.records import batch
from barnabas.protocol.records.message_set import encode_messages
from barnabas.protocol.records.record import Record
from tests.console.log.kafka_data import extract
from tests.console.log.test_dump import Captured, segment, stored
from tests.records.vectors import T0, of
from tests.storage.log_harness import batch as one_batch
from tests.storage.log_harness import manager, running
from tests.storage.simulated import in_simulated_time

BATCH = len(stored(0))
LOG = b"".join(stored(offset) for offset in range(100, 105))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return extract(tmp_path)


def problems(*paths: Path) -> list[tuple[str, int | None, str]]:
    report = VerifyReport()
    for path in paths:
        verify(path, report)
    return [
        (Path(problem.file).name, problem.position, problem.reason) for problem in report.problems
    ]


def only_problem(*paths: Path) -> tuple[str, int | None, str]:
    found = problems(*paths)
    assert len(found) == 1, found
    return found[0]


def test_everything_that_kafka_wrote_is_sound(data: Path, capsys: Captured) -> None:
    assert main(["log", "verify", str(data)]) == 0
    assert capsys.readouterr().out == "172 files, 815 batches, 3847 records: no problem\n"


def test_partitions_and_single_files_are_sound_as_well(data: Path) -> None:
    assert not problems(*sorted(data.glob("m*")))
    suffixes = (".log", "index", ".snapshot", "-checkpoint")
    assert not problems(*(path for path in data.rglob("*") if path.name.endswith(suffixes)))


def test_what_a_node_of_ours_leaves_is_sound(tmp_path: Path) -> None:
    write_log(tmp_path)
    assert not problems(tmp_path)


@in_simulated_time
async def write_log(directory: Path) -> None:
    async with running(manager([directory], segment_bytes=4000, index_interval_bytes=500)) as logs:
        log = logs.create("t", 0, bytes(range(16)))
        for number in range(80):
            made = one_batch(
                3,
                time=T0 + number // 3,
                producer_id=7,
                producer_epoch=0,
                base_sequence=number * 3,
                codec=number % 5,
            )
            log.append(made, leader_epoch=number // 30, is_client=True)


def test_verifying_writes_nothing(data: Path) -> None:
    def state() -> dict[Path, tuple[int, bytes]]:
        files = [path for path in data.rglob("*") if path.is_file()]
        return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}

    before = state()
    verify(data, VerifyReport())
    assert state() == before


def test_a_bad_checksum_is_told_with_its_position_and_the_rest_still_checked(
    tmp_path: Path,
) -> None:
    content = bytearray(LOG)
    content[BATCH * 2 - 1] ^= 1
    content[BATCH * 4 - 1] ^= 1
    found = problems(segment(tmp_path, bytes(content), 100))
    assert [(position, reason.split(" ")[0]) for _, position, reason in found] == [
        (BATCH, "checksum"),
        (BATCH * 3, "checksum"),
    ]


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        (bytes(300), "size 12, magic 0"),
        (LOG[:BATCH], "offset 100 after 104"),
        (LOG[:40], "an entry is cut"),
        (stored(105)[:-1], f"{BATCH - 1} of {BATCH} bytes"),
    ],
    ids=["zeros", "stale", "cut header", "cut batch"],
)
def test_a_bad_tail_is_told_with_its_position(tail: bytes, reason: str, tmp_path: Path) -> None:
    name, position, told = only_problem(segment(tmp_path, LOG + tail, 100))
    assert (name, position) == (f"{100:020}.log", len(LOG))
    assert told.startswith(reason) or "of" in told


def test_an_offset_below_the_name_of_its_segment_is_told(tmp_path: Path) -> None:
    assert "offset 100 after 199" in only_problem(segment(tmp_path, stored(100), 200))[2]


def resealed(offset: int, **fields: int) -> bytes:
    built = bytearray(stored(offset))
    for at, value in ((23, fields.get("delta")), (57, fields.get("count"))):
        if value is not None:
            built[at : at + 4] = value.to_bytes(4, "big")
    if "newest" in fields:
        built[35:43] = fields["newest"].to_bytes(8, "big")
    batch.reseal(built)
    return bytes(built)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (resealed(100, count=2), "the last record is cut"),
        (resealed(100, newest=T0 + 5), f"greatest timestamp {T0 + 5}, the records have {T0}"),
    ],
    ids=["count", "newest"],
)
def test_a_header_that_lies_about_its_records_is_told(
    bad: bytes, reason: str, tmp_path: Path
) -> None:
    assert only_problem(segment(tmp_path, bad, 100))[1:] == (0, reason)


def test_a_bad_checksum_inside_of_a_wrapper_is_told(tmp_path: Path) -> None:
    inner = bytearray(encode_messages([Record(0, T0, b"k", b"v"), Record(1, T0, b"k", b"w")], 1))
    inner[-1] ^= 1
    payload = gzip.compress(bytes(inner), mtime=0)
    wrapper = bytearray(encode_messages([Record(1, T0, None, payload)], 1))
    wrapper[17] |= 1
    wrapper[12:16] = zlib.crc32(wrapper[16:]).to_bytes(4, "big")
    assert only_problem(segment(tmp_path, bytes(wrapper)))[1:] == (
        0,
        "checksum of an inner message",
    )


@pytest.mark.parametrize(
    ("content", "position", "reason"),
    [
        ((2, BATCH * 2, 3, BATCH * 3 + 1), 8, "where no batch begins"),
        ((1, BATCH * 2), 0, "offset 101 for the batch at 102"),
        ((9, BATCH * 9), 0, "beyond the log"),
        ((2, BATCH * 2, 0, 0), 8, "(100, 0) after"),
    ],
)
def test_a_bad_offset_index_is_told(
    content: tuple[int, ...], position: int, reason: str, tmp_path: Path
) -> None:
    path = segment(tmp_path, LOG, 100).with_suffix(".index")
    path.write_bytes(b"".join(number.to_bytes(4, "big") for number in content))
    found = problems(path)
    assert any(place == position and reason in told for _, place, told in found), found


def time_entry(timestamp: int, relative: int) -> bytes:
    return timestamp.to_bytes(8, "big") + relative.to_bytes(4, "big")


@pytest.mark.parametrize(
    ("content", "position", "reason"),
    [
        (time_entry(T0 + 1, 1), 0, f"time {T0 + 1} for offset 101, the log has {T0}"),
        (time_entry(T0, 0) + time_entry(T0 + 1, 9), 12, "offset 109, beyond the log"),
        (time_entry(T0, 2) + time_entry(T0, 1), 12, "after"),
        (time_entry(T0, 0) + b"cut", 12, "the last entry is cut"),
    ],
)
def test_a_bad_time_index_is_told(
    content: bytes, position: int, reason: str, tmp_path: Path
) -> None:
    log = segment(tmp_path, LOG, 100)
    log.with_suffix(".timeindex").write_bytes(content)
    found = problems(log.with_suffix(".timeindex"))
    assert any(place == position and reason in told for _, place, told in found), found


def test_a_transaction_index_without_its_marker_is_told(data: Path) -> None:
    path = data / "m2-txn-0" / f"{20:020}.txnindex"
    content = bytearray(path.read_bytes())
    content[9] ^= 1
    path.write_bytes(content)
    assert only_problem(path)[2] == "offset 36 is no marker of producer 3"


def test_a_damaged_transaction_index_is_told(data: Path) -> None:
    path = data / "m2-txn-0" / f"{20:020}.txnindex"
    path.write_bytes(path.read_bytes()[:-1])
    assert only_problem(path)[2] == "33 bytes"


def test_a_damaged_snapshot_is_told(data: Path) -> None:
    path = data / "m2-txn-0" / f"{20:020}.snapshot"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert only_problem(path.parent)[::2] == (path.name, "version 1 or a wrong checksum")


def test_a_snapshot_from_beyond_its_offset_is_told(data: Path) -> None:
    path = data / "m2-txn-0" / f"{48:020}.snapshot"
    path = path.rename(path.with_name(f"{20:020}.snapshot"))
    assert "at offset" in only_problem(path)[2]


def test_epochs_that_the_batches_deny_are_told_once(data: Path) -> None:
    path = data / "m2-none-0" / "leader-epoch-checkpoint"
    path.write_text("0\n2\n0 0\n3 100\n")
    name, _, reason = only_problem(path.parent)
    assert (name, reason) == (path.name, "epoch 3 for offset 115, its batch has 0")


def test_a_cut_checkpoint_is_told(data: Path) -> None:
    path = data / "replication-offset-checkpoint"
    path.write_text("0\n2\nm2-none 0 1\n")
    assert only_problem(data)[0] == path.name


def test_an_identity_without_a_broker_is_told(data: Path) -> None:
    path = data / "meta.properties"
    path.write_text("version=0\n")
    assert only_problem(data)[::2] == (path.name, "no version 0 with a broker.id")


def test_a_checkpoint_beyond_the_end_of_a_log_is_told(data: Path) -> None:
    path = data / "replication-offset-checkpoint"
    path.write_text("0\n1\nm2-none 0 241\n")
    assert only_problem(data)[2] == "offset 241 of m2-none-0, whose log ends at 240"


def test_a_segment_that_overlaps_the_one_before_is_told(data: Path) -> None:
    directory = data / "m2-none-0"
    (directory / f"{138:020}.log").rename(directory / f"{100:020}.log")
    for suffix in (".index", ".timeindex"):
        (directory / f"{138:020}{suffix}").unlink()
    (directory / f"{0:020}.log").write_bytes((directory / f"{100:020}.log").read_bytes())
    assert any("after" in reason for _, _, reason in problems(directory))


def test_an_index_without_its_log_is_told(data: Path) -> None:
    (data / "m2-gzip-0" / f"{0:020}.log").unlink()
    found = problems(data / "m2-gzip-0")
    assert {(name, reason) for name, _, reason in found} == {
        (f"{0:020}.index", "its log is missing"),
        (f"{0:020}.timeindex", "its log is missing"),
    }


def test_files_on_their_way_out_are_left_alone(data: Path) -> None:
    (data / "m2-gzip-0" / f"{7:020}.log.deleted").write_bytes(b"nonsense")
    assert not problems(data)


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").touch()
    for name in ("empty", "notes.txt", "missing"):
        with pytest.raises(Failure):
            verify(tmp_path / name, VerifyReport())


def test_problems_are_exit_code_1_with_file_position_and_reason(
    tmp_path: Path, capsys: Captured
) -> None:
    path = segment(tmp_path, of("v2-none-1") + bytes(99))
    place = len(of("v2-none-1"))
    assert main(["log", "verify", str(path)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{path}: position {place}: size 12, magic 0 (99 bytes from here)",
        "1 files, 1 batches, 1 records: 1 problems",
    ]
    assert main(["log", "verify", "--json", str(path)]) == 1
    assert json.loads(capsys.readouterr().out)["problems"] == [
        {
            "file": str(path),
            "position": place,
            "reason": "size 12, magic 0 (99 bytes from here)",
        }
    ]
