"""What is written to a topic from now on: a few records at a time, the rest is counted.

Source: docs/spec/console.md §2.3 (live tail: a ring of 500, drops counted).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from barnabas.client.admin.log_ends import LATEST, look_up
from barnabas.client.cluster import Cluster, TopicPartition
from barnabas.client.errors import KafkaError
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.corrupt_records import CorruptRecords

from .matching import ShownRecord
from .scan import FETCH_BYTES, Question, fetched, shortened

RING: Final = 500
"""So many records are shown of what came since the last look."""
SCANNED_MOST: Final = 20_000
"""So many are looked at in one go; what is beyond is skipped and counted."""
_TURN: Final = 100


@dataclass(frozen=True, slots=True)
class Bundle:
    """What came since the last one, the oldest first."""

    records: Sequence[ShownRecord]
    dropped: int
    """Records that came too fast to be shown, or looked at."""
    problem: str


class Tail:
    """Follows the partitions of one topic."""

    def __init__(
        self, cluster: Cluster, question: Question, places: Sequence[TopicPartition]
    ) -> None:
        self._cluster = cluster
        self._question = question
        self._places = places
        self._at: dict[TopicPartition, int] = {}

    async def start(self) -> None:
        """Begin at the ends of now; raises KafkaError."""
        ends = await look_up(self._cluster, self._places, LATEST)
        self._at = {place: result.offset for place, result in ends.items()}

    async def bundle(self) -> Bundle:
        """What has come since; never raises for what the cluster says."""
        ring: deque[ShownRecord] = deque(maxlen=RING)
        found = dropped = scanned = 0
        problem = ""
        try:
            ends = await look_up(self._cluster, self._places, LATEST)
            for place, result in ends.items():
                start = self._at.setdefault(place, result.offset)
                room = SCANNED_MOST - scanned
                if result.offset - start > room:  # too fast: go on near the end
                    dropped += result.offset - room - start
                    start = result.offset - room
                scanned += max(0, result.offset - start)
                found += await self._read(place, start, result.offset, ring)
        except (KafkaError, CorruptRecords, OSError, TimeoutError) as error:
            problem = str(error)
        ordered = sorted(ring, key=lambda record: record.timestamp_ms or 0)
        return Bundle(ordered, dropped + found - len(ring), problem)

    async def _read(
        self, place: TopicPartition, start: int, end: int, ring: deque[ShownRecord]
    ) -> int:
        """Put what matches between these offsets into the ring; how many they were."""
        found = looked_at = 0
        while start < end:
            try:
                records, start = await fetched(self._cluster, place, start, end, FETCH_BYTES)
            except KafkaError as error:
                if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                records, start = [], end  # deleted or cut since: follow from here
            await self._question.prepare(records)
            for record in records:
                looked_at += 1
                if looked_at % _TURN == 0:
                    await asyncio.sleep(0)
                shown = self._question.shown(place.partition, record)
                if self._question.matches(shown):
                    ring.append(shortened(shown))
                    found += 1
            self._at[place] = start
        self._at[place] = max(start, self._at.get(place, 0))
        return found
