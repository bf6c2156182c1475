"""Kafka's own DumpLogSegments reads the files that a log leaves."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from barnabas.console.__main__ import main
from barnabas.console.development.java import find_java
from barnabas.protocol.records.batch import build_batch_of
from barnabas.protocol.records.control import Marker
from barnabas.protocol.records.record import Record
from benchmarks.apache_kafka import class_path
from tests.harness.java_tools import complaints
from tests.harness.needs import apache_kafka_jars
from tests.storage.log_harness import T0, batch, manager, running
from tests.storage.producers.transactional import marker_of
from tests.storage.simulated import in_simulated_time

pytestmark = pytest.mark.kafka

COMPLAINTS = ("Mismatches", "not found in", "isvalid: false", "ut of order", "invalid bytes")
TOOL = "kafka.tools.DumpLogSegments"


@in_simulated_time
async def write_log(directory: Path) -> None:
    async with running(manager([directory], segment_bytes=6000, index_interval_bytes=1000)) as logs:
        log = logs.create("t", 0, None)
        for number in range(100):
            numbered = batch(
                3, time=T0 + number, producer_id=7, producer_epoch=0, base_sequence=number * 3
            )
            log.append(numbered, leader_epoch=number // 50, is_client=True)


@in_simulated_time
async def write_everything(directory: Path) -> None:
    """Every codec, headers, tombstones, times of the broker, transactions of two producers."""
    rows = [
        Record(number, T0 + number, b"k%d" % number, None if number % 4 == 1 else b"v" * number)
        for number in range(20)
    ]
    headed = [record._replace(headers=(("h", b"1"), ("empty", None))) for record in rows]
    async with running(manager([directory], segment_bytes=3000, index_interval_bytes=400)) as logs:
        log = logs.create("t", 0, None)
        sequences = {7: 0, 8: 0}
        for turn in range(15):
            stamp = T0 + turn if turn % 4 == 3 else None
            log.append(
                build_batch_of(headed, codec=turn % 5, append_time=stamp),
                leader_epoch=turn // 7,
                is_client=True,
            )
            producer = 7 + turn % 2
            numbers = {"producer_id": producer, "producer_epoch": 0, "is_transactional": True}
            sent = batch(3, time=T0 + turn, base_sequence=sequences[producer], **numbers)
            log.append(sent, leader_epoch=turn // 7, is_client=True)
            sequences[producer] += 3
            if turn % 5 == 4:
                for producer_id, how in ((7, Marker.ABORT), (8, Marker.COMMIT)):
                    log.append(marker_of(producer_id, how), leader_epoch=turn // 7, is_client=False)


def test_kafka_finds_every_codec_and_transactions_sound(tmp_path: Path) -> None:
    write_everything(tmp_path)
    text = dumped(tmp_path / "t-0", "--print-data-log")
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        assert f"compresscodec: {codec} " in text
    for complaint in COMPLAINTS:
        assert complaint not in text
    assert text.count("endTxnMarker: ABORT") == text.count("endTxnMarker: COMMIT") == 3
    assert text.count("version: 0 producerId: 7") == 3
    assert "headerKeys: [h,empty]" in text
    assert "LogAppendTime" in text


def test_what_we_print_of_it_is_what_kafka_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_everything(tmp_path)
    text = dumped(tmp_path / "t-0", "--print-data-log")
    assert main(["log", "dump", "--print-data-log", *map(str, files_of(tmp_path / "t-0"))]) == 0
    assert capsys.readouterr().out == text


def files_of(directory: Path) -> list[Path]:
    files = (path for path in directory.iterdir() if path.suffix != ".deleted")
    return sorted(file for file in files if file.name[0] == "0")


def dumped(directory: Path, *arguments: str, expected: tuple[str, ...] = ()) -> str:
    """What Kafka's tool prints; complaints that begin as ``expected`` are none."""
    files = files_of(directory)
    command = [
        str(find_java()),
        "-Xmx128m",
        "-XX:+UseSerialGC",
        "-cp",
        class_path(apache_kafka_jars()),
        TOOL,
    ]
    command += ["--files", ",".join(map(str, files)), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not complaints(done.stderr, *expected)
    return done.stdout


def test_kafka_finds_logs_and_indexes_sound_and_in_agreement(tmp_path: Path) -> None:
    write_log(tmp_path)
    text = dumped(tmp_path / "t-0", "--deep-iteration")
    assert text.count("baseOffset:") == 100
    assert text.count("isvalid: true") == 100
    for complaint in COMPLAINTS:
        assert complaint not in text
    assert "producerId: 7 producerEpoch: 0 coordinatorEpoch: -1" in text
    assert "lastSequence: 299 lastOffset: 299 offsetDelta: 2" in text


def test_kafkas_sanity_check_passes_every_index(tmp_path: Path) -> None:
    write_log(tmp_path)
    text = dumped(tmp_path / "t-0", "--index-sanity-check")
    assert text.count("passed sanity check") == len(list(tmp_path.glob("t-0/*index")))
