"""Kafka's own DumpLogSegments reads the files that a log leaves."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from barnabas.console.java import find_java
from benchmarks.apache_kafka import CACHE, class_path
from tests.harness.deployments import kafka_libs
from tests.storage.rig import T0, batch, manager, running
from tests.storage.simulated import in_simulated_time

pytestmark = pytest.mark.kafka

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


def dumped(directory: Path, *arguments: str) -> str:
    jars = kafka_libs() or CACHE / "libs"
    if not list(Path(jars).glob("kafka_2.13-*.jar")):
        pytest.skip("no jars of Apache Kafka: benchmarks/commit.py --against kafka fetches them")
    files = sorted(each for each in directory.iterdir() if each.name[0] == "0")
    command = [str(find_java()), "-Xmx128m", "-XX:+UseSerialGC", "-cp", class_path(jars), TOOL]
    command += ["--files", ",".join(map(str, files)), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_kafka_finds_logs_and_indexes_sound_and_in_agreement(tmp_path: Path) -> None:
    write_log(tmp_path)
    text = dumped(tmp_path / "t-0", "--deep-iteration")
    assert text.count("baseOffset:") == 100
    assert text.count("isvalid: true") == 100
    for complaint in ("Mismatches", "not found in log file", "isvalid: false", "Out of order"):
        assert complaint not in text
    assert "producerId: 7 producerEpoch: 0 coordinatorEpoch: -1" in text
    assert "lastSequence: 299 lastOffset: 299 offsetDelta: 2" in text


def test_kafkas_sanity_check_passes_every_index(tmp_path: Path) -> None:
    write_log(tmp_path)
    text = dumped(tmp_path / "t-0", "--index-sanity-check")
    assert text.count("passed sanity check") == len(list(tmp_path.glob("t-0/*index")))
