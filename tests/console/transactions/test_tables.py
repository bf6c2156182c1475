"""What ``barnabas transactions`` prints of the facts of a real Kafka, beside what its tool printed.

Source: docs/spec/transactions.md §6 (T6.1); tests/golden/txn-data.json.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from barnabas.client.admin.transaction_descriptions import (
    OpenTransaction,
    ProducerDescription,
    TransactionDescription,
    TransactionListing,
)
from barnabas.client.cluster import TopicPartition
from barnabas.console.command_line.output import print_table
from barnabas.console.transactions.tables import (
    DESCRIBE_COLUMNS,
    LIST_COLUMNS,
    OPEN_COLUMNS,
    PRODUCER_COLUMNS,
    description_cells,
    listing_cells,
    open_as_json,
    open_cells,
    producer_cells,
)
from tests.records.vectors import GOLDEN

FILE: dict[str, Any] = json.loads((GOLDEN / "txn-data.json").read_text())
TRANSACTIONS = FILE["transactions"]
NOBODY = ProducerDescription(
    producer_id=1008,
    producer_epoch=0,
    coordinator_epoch=-1,
    last_sequence=1,
    last_timestamp=1_000_000,
    start_offset=35,
)
OPEN = OpenTransaction(partition=TopicPartition("t", 3), start_offset=35, producer=NOBODY)


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line.strip()]


def printed(capsys: pytest.CaptureFixture[str], columns: Any, cells: Any) -> list[list[str]]:
    print_table(columns, cells)
    return rows(capsys.readouterr().out)


def test_the_ids_of_a_real_kafka_are_listed_as_its_tool_lists_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """T6.1: list."""
    cells = [
        listing_cells(
            TransactionListing(
                transactional_id=name,
                coordinator=1,
                producer_id=one["producer_id"],
                state=one["state"],
            )
        )
        for name, one in TRANSACTIONS.items()
    ]
    ours, theirs = printed(capsys, LIST_COLUMNS, cells), rows(FILE["tools"]["list"])
    assert ours[0] == theirs[0]
    assert sorted(ours) == sorted(theirs)


@pytest.mark.parametrize("name", ["ongoing", "committed"])
def test_a_transaction_of_a_real_kafka_is_described_as_by_its_tool(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """T6.1: describe; the tool's partitions stand in the order of a hash."""
    one, theirs = TRANSACTIONS[name], rows(FILE["tools"][f"describe {name}"])
    start_ms, duration_ms = int(theirs[1][6]), int(theirs[1][7])
    described = TransactionDescription(
        transactional_id=name,
        coordinator=1,
        producer_id=one["producer_id"],
        producer_epoch=one["producer_epoch"],
        state=one["state"],
        timeout_ms=one["timeout_ms"],
        start_ms=one["start_ms"],
        partitions=[
            TopicPartition(topic, partition)
            for topic, partitions in (one["partitions"] or {}).items()
            for partition in partitions
        ],
    )
    cells = description_cells(described, start_ms + duration_ms)
    ours = printed(capsys, DESCRIBE_COLUMNS, [cells])
    for table in (ours, theirs):
        table[1][8:] = sorted(",".join(table[1][8:]).split(","))
    assert ours == theirs


def test_an_id_that_never_had_a_transaction_has_no_times() -> None:
    described = TransactionDescription(
        transactional_id="empty",
        coordinator=1,
        producer_id=1003,
        producer_epoch=0,
        state="Empty",
        timeout_ms=60_000,
        start_ms=None,
        partitions=[],
    )
    assert description_cells(described, 5) == [1, "empty", 1003, 0, "Empty", 60_000, None, None, ""]


@pytest.mark.parametrize("partition", [0, 1])
def test_the_producers_of_a_real_kafka_are_described_as_by_its_tool(
    capsys: pytest.CaptureFixture[str], partition: int
) -> None:
    """T6.1: describe-producers."""
    log = FILE["logs"][f"txn-out-{partition}"]
    snapshot = log[f"snapshot {log['log_end']}"]
    cells = [
        producer_cells(
            ProducerDescription(
                producer_id=one["producerId"],
                producer_epoch=one["producerEpoch"],
                coordinator_epoch=one["coordinatorEpoch"],
                last_sequence=one.get("lastSequence", -1),
                last_timestamp=one["lastTimestamp"],
                start_offset=one["currentTxnFirstOffset"],
            )
        )
        for one in snapshot
    ]
    theirs = rows(FILE["tools"][f"describe-producers txn-out {partition}"])
    assert printed(capsys, PRODUCER_COLUMNS, cells) == theirs


def test_what_hangs_stands_under_the_heads_of_kafkas_tool(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """T6.1: find-hanging."""
    assert printed(capsys, OPEN_COLUMNS, []) == rows(FILE["tools"]["find-hanging txn-out"])


@pytest.mark.parametrize(("age_ms", "minutes"), [(0, 0), (59_999, 0), (60_000, 1), (119_999, 1)])
def test_minutes_are_whole_ones(age_ms: int, minutes: int) -> None:
    assert open_cells(OPEN, 1_000_000 + age_ms)[-1] == minutes


def test_a_record_of_the_future_has_no_age() -> None:
    assert open_cells(OPEN, 0)[-1] == 0
    assert open_as_json(OPEN, 0)["duration_ms"] == 0
