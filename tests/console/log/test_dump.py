"""``barnabas log dump`` prints what kafka-dump-log prints, line by line."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from barnabas.console.__main__ import main
from barnabas.console.development.java import find_java
from barnabas.console.log.record_decoders import formatted_offset, offsets
from barnabas.protocol.offsets_topic import (
    GroupRecord,
    MemberRecord,
    group_key,
    group_value,
    offset_key,
    offset_value,
)
from barnabas.protocol.records import batch
from barnabas.protocol.records.record import Record
from benchmarks.apache_kafka import class_path
from tests.console.log.kafka_data import RUNS, extract, files_of, printed_by_kafka
from tests.harness.needs import apache_kafka_jars
from tests.records.vectors import FILE, GOLDEN, T0, of

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Kafka's directory, named from where we stand as it was when Kafka printed it."""
    monkeypatch.chdir(tmp_path)
    return extract(tmp_path)


def dumped(capsys: Captured, *words: object) -> list[str]:
    assert main(["log", "dump", *map(str, words)]) == 0
    return capsys.readouterr().out.split("\n")


def in_one_order(lines: list[str]) -> list[str]:
    """Kafka prints the partitions of a transaction in the order of a hash set."""
    return [
        re.sub(r"partitions=\[(.*)\]", lambda m: str(sorted(m[1].split(","))), line)
        for line in lines
    ]


@pytest.mark.parametrize("run", RUNS)
def test_the_dump_is_what_kafka_printed(run: str, data: Path, capsys: Captured) -> None:
    lines = dumped(capsys, *RUNS[run], *files_of(run, data))
    assert in_one_order(lines) == in_one_order(printed_by_kafka(run))


@pytest.mark.kafka
@pytest.mark.parametrize("run", RUNS)
def test_kafkas_own_tool_prints_the_same_now(run: str, data: Path, capsys: Captured) -> None:
    files = files_of(run, data)
    command = [str(find_java()), "-Xmx256m", "-XX:+UseSerialGC", "-Dfile.encoding=UTF-8"]
    command += ["-cp", class_path(apache_kafka_jars()), "kafka.tools.DumpLogSegments", *RUNS[run]]
    command += ["--files", ",".join(map(str, files))]
    done = subprocess.run(command, cwd=data.parent, capture_output=True, timeout=120, check=True)
    assert in_one_order(dumped(capsys, *RUNS[run], *files)) == in_one_order(
        done.stdout.decode().split("\n")
    )


def test_json_says_the_same_for_programs(data: Path, capsys: Captured) -> None:
    log = data / "m2-txn-0" / f"{20:020}.log"
    lines = dumped(capsys, "--json", "--print-data-log", log)
    found = [json.loads(line) for line in lines if line]
    assert {document.pop("file") for document in found} == {str(log)}
    assert Counter(kind for document in found for kind in document) == {"batch": 5, "record": 28}
    assert found[0]["batch"]["isControl"] is True
    assert found[0]["batch"]["deleteHorizonMs"] is None
    assert found[1]["record"]["endTxnMarker"] == "COMMIT"
    assert (found[3]["record"]["key"], found[3]["record"]["payload"]) == ("t20", "dropped 20")


def test_checkpoints_and_epochs_are_printed_too(data: Path, capsys: Captured) -> None:
    lines = dumped(capsys, data / "m2-none-0" / "leader-epoch-checkpoint")
    assert lines[1:] == ["epoch: 0 startOffset: 0", ""]
    lines = dumped(capsys, data / "cleaner-offset-checkpoint")
    assert "topic: m2-compact partition: 0 offset: 692" in lines


def test_a_directory_stands_for_the_files_in_it(data: Path, capsys: Captured) -> None:
    lines = dumped(capsys, data / "m2-txn-0")
    heads = [Path(line.split(" ")[1]).name for line in lines if line.startswith("Dumping")]
    assert heads == sorted(path.name for path in (data / "m2-txn-0").iterdir())


def test_the_documents_formatter_shows_every_offset_that_kafka_answers(
    data: Path, capsys: Captured
) -> None:
    logs = sorted(data.glob("__consumer_offsets-*/*.log"))
    newest: dict[str, str] = {}
    for line in dumped(capsys, "--offsets-formatter", *logs):
        if line:
            key, _, value = line.partition("::")
            newest[key] = value
    expected = json.loads((GOLDEN / "kafka-data.json").read_text())["offsets"]
    for group, rows in expected.items():
        for topic, partition, offset, metadata in rows:
            shown = newest.pop(f"[{group},{topic},{partition}]")
            # The client that wrote them put a zero behind each metadata, which the file leaves out.
            wanted = f"[OffsetMetadata[{offset},{metadata}],CommitTime "
            assert shown.replace("\0", "").replace("NO_METADATA", "").startswith(wanted)
    assert set(newest.values()) <= {"NULL"}


def record(key: bytes | None, value: bytes | None) -> Record:
    return Record(5, T0, key, value)


