"""A data directory that Apache Kafka 3.9 wrote, opened as our own.

Source: tests/golden/kafka-data.json and .tar.gz.
"""

from __future__ import annotations

import base64
import json
import tarfile
from pathlib import Path

import pytest

from barnabas.broker.storage.cooperative import at_once
from barnabas.broker.storage.log.log import Log
from barnabas.broker.storage.log_manager import LogManager
from barnabas.broker.storage.partition_directory import parse_directory_name
from barnabas.broker.storage.producers.producer_replay import replay_producers
from barnabas.broker.storage.producers.producer_snapshots import (
    ProducerSnapshots,
    format_snapshot,
    parse_snapshot,
)
from barnabas.broker.storage.producers.producer_state import ProducerStateEntry
from barnabas.protocol.records.batch import is_control, iterate, records
from tests.records.vectors import GOLDEN
from tests.storage.log_harness import batch, manager
from tests.storage.simulated import in_simulated_time

TOPICS = json.loads((GOLDEN / "kafka-data.json").read_text())["topics"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with tarfile.open(GOLDEN / "kafka-data.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "data"


def snapshots(data: Path) -> dict[str, dict[int, ProducerStateEntry]]:
    """What the newest snapshot of each partition says."""
    paths = sorted(data.glob("*/*.snapshot"))
    return {path.parent.name: parse_snapshot(path.read_bytes()) for path in paths}


def log_of(logs: LogManager, name: str) -> Log:
    key = parse_directory_name(name)
    assert key is not None
    log = logs.get(*key)
    assert log is not None
    return log


def values(log: Log) -> list[tuple[int, str | None]]:
    """Offset and value of every data record, in the form of the file."""
    found: list[tuple[int, str | None]] = []
    offset = log.start_offset
    while data := log.read(offset, bytes_max=4000, end=log.end_offset, at_least_one=True):
        for position, _ in iterate(data):
            for record in records(data, position):
                if not is_control(data, position):
                    value = record.value
                    text = None if value is None else base64.b64encode(value).decode()
                    found.append((record.offset, text))
                offset = record.offset + 1
    return found


@pytest.mark.parametrize("is_clean", [True, False])
def test_every_partition_of_a_real_kafka_reads_as_its_clients_read_it(
    data: Path, is_clean: bool
) -> None:
    check_partitions(data, is_clean)


@in_simulated_time
async def check_partitions(data: Path, is_clean: bool) -> None:
    if not is_clean:
        (data / ".kafka_cleanshutdown").unlink()
    logs = manager([data])
    await logs.load()
    assert len(logs.logs()) == 26
    for name, topic in TOPICS.items():
        log = log_of(logs, name)
        assert log.start_offset == topic["log_start"], name
        expected = [(row[0], row[4]) for row in topic["records"]]
        assert values(log) == expected, name
        if is_clean:
            assert log.end_offset == topic["high_watermark"], name
            assert logs.high_watermark(log.topic, log.partition) == topic["high_watermark"]
    await logs.close()


@in_simulated_time
async def test_rebuilt_indexes_of_a_real_kafka_find_the_same_batches(data: Path) -> None:
    logs = manager([data])
    await logs.load()
    for log in logs.logs():
        ends = range(log.start_offset, log.end_offset)
        for segment in log.segments.view.segments:
            found = [segment.find(offset) for offset in ends]
            segment.rebuild_indexes()
            assert [segment.find(offset) for offset in ends] == found
    await logs.close()


@in_simulated_time
async def test_producers_replayed_from_the_log_are_those_kafka_wrote_down(data: Path) -> None:
    logs = manager([data])
    written = snapshots(data)
    await logs.load()
    for name in ("m2-txn-0", "m2-txn-1", "m2-idem-0"):
        log = log_of(logs, name)
        nothing = ProducerSnapshots(log._files, log.directory)
        segments = log.segments.view.segments
        replayed = at_once(replay_producers(segments, nothing, 0, log.end_offset))
        assert format_snapshot(sorted(replayed)) == format_snapshot(sorted(written[name].items()))
    await logs.close()


@in_simulated_time
async def test_appends_go_on_where_kafka_stopped(data: Path) -> None:
    logs = manager([data])
    await logs.load()
    log = log_of(logs, "m2-none-0")
    assert log.append(batch(), leader_epoch=1, is_client=True).base_offset == 240
    assert log.epochs.pairs == [(0, 0), (1, 240)]
    await logs.close()
    again = manager([data])
    await again.load()
    assert again.directories[0].was_clean
    assert len(values(log_of(again, "m2-none-0"))) == 241
    await again.close()
