"""Transactions in a data directory that Apache Kafka wrote: tests/golden/kafka-data.tar.gz."""

from __future__ import annotations

import base64
import json
import tarfile
from pathlib import Path

import pytest

from barnabas.broker.storage.log.log import Log
from barnabas.protocol.records.batch import is_control, iterate, producer_id, records
from barnabas.protocol.records.batch import is_transactional as is_in_transaction
from tests.records.vectors import GOLDEN
from tests.storage.log_harness import manager
from tests.storage.simulated import in_simulated_time

TOPICS = json.loads((GOLDEN / "kafka-data.json").read_text())["topics"]
NAMES = ("m2-txn-0", "m2-txn-1")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with tarfile.open(GOLDEN / "kafka-data.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "data"


def committed(log: Log, bytes_max: int) -> list[tuple[int, str]]:
    """Offset and value of each record, as a client of committed records sorts them out."""
    found: list[tuple[int, str]] = []
    offset, end = log.start_offset, log.last_stable_offset(log.end_offset)
    while data := log.read(offset, bytes_max=bytes_max, end=end, at_least_one=True):
        waiting = {
            (transaction.first_offset, transaction.producer_id)
            for transaction in log.aborted_in(offset, len(data))
        }
        aborting: set[int] = set()
        for position, _ in iterate(data):
            first = next(iter(records(data, position))).offset
            aborting |= {producer for start, producer in waiting if start == first}
            producer = producer_id(data, position)
            if is_control(data, position):
                aborting.discard(producer)
            elif not (is_in_transaction(data, position) and producer in aborting):
                found += (
                    (record.offset, base64.b64encode(record.value or b"").decode())
                    for record in records(data, position)
                )
            offset = max(record.offset for record in records(data, position)) + 1
    return found


@pytest.mark.parametrize("is_clean", [True, False])
def test_committed_records_of_a_real_kafka_are_those_its_clients_read(
    data: Path, is_clean: bool
) -> None:
    if not is_clean:
        (data / ".kafka_cleanshutdown").unlink()
        (data / "recovery-point-offset-checkpoint").unlink()
    read_committed(data)


@in_simulated_time
async def read_committed(data: Path) -> None:
    logs = manager([data])
    await logs.load()
    for name in NAMES:
        topic, partition = name.rsplit("-", 1)
        log = logs.get(topic, int(partition))
        assert log is not None
        expected = [(row[0], row[4]) for row in TOPICS[name]["records_read_committed"]]
        for bytes_max in (1, 1 << 20):
            assert committed(log, bytes_max) == expected, name
    await logs.close()


@pytest.mark.parametrize("is_lost", [True, False])
def test_the_transaction_indexes_are_those_kafka_wrote(data: Path, is_lost: bool) -> None:
    paths = sorted(data.glob("*/*.txnindex"))
    written = [path.read_bytes() for path in paths]
    assert len(written) == 2
    (data / ".kafka_cleanshutdown").unlink()
    (data / "recovery-point-offset-checkpoint").unlink()
    if is_lost:
        for path in [*paths, *data.glob("*/*.snapshot")]:
            path.unlink()
    open_and_close(data)
    assert sorted(data.glob("*/*.txnindex")) == paths
    assert [path.read_bytes() for path in paths] == written


@in_simulated_time
async def open_and_close(data: Path) -> None:
    logs = manager([data])
    await logs.load()
    await logs.close()
