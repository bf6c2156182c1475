"""Reads records of a topic for a page: from its newest or oldest, within bounds, with a cursor.

A page shows the records that it found in the order of their times, without reordering those of one
partition; the cursor says for each partition where the next page goes on, so none is shown twice or
left out. Source: docs/spec/console.md §2.3 (records: 1 MiB a fetch, 10 s or 50,000 a request).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from barnabas.client.cluster import Cluster, TopicPartition
from barnabas.client.consumer.single_fetch import (
    codes_of,
    entries,
    fetch_request_of,
    partition_result_of,
)
from barnabas.client.errors import KafkaError, raise_for
from barnabas.protocol.records import batch
from barnabas.protocol.records.corrupt_records import CorruptRecords
from barnabas.protocol.records.record import Record

from .decoding import Decoded, decode_record
from .masking import Mask
from .matching import Matcher, ShownRecord

FETCH_BYTES: Final = 1 << 20
FIRST_BYTES: Final = 64 << 10
SECONDS_MOST: Final = 10.0
RECORDS_MOST: Final = 50_000
KEPT_MOST: Final = 20_000
"""Of so many records a page chooses those that it shows."""
LIST_CHARACTERS: Final = 4 << 10
WINDOW: Final = 500
"""So many offsets of a partition are looked at together on the way back from its end."""
_TURN: Final = 100
"""After so many records others have their turn."""
_MAGIC_WITH_CONTROL: Final = 2


DecodeRecord = Callable[[str, Record, str, str], tuple[Decoded, Decoded]]
"""Topic, record, and how the reader wants key and value to be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is looked for, and how it is to be shown."""

    topic: str
    matches: Matcher
    count: int
    key_as: str = ""
    value_as: str = ""
    mask: Mask | None = None
    decode: DecodeRecord = decode_record
    prepared: Callable[[Sequence[Record]], Awaitable[None]] | None = None
    """Has what decoding needs at hand: schemas, which are asked for in a registry."""

    async def prepare(self, records: Sequence[Record]) -> None:
        """To be awaited before records are shown."""
        if self.prepared is not None:
            await self.prepared(records)

    def shown(self, partition: int, record: Record) -> ShownRecord:
        """The record as its reader may see it: decoded, then masked."""
        key, value = self.decode(self.topic, record, self.key_as, self.value_as)
        headers = tuple((name, _header_text(data)) for name, data in record.headers)
        if self.mask is not None:
            key, value = self.mask.field("key", key), self.mask.field("value", value)
            headers = tuple((name, self.mask.header(name, text)) for name, text in headers)
        at = record.timestamp if record.timestamp >= 0 else None
        return ShownRecord(partition, record.offset, at, key, value, headers)


@dataclass(slots=True)
class Found:
    """What a scan brought, and how far it got."""

    records: list[ShownRecord] = field(default_factory=list)
    cursor: dict[int, int] = field(default_factory=dict)
    """By partition, where the next page goes on: from there on, or (newest first) below."""
    scanned: int = 0
    is_done: bool = False
    """Nothing is left to look at."""
    problems: dict[int, str] = field(default_factory=dict)
    """Partitions that could not be read, and why."""


@dataclass(slots=True)
class _Part:
    """One partition on the way: what was found of it, and where its reading stands."""

    place: TopicPartition
    at: int
    limit: int
    """Where the log ends; on the way back, where it starts."""
    found: deque[ShownRecord] = field(default_factory=deque)
    is_failed: bool = False


class _Budget:
    """How much more may be read for this page."""

    def __init__(self) -> None:
        self.scanned = 0
        self._deadline = time.monotonic() + SECONDS_MOST

    @property
    def is_spent(self) -> bool:
        return self.scanned >= RECORDS_MOST or time.monotonic() > self._deadline


async def scan_forward(
    cluster: Cluster, question: Question, starts: Mapping[int, int], ends: Mapping[int, int]
) -> Found:
    """The records from ``starts`` on, the oldest first."""
    parts = [
        _Part(TopicPartition(question.topic, number), start, ends[number])
        for number, start in starts.items()
    ]
    wanted, budget, size = _share(question, len(parts)), _Budget(), FIRST_BYTES
    found = Found()
    while open_parts := [part for part in parts if _is_open(part, wanted)]:
        for part in open_parts:
            if budget.is_spent:
                break
            await _try(_forward(cluster, question, part, budget, size), part, found)
        if budget.is_spent:
            break
        size = FETCH_BYTES
    chosen = _merged(parts, question.count, newest_first=False)
    return _result(found, parts, chosen, budget)


async def scan_back(
    cluster: Cluster, question: Question, uppers: Mapping[int, int], starts: Mapping[int, int]
) -> Found:
    """The records below ``uppers``, the newest first."""
    parts = [
        _Part(TopicPartition(question.topic, number), upper, starts[number])
        for number, upper in uppers.items()
    ]
    wanted, budget = _share(question, len(parts)), _Budget()
    found = Found()
    while open_parts := [part for part in parts if _is_open(part, wanted)]:
        for part in open_parts:
            if budget.is_spent:
                break
            await _try(_back(cluster, question, part, budget), part, found)
        if budget.is_spent:
            break
    chosen = _merged(parts, question.count, newest_first=True)
    return _result(found, parts, chosen, budget)


def _share(question: Question, parts: int) -> int:
    return max(1, min(question.count, KEPT_MOST // max(1, parts)))


def _is_open(part: _Part, wanted: int) -> bool:
    return not part.is_failed and part.at != part.limit and len(part.found) < wanted


async def _try(reading: Awaitable[None], part: _Part, found: Found) -> None:
    try:
        await reading
    except (KafkaError, CorruptRecords, OSError) as error:
        part.is_failed = True
        found.problems[part.place.partition] = str(error)


async def _forward(
    cluster: Cluster, question: Question, part: _Part, budget: _Budget, size: int
) -> None:
    data, following = await fetched(cluster, part.place, part.at, part.limit, size)
    await question.prepare(data)
    for record in data:
        await _look(question, part, record, budget)
    part.at = following


async def _back(cluster: Cluster, question: Question, part: _Part, budget: _Budget) -> None:
    """One window below where the partition stands; what is found goes before what was found."""
    lower = max(part.limit, part.at - max(WINDOW, question.count))
    window = _Part(part.place, lower, part.at)
    while window.at < window.limit:
        data, window.at = await fetched(cluster, part.place, window.at, window.limit, FETCH_BYTES)
        await question.prepare(data)
        for record in data:
            await _look(question, window, record, budget)
        while len(window.found) > question.count:
            window.found.popleft()
    part.found.extendleft(reversed(window.found))
    part.at = lower


async def _look(question: Question, part: _Part, record: Record, budget: _Budget) -> None:
    budget.scanned += 1
    if budget.scanned % _TURN == 0:
        await asyncio.sleep(0)
    shown = question.shown(part.place.partition, record)
    if question.matches(shown):
        part.found.append(shortened(shown))


async def fetched(
    cluster: Cluster, place: TopicPartition, at: int, limit: int, size: int
) -> tuple[list[Record], int]:
    """Records from ``at`` on and below ``limit``, and where the next fetch begins."""
    request = fetch_request_of(place, at, bytes_max=size)
    result = partition_result_of(await cluster.to_leader(place, request, codes_of))
    raise_for(result.error_code, f"{place.topic}-{place.partition}")
    found: list[Record] = []
    following = at
    for entry in entries(bytes(result.records or b""), at):
        following = entry.last_offset + 1
        if entry.magic == _MAGIC_WITH_CONTROL and batch.is_control(entry.data):
            continue
        found += [record for record in batch.records(entry.data) if at <= record.offset < limit]
        if following >= limit:
            break
    return found, min(following, limit) if following > at else limit


def _merged(parts: Sequence[_Part], count: int, *, newest_first: bool) -> list[ShownRecord]:
    """At most ``count`` records by their times; those of one partition in the order of the log."""
    chosen: list[ShownRecord] = []
    waiting = [part for part in parts if part.found]
    while waiting and len(chosen) < count:
        if newest_first:
            part = max(waiting, key=lambda part: part.found[-1].timestamp_ms or 0)
            chosen.append(part.found.pop())
        else:
            part = min(waiting, key=lambda part: part.found[0].timestamp_ms or 0)
            chosen.append(part.found.popleft())
        if not part.found:
            waiting.remove(part)
    for part in waiting:  # what was found and has no room is where the next page begins
        part.at = part.found[-1].offset + 1 if newest_first else part.found[0].offset
    return chosen


def _result(
    found: Found, parts: Sequence[_Part], chosen: list[ShownRecord], budget: _Budget
) -> Found:
    found.records = chosen
    found.scanned = budget.scanned
    found.cursor = {part.place.partition: part.at for part in parts if not part.is_failed}
    found.is_done = all(
        part.at == part.limit and not part.found for part in parts if not part.is_failed
    )
    return found


def shortened(record: ShownRecord) -> ShownRecord:
    """What a list shows of it: large values would be kept for nothing."""
    return replace(record, key=_cut(record.key), value=_cut(record.value))


def _cut(found: Decoded) -> Decoded:
    text = found.text[:LIST_CHARACTERS] if found.text is not None else None
    return Decoded(found.kind, text, None, found.bytes)


def _header_text(data: bytes | None) -> str | None:
    return None if data is None else data[:LIST_CHARACTERS].decode("utf-8", "replace")


async def record_at(cluster: Cluster, place: TopicPartition, offset: int) -> Record | None:
    """The record at this offset; None where there is none (any more). Raises KafkaError."""
    found, _ = await fetched(cluster, place, offset, offset + 1, FETCH_BYTES)
    return found[0] if found else None