def test_the_documents_formatter_has_the_line_of_old() -> None:
    value = offset_value(21, -1, "", T0, T0 + 7)
    line = formatted_offset(record(offset_key("g", "t", 3), value))
    assert (
        line == f"[g,t,3]::[OffsetMetadata[21,NO_METADATA],CommitTime {T0},ExpirationTime {T0 + 7}]"
    )
    assert formatted_offset(record(offset_key("g", "t", 3), None)) == "[g,t,3]::NULL"
    assert formatted_offset(record(group_key("g"), None)) is None


def test_what_no_decoder_knows_is_told_in_kafkas_words() -> None:
    assert offsets(record(b"\0\x07\0\0", b"x")) == (
        "Unknown record type 7 at offset 5, skipping.",
        None,
    )
    for bad in (None, b"\0", b"\0\1\0\5g"):
        key, payload = offsets(record(bad, b"x"))
        assert key
        assert key.startswith("Error at offset 5, skipping. ")
        assert payload is None


def test_a_member_of_another_protocol_keeps_its_bytes_in_base64() -> None:
    member = MemberRecord(
        member_id="m",
        client_id="c",
        client_host="/h",
        session_timeout=1,
        subscription=b"\0\1\2",
        assignment=b"",
    )
    group = GroupRecord(protocol_type="connect", generation=1, members=[member])
    _, payload = offsets(record(group_key("g"), group_value(group)))
    assert payload
    shown: dict[str, Any] = json.loads(payload)["data"]["members"][0]
    assert (shown["subscription"], shown["assignment"]) == ("AAEC", "")


def segment(tmp_path: Path, content: bytes, base: int = 0) -> Path:
    path = tmp_path / f"{base:020}.log"
    path.write_bytes(content)
    return path


def test_a_batch_with_a_wrong_checksum_is_shown_as_not_valid(
    tmp_path: Path, capsys: Captured
) -> None:
    good = of("v2-none-1")
    bad = bytearray(good)
    bad[-2] ^= 1
    lines = dumped(capsys, segment(tmp_path, good + bad))
    assert [line[-5:] for line in lines if line.startswith("baseOffset")] == [" true", "false"]


def test_the_bytes_of_a_cut_batch_are_counted(tmp_path: Path, capsys: Captured) -> None:
    path = segment(tmp_path, of("v2-none-1") * 2 + of("v2-none-1")[:30])
    assert f"Found 30 invalid bytes at the end of {path.name}" in dumped(capsys, path)


def test_no_more_is_read_than_was_asked_for(tmp_path: Path, capsys: Captured) -> None:
    one = of("v2-none-1")
    lines = dumped(capsys, "--max-bytes", 2 * len(one) + 5, segment(tmp_path, one * 3))
    assert sum(line.startswith("baseOffset") for line in lines) == 2
    assert not any("invalid bytes" in line for line in lines)


def test_nonsense_is_told_with_its_position_and_exit_code_1(
    tmp_path: Path, capsys: Captured
) -> None:
    path = segment(tmp_path, of("v2-none-1") + bytes(200))
    assert main(["log", "dump", str(path)]) == 1
    assert f"position {len(of('v2-none-1'))}: size 12, magic 0" in capsys.readouterr().err


def test_an_index_that_does_not_fit_its_log_is_told_in_kafkas_words(
    tmp_path: Path, capsys: Captured
) -> None:
    aux = {file["id"]: file for file in FILE["aux_files"]}
    path = segment(tmp_path, b"".join(stored(1000 + n) for n in range(3)), 1000)
    index = path.with_suffix(".index")
    index.write_bytes(bytes.fromhex(aux["offset-index"]["hex"]))
    times = path.with_suffix(".timeindex")
    times.write_bytes((T0 + 9).to_bytes(8, "big") + (1).to_bytes(4, "big"))
    assert main(["log", "dump", str(index), str(times)]) == 1
    told = capsys.readouterr().err
    assert f"Mismatches in :{index}" in told
    assert f"Found timestamp mismatch in :{times}" in told
    assert f"  Index timestamp: {T0 + 9}, log timestamp: {T0}" in told


def stored(offset: int) -> bytes:
    built = batch.build_batch([(b"k", b"v")], timestamp_ms=T0)
    batch.assign(built, offset, 0)
    return bytes(built)


@pytest.mark.parametrize("suffix", [".snapshot", ".txnindex"])
def test_a_damaged_file_is_told_and_the_next_one_printed(
    suffix: str, tmp_path: Path, capsys: Captured
) -> None:
    bad = tmp_path / f"{0:020}{suffix}"
    bad.write_bytes(b"nonsense")
    log = segment(tmp_path, of("v2-none-1"))
    assert main(["log", "dump", str(bad), str(log)]) == 1
    out, err = capsys.readouterr()
    assert err.startswith(str(bad))
    assert "baseOffset: 0" in out


def test_an_unknown_file_is_passed_over_as_kafka_does(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "notes.txt").touch()
    assert main(["log", "dump", str(tmp_path / "notes.txt")]) == 0
    assert "Ignoring unknown file" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path, capsys: Captured) -> None:
    assert main(["log", "dump", str(tmp_path / f"{0:020}.log")]) == 1
    assert capsys.readouterr().err == f"{tmp_path / f'{0:020}.log'}: no such file or directory\n"
