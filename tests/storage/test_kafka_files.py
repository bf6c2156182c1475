"""The files beside the batches: for the same log we write what Kafka wrote, byte for byte.

Kafka's directory was written with index.interval.bytes=512. Where its bytes depend on the order of
a hash map (checkpoints), the lines are compared. Source: tests/golden/kafka-data.tar.gz.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from barnabas.broker.settings.node_config import StorageSettings
from barnabas.broker.storage.files import DiskFiles
from barnabas.broker.storage.log_manager import LogManager
from barnabas.protocol.log_files.aborted_transactions import format_aborted, parse_aborted
from barnabas.protocol.log_files.checkpoints import (
    format_lines,
    format_offsets,
    parse_epochs,
    parse_offsets,
)
from barnabas.protocol.log_files.index_entries import offset_entries, time_entries
from barnabas.protocol.log_files.producer_snapshot import format_producers, parse_producers
from barnabas.protocol.records import batch
from barnabas.protocol.records.walk import walk
from tests.console.log.kafka_data import extract
from tests.records.test_kafka_data import TOPICS, row
from tests.records.vectors import GOLDEN
from tests.storage.log_harness import Clock, config
from tests.storage.simulated import in_simulated_time

INTERVAL = 512
REBUILT = (".index", ".timeindex", ".txnindex", ".snapshot")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return extract(tmp_path)


def contents(data: Path, *suffixes: str) -> dict[str, bytes]:
    """The files of all partitions with these endings."""
    return {
        str(path.relative_to(data)): path.read_bytes()
        for path in sorted(data.glob("*/*"))
        if path.name.endswith(suffixes)
    }


def forget(data: Path, *suffixes: str) -> dict[str, bytes]:
    """Remove these files, and what says that the stop was clean; what was in them."""
    written = contents(data, *suffixes)
    for name in written:
        (data / name).unlink()
    (data / ".kafka_cleanshutdown").unlink()
    (data / "recovery-point-offset-checkpoint").unlink()
    return written


async def load_and_close(data: Path) -> None:
    """As a node does that knows the topics' settings."""
    settings = {name.rpartition("-")[0]: topic["config"] for name, topic in TOPICS.items()}
    logs = LogManager(
        DiskFiles(),
        [data],
        config({"index.interval.bytes": INTERVAL}),
        lambda topic: settings.get(topic, {}),
        Clock(),
        intervals=StorageSettings(),
        random=Random(1),
    )
    await logs.load()
    await logs.close()


@in_simulated_time
async def test_indexes_made_anew_are_those_of_kafka(data: Path) -> None:
    written = forget(data, ".index", ".timeindex")
    await load_and_close(data)
    assert contents(data, ".index", ".timeindex") == written


@in_simulated_time
async def test_transaction_indexes_made_anew_are_those_of_kafka(data: Path) -> None:
    written = forget(data, ".txnindex", ".index", ".snapshot")
    await load_and_close(data)
    transactions = {name: part for name, part in written.items() if name.endswith(".txnindex")}
    assert transactions
    assert contents(data, ".txnindex") == transactions


@in_simulated_time
async def test_a_clean_start_and_stop_changes_no_file_of_kafkas_logs(data: Path) -> None:
    suffixes = (".log", *REBUILT, "leader-epoch-checkpoint")
    written = contents(data, *suffixes)
    await load_and_close(data)
    assert contents(data, *suffixes) == written
    assert (data / ".kafka_cleanshutdown").exists()


@in_simulated_time
async def test_checkpoints_of_a_stop_have_the_lines_of_kafkas(data: Path) -> None:
    def lines() -> dict[str, list[str]]:
        return {
            path.name: sorted(path.read_text().split("\n"))
            for path in data.glob("*-offset-checkpoint")
        }

    written = lines()
    await load_and_close(data)
    assert lines() == written


@in_simulated_time
async def test_producers_found_in_the_log_make_the_newest_snapshot_of_kafka(data: Path) -> None:
    written = forget(data, ".snapshot")
    newest = {name.split("/")[0]: name for name in sorted(written)}
    await load_and_close(data)
    found = contents(data, ".snapshot")
    for name in newest.values():
        assert found[name] == written[name], name


def test_every_small_file_is_read_and_written_byte_for_byte(data: Path) -> None:
    for path in sorted(data.glob("*/*.snapshot")):
        assert format_producers(parse_producers(path.read_bytes())) == path.read_bytes()
    for path in sorted(data.glob("*/*.txnindex")):
        assert format_aborted(parse_aborted(path.read_bytes())) == path.read_bytes()
    for path in sorted(data.glob("*/leader-epoch-checkpoint")):
        assert format_lines(parse_epochs(path.read_text())) == path.read_bytes()
    for path in sorted(data.glob("*-offset-checkpoint")):
        assert format_offsets(parse_offsets(path.read_text())) == path.read_bytes()


def test_every_index_entry_of_kafka_is_at_a_batch_of_its_log(data: Path) -> None:
    for path in sorted(data.glob("*/*.log")):
        base = int(path.stem)
        entries = {e.position: e for e in walk(path.read_bytes(), base_offset=base)}
        newest = {e.last_offset: e.max_timestamp for e in entries.values()}
        stored = path.with_suffix(".index").read_bytes()
        for offset, position in offset_entries(stored, base):
            assert entries[position].last_offset == offset
        for timestamp, offset in time_entries(path.with_suffix(".timeindex").read_bytes(), base):
            assert newest[offset] == timestamp


@pytest.mark.parametrize("name", [name for name in sorted(TOPICS) if "txn" in name])
def test_committed_records_are_those_kafkas_clients_saw(name: str, data: Path) -> None:
    aborted = [
        transaction
        for path in sorted((data / name).glob("*.txnindex"))
        for transaction in parse_aborted(path.read_bytes())
    ]
    found = []
    for path in sorted((data / name).glob("*.log")):
        for entry, record in walk(path.read_bytes(), base_offset=int(path.stem)).records():
            is_aborted = batch.is_transactional(entry.data) and any(
                transaction.producer_id == batch.producer_id(entry.data)
                and transaction.first_offset <= record.offset <= transaction.last_offset
                for transaction in aborted
            )
            if not batch.is_control(entry.data) and not is_aborted:
                found.append(row(record, entry))
    topics = json.loads((GOLDEN / "kafka-data.json").read_text())["topics"]
    assert found == topics[name]["records_read_committed"]
