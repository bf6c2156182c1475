"""Segments that Apache Kafka 3.9 wrote, walked and read as its own clients read them.

Source: tests/golden/kafka-data.json and .tar.gz.
"""

from __future__ import annotations

import base64
import json
import tarfile
from functools import cache
from pathlib import PurePosixPath
from typing import Any

import pytest

from barnabas.protocol.records import batch
from barnabas.protocol.records.control import parse_marker
from barnabas.protocol.records.convert import down_convert
from barnabas.protocol.records.produce_rules import ProduceRules
from barnabas.protocol.records.record import Record
from barnabas.protocol.records.validate import prepare
from barnabas.protocol.records.walk import Entry, Stop, walk
from tests.records.vectors import GOLDEN

TOPICS: dict[str, Any] = json.loads((GOLDEN / "kafka-data.json").read_text())["topics"]
TIMESTAMP_TYPES = {-1: None, 0: "create", 1: "append"}


@cache
def segments() -> dict[str, dict[int, bytes]]:
    """The log files by directory and base offset."""
    found: dict[str, dict[int, bytes]] = {}
    with tarfile.open(GOLDEN / "kafka-data.tar.gz") as archive:
        for member in archive.getmembers():
            path = PurePosixPath(member.name)
            file = archive.extractfile(member)
            if path.suffix == ".log" and file:
                found.setdefault(path.parent.name, {})[int(path.stem)] = file.read()
    return found


def entries_of(directory: str) -> list[Entry]:
    """Everything in a partition's segments, none of which may end early."""
    found = []
    for base_offset, data in sorted(segments()[directory].items()):
        steps = walk(data, base_offset=base_offset)
        found += list(steps)
        assert (steps.stop, steps.valid_bytes) == (Stop.END, len(data))
    return found


def row(record: Record, entry: Entry) -> list[Any]:
    kind = TIMESTAMP_TYPES[batch.timestamp_type(entry.data)]
    return [
        record.offset,
        kind,
        record.timestamp if kind else None,
        text(record.key),
        text(record.value),
        [[key, text(value)] for key, value in record.headers],
    ]


def text(field: bytes | None) -> str | None:
    return None if field is None else base64.b64encode(field).decode()


@pytest.mark.parametrize("directory", sorted(segments()))
def test_every_segment_of_kafka_is_sound_to_its_end(directory: str) -> None:
    for entry in entries_of(directory):
        assert list(batch.records(entry.data)) or not batch.record_count(entry.data)


@pytest.mark.parametrize("name", sorted(TOPICS))
def test_records_read_as_kafkas_own_clients_read_them(name: str) -> None:
    topic = TOPICS[name]
    found = [
        row(record, entry)
        for entry in entries_of(name)
        if not batch.is_control(entry.data)
        for record in batch.records(entry.data)
    ]
    assert [line for line in found if line[0] >= topic["log_start"]] == topic["records"]


@pytest.mark.parametrize("name", [name for name in sorted(TOPICS) if name.startswith("m2-txn")])
def test_the_markers_of_transactions_are_read(name: str) -> None:
    markers = [
        parse_marker(record.key)
        for entry in entries_of(name)
        if batch.is_control(entry.data)
        for record in batch.records(entry.data)
    ]
    assert markers
    assert None not in markers


@pytest.mark.parametrize("name", [name for name in sorted(TOPICS) if "compact" not in name])
def test_what_kafka_stored_could_be_produced_here(name: str) -> None:
    for entry in entries_of(name):
        if entry.magic < 2 or batch.is_control(entry.data):
            continue
        sent = bytearray(entry.data)
        batch.assign(sent, 0, -1)
        is_stamped = batch.timestamp_type(sent) == 1
        if is_stamped:
            continue
        prepared = prepare(sent, produce_version=9, rules=ProduceRules(), now_ms=0)
        assert prepared
        assert prepared.batch == sent


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("name", [name for name in sorted(TOPICS) if "zstd" not in name])
def test_old_clients_would_get_the_same_records(name: str, magic: int) -> None:
    data = b"".join(entry.data for entry in entries_of(name))
    converted = down_convert(data, magic, 0)
    found = [
        [record.offset, text(record.key), text(record.value)]
        for position, _ in batch.iterate(converted)
        for record in batch.records(converted, position)
    ]
    wanted = [[line[0], line[3], line[4]] for line in TOPICS[name]["records"]]
    assert [line for line in found if line[0] >= TOPICS[name]["log_start"]] == wanted
