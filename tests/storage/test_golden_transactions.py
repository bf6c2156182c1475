"""Logs with transactions in every state, as Apache Kafka 3.9.1 left them, opened as our own.

Source: tests/golden/txn-data.json and .tar.gz; docs/spec/transactions.md §5 (T5.10).
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.storage.cooperative import at_once
from barnabas.broker.storage.log.log import Log
from barnabas.broker.storage.log_manager import LogManager
from barnabas.broker.storage.partition_directory import parse_directory_name
from barnabas.broker.storage.producers.producer_replay import replay_producers
from barnabas.broker.storage.producers.producer_snapshots import ProducerSnapshots, format_snapshot
from barnabas.protocol.records.batch import is_control, iterate, producer_id, records
from barnabas.protocol.records.batch import is_transactional as is_in_transaction
from tests.records.vectors import GOLDEN
from tests.storage.log_harness import LogHarness, manager
from tests.storage.simulated import in_simulated_time

FILE: dict[str, Any] = json.loads((GOLDEN / "txn-data.json").read_text())
LOGS = {name: log for name, log in FILE["logs"].items() if "last_stable_offset" in log}
READ = tuple(FILE["readers"]["read_committed"])
Row = tuple[int, str, str]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with tarfile.open(GOLDEN / "txn-data.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "data"


def log_of(logs: LogManager, name: str) -> Log:
    key = parse_directory_name(name)
    assert key is not None
    log = logs.get(*key)
    assert log is not None
    return log


def read(log: Log, *, is_committed: bool, bytes_max: int) -> list[Row]:
    """Offset, key and value of each record that a client of this isolation level is shown.

    Clients of Kafka drop what is aborted by the list of the fetch, as it is done here.
    """
    end = log.last_stable_offset(log.end_offset) if is_committed else log.end_offset
    found: list[Row] = []
    offset = log.start_offset
    while data := log.read(offset, bytes_max=bytes_max, end=end, at_least_one=True):
        listed = log.aborted_in(offset, len(data)) if is_committed else []
        waiting = sorted((one.first_offset, one.producer_id) for one in listed)
        aborting: set[int] = set()
        for position, _ in iterate(data):
            entry = list(records(data, position))
            producer = producer_id(data, position)
            while waiting and waiting[0][0] <= entry[-1].offset:
                aborting.add(waiting.pop(0)[1])
            if is_control(data, position):
                aborting.discard(producer)
            elif not (producer in aborting and is_in_transaction(data, position)):
                found += [
                    (one.offset, (one.key or b"").decode(), (one.value or b"").decode())
                    for one in entry
                ]
            offset = entry[-1].offset + 1
    return found


def stored(data: Path, name: str, file: str) -> bytes:
    """What Kafka wrote into one file."""
    return (data / name / file).read_bytes()


def expected(isolation: str, name: str) -> list[Row]:
    return [tuple(row) for row in FILE["readers"][isolation][name]]


def check(log: Log, name: str) -> None:
    """Everything that the manifest says of a partition that readers are shown."""
    for bytes_max in (1, 200, 1 << 20):
        for isolation in ("read_committed", "read_uncommitted"):
            is_committed = isolation == "read_committed"
            shown = read(log, is_committed=is_committed, bytes_max=bytes_max)
            assert shown == expected(isolation, name), (name, isolation, bytes_max)


@pytest.mark.parametrize("is_clean", [True, False])
def test_readers_of_both_levels_are_shown_what_kafka_showed_them(
    data: Path, is_clean: bool
) -> None:
    """T5.10: last stable offsets, aborted lists and both readers; again after a restart."""
    if not is_clean:
        (data / ".kafka_cleanshutdown").unlink()
        (data / "recovery-point-offset-checkpoint").unlink()
        for path in [*data.glob("*/*.txnindex"), *data.glob("*/*.snapshot")]:
            path.unlink()
    for _ in range(2):
        check_directory(data)


@in_simulated_time
async def check_directory(data: Path) -> None:
    logs = manager([data])
    await logs.load()
    for name, one in LOGS.items():
        log = log_of(logs, name)
        bounds = (log.start_offset, log.last_stable_offset(log.end_offset), log.end_offset)
        assert bounds == (one["log_start"], one["last_stable_offset"], one["log_end"]), name
        aborted = [
            (entry.producer_id, entry.first_offset, entry.last_offset, entry.last_stable_offset)
            for entry in log.aborted_in(log.start_offset, log.size)
        ]
        keys = ("producerId", "firstOffset", "lastOffset", "lastStableOffset")
        assert aborted == [tuple(row[key] for key in keys) for row in one.get("aborted", ())]
    for name in READ:
        latest = FILE["latest_offsets"]
        log = log_of(logs, name)
        assert log.last_stable_offset(log.end_offset) == latest["READ_COMMITTED"][name]
        assert log.end_offset == latest["READ_UNCOMMITTED"][name]
        check(log, name)
    await logs.close()


def test_indexes_made_anew_are_those_kafka_wrote(data: Path) -> None:
    """T5.10: the transaction indexes, byte by byte."""
    paths = sorted(data.glob("*/*.txnindex"))
    written = [path.read_bytes() for path in paths]
    assert len(written) == 3
    (data / ".kafka_cleanshutdown").unlink()
    (data / "recovery-point-offset-checkpoint").unlink()
    for path in [*paths, *data.glob("*/*.snapshot")]:
        path.unlink()
    check_directory(data)
    assert [path.read_bytes() for path in paths] == written


@in_simulated_time
async def test_producers_replayed_from_the_log_are_those_kafka_wrote_down(data: Path) -> None:
    """T5.10: epochs, sequences, coordinator epochs and open transactions of each producer."""
    logs = manager([data])
    await logs.load()
    for name, one in LOGS.items():
        log = log_of(logs, name)
        nothing = ProducerSnapshots(log._files, log.directory)
        segments = log.segments.view.segments
        replayed = at_once(replay_producers(segments, nothing, 0, log.end_offset))
        in_order = dict(replayed)
        wanted = {row["producerId"]: row for row in one[f"snapshot {log.end_offset}"]}
        assert in_order.keys() == wanted.keys(), name
        ours = format_snapshot([(key, in_order[key]) for key in wanted])
        assert ours == stored(data, name, f"{log.end_offset:020}.snapshot"), name
    await logs.close()


@in_simulated_time
async def test_a_follower_has_the_same_state_without_a_replay(data: Path, tmp_path: Path) -> None:
    """T5.10, on a follower: batch by batch as they are fetched."""
    for name in READ:
        batches = stored(data, name, f"{0:020}.log")
        replica = LogHarness(tmp_path / f"replica-{name}")
        for position, size in iterate(batches):
            replica.log.append_as_follower(batches[position : position + size])
        one = LOGS[name]
        assert replica.log.last_stable_offset(one["log_end"]) == one["last_stable_offset"]
        check(replica.log, name)
        await replica.log.close()  # which writes the index
        index = replica.segment_file(0, ".txnindex").read_bytes()
        assert index == stored(data, name, f"{0:020}.txnindex")
