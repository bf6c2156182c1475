"""Everything that a client is told by a node: records, committed ones, offsets, times, epochs.

Records are read as our own client reads them: checksums looked at, aborted transactions left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from barnabas.client.connection.connection import Connection
from barnabas.client.consumer.fetched_batches import find_batches
from barnabas.client.topology import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import fetch, list_offsets, offset_fetch, offset_for_leader_epoch
from barnabas.protocol.records.corrupt_records import CorruptRecords
from tests.proof.data_directory import GROUPS, PASSING, PLAIN, TOPICS

EARLIEST, LATEST = -2, -1
WHOLE_BYTES: Final = 1 << 20
PATIENCE_S: Final = 20.0
"""So long a node may say that it is not ready yet."""
REFUSALS: Final = (ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR)
EPOCHS: Final = range(6)
EVERYTHING, COMMITTED = 0, 1
"""Isolation levels."""

Row = tuple[bytes | None, bytes | None]


@dataclass
class Part:
    """What was read of a partition at one isolation level."""

    start: int = -1
    """-1: the bounds were refused."""
    end: int = -1
    rows: dict[int, Row] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)
    silent: set[int] = field(default_factory=set)
    """Offsets at which nothing came and nothing was said."""


@dataclass
class Reading:
    """All answers."""

    parts: dict[tuple[str, int], Part] = field(default_factory=dict)
    """By topic and isolation level."""
    offsets: dict[str, int | None] = field(default_factory=dict)
    """By group; None where it was refused to the end."""
    times: dict[tuple[str, int], int] = field(default_factory=dict)
    """Offset by topic and time; what was refused is not there."""
    epochs: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    """Epoch and its end by topic and the epoch asked for."""


async def read(connection: Connection, times: Sequence[int]) -> Reading:
    """Ask a node that began just now for everything."""
    found = Reading()
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    for topic in TOPICS:
        for isolation in (EVERYTHING, COMMITTED):
            found.parts[topic, isolation] = await _read_part(connection, topic, isolation, deadline)
        for time in times:
            code, offset = await _bound(connection, topic, time, EVERYTHING)
            if code == ErrorCode.NONE:
                found.times[topic, time] = offset
        found.epochs |= await _read_epochs(connection, topic)
    for group in GROUPS:
        found.offsets[group] = await _read_offset(connection, group, deadline)
    return found


async def _read_part(connection: Connection, topic: str, isolation: int, deadline: float) -> Part:
    part, loop = Part(), asyncio.get_running_loop()
    while True:
        first, part.start = await _bound(connection, topic, EARLIEST, isolation)
        last, part.end = await _bound(connection, topic, LATEST, isolation)
        if first not in PASSING or last not in PASSING or not first | last:
            break
        if loop.time() > deadline:
            break
        await asyncio.sleep(0.25)
    if first or last:
        part.start = part.end = -1
        return part
    offset = part.start
    while offset < part.end:
        offset = await _read_some(connection, topic, part, offset, isolation)
    return part


async def _read_some(
    connection: Connection, topic: str, part: Part, offset: int, isolation: int
) -> int:
    """Take in what is at ``offset``; returns where to go on."""
    for bytes_max in (WHOLE_BYTES, 1):
        result = await _fetched(connection, topic, offset, isolation, bytes_max)
        if result.error_code:
            assert result.error_code in REFUSALS, f"{topic} {offset}: code {result.error_code}"
            part.refused.add(offset)
            return offset + 1
        data = bytes(result.records or b"")
        aborted = result.aborted_transactions or () if isolation == COMMITTED else None
        try:
            found = find_batches(data, offset, aborted=aborted)
            rows = [] if found.source is None else found.source.records(TopicPartition(topic, 0))
        except CorruptRecords:
            continue  # then what comes before it alone, and then itself
        if found.next_offset <= offset:
            part.silent.add(offset)
            return offset + 1
        for row in rows:
            assert row.offset not in part.rows, f"{topic} {row.offset} came twice"
            part.rows[row.offset] = (row.key, row.value)
        return found.next_offset
    part.refused.add(offset)
    return offset + 1


async def _fetched(
    connection: Connection, topic: str, offset: int, isolation: int, bytes_max: int
) -> Any:
    part = fetch.Partition(partition=0, fetch_offset=offset, partition_max_bytes=bytes_max)
    request = fetch.FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=bytes_max,
        isolation_level=isolation,
        session_id=0,
        forgotten_topics_data=[],
        topics=[fetch.Topic(topic=topic, partitions=[part])],
        rack_id="",
    )
    answer = await connection.request(request, 11)
    return answer.responses[0].partitions[0]


async def _bound(
    connection: Connection, topic: str, time: int, isolation: int
) -> tuple[ErrorCode, int]:
    part = list_offsets.Partition(partition_index=0, timestamp=time)
    request = list_offsets.ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[list_offsets.Topic(name=topic, partitions=[part])],
    )
    answer = await connection.request(request, 5)
    found = answer.topics[0].partitions[0]
    return ErrorCode(found.error_code), found.offset  # type: ignore[call-arg]


async def _read_epochs(
    connection: Connection, topic: str
) -> dict[tuple[str, int], tuple[int, int]]:
    found = {}
    for epoch in EPOCHS:
        part = offset_for_leader_epoch.Partition(partition=0, leader_epoch=epoch)
        request = offset_for_leader_epoch.OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=[offset_for_leader_epoch.Topic(topic=topic, partitions=[part])],
        )
        answer = await connection.request(request, 3)
        result = answer.topics[0].partitions[0]
        if not result.error_code:
            found[topic, epoch] = (result.leader_epoch, result.end_offset)
    return found


async def _read_offset(connection: Connection, group: str, deadline: float) -> int | None:
    while True:
        offset = await offset_of(connection, group)
        if offset is not None or asyncio.get_running_loop().time() > deadline:
            return offset
        await asyncio.sleep(0.5)


async def offset_of(connection: Connection, group: str) -> int | None:
    """The committed offset of the plain topic; None while that is not said."""
    topic = offset_fetch.Topic(name=PLAIN, partition_indexes=[0])
    request = offset_fetch.OffsetFetchRequest(group_id=group, topics=[topic])
    answer = await connection.request(request, 6)
    if answer.error_code:
        assert answer.error_code in PASSING, f"{group}: code {answer.error_code}"
        return None
    found = answer.topics[0].partitions[0]
    assert not found.error_code, f"{group}: code {found.error_code}"
    return int(found.committed_offset)


def differences(told: Reading, wanted: Reading, name: str) -> list[str]:
    """What a client would have got wrong; ``name`` is that of the file that was damaged.

    docs/log.md says what may be refused, and what is believed as Kafka believes it.
    """
    found = []
    for key, part in told.parts.items():
        found += _wrong_records(key, part, wanted.parts[key], name)
    for group, offset in told.offsets.items():
        if offset is None and not name.endswith(".log"):
            found.append(f"{group}: refused")
        elif offset not in (None, wanted.offsets[group]):
            found.append(f"{group}: {offset} instead of {wanted.offsets[group]}")
    if name not in ("leader-epoch-checkpoint", "log-start-offset-checkpoint"):
        found += [
            f"epoch {key}: {pair} instead of {wanted.epochs.get(key)}"
            for key, pair in told.epochs.items()
            if pair != wanted.epochs.get(key) and not name.endswith(".log")
        ]
    if not name.endswith(".log") and name != "log-start-offset-checkpoint":
        found += [
            f"time {key}: {told.times.get(key)} instead of {offset}"
            for key, offset in wanted.times.items()
            if told.times.get(key) != offset
        ]
    return found


def _wrong_records(key: tuple[str, int], part: Part, wanted: Part, name: str) -> list[str]:
    found = [
        f"{key} {offset}: {row} instead of {wanted.rows.get(offset)}"
        for offset, row in part.rows.items()
        if row != wanted.rows.get(offset) and not _was_deleted(offset, wanted, name)
    ]
    found += [f"{key} {offset}: silence" for offset in sorted(part.silent)]
    if part.start < 0:
        return [*found, f"{key}: no bounds"]
    missing = wanted.rows.keys() - part.rows.keys()
    if name == "log-start-offset-checkpoint":
        missing = {offset for offset in missing if offset >= part.start}
    found += [f"{key} {offset}: not served" for offset in sorted(missing - part.refused)]
    if missing & part.refused and not name.endswith(".log"):
        found.append(f"{key} {sorted(missing & part.refused)}: refused")
    return found


def _was_deleted(offset: int, wanted: Part, name: str) -> bool:
    """It comes back with the log start that was forgotten, as in Kafka."""
    return name == "log-start-offset-checkpoint" and offset < wanted.start
