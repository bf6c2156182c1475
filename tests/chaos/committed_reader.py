"""Reads partitions at both isolation levels by bare fetches, and keeps what it was told with them.

Source: docs/spec/transactions.md §5.2 (aborted lists: in the order of markers, clients sort them).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from barnabas.client.cluster import Cluster, TopicPartition
from barnabas.client.consumer.single_fetch import fetch_request_of, partition_result_of
from barnabas.client.errors import KafkaError
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.batch import (
    is_control,
    is_transactional,
    iterate,
    producer_id,
    records,
)
from tests.transactions.history import FinalLog, Partition, Reading, Row

from .copy_journal import row_of

BYTES: Final = 64 * 1024
PATIENCE_S: Final = 120.0
PAUSE_S: Final = 0.05
_COMMITTED: Final = 1


class CommittedReader:
    """Goes through partitions from their beginning; one fetch at a time."""

    def __init__(self, cluster: Cluster, name: str, *, isolation: int = _COMMITTED) -> None:
        self.readings: list[Reading] = []
        self._cluster = cluster
        self._name = name
        self._isolation = isolation
        self._positions: dict[Partition, int] = {}

    async def read(self, partition: Partition) -> bool:
        """One fetch; whether it got further. What fails for now is tried by the next one."""
        place = TopicPartition(*partition)
        start = self._positions.get(partition, 0)
        request = fetch_request_of(place, start, bytes_max=BYTES, isolation=self._isolation)
        try:
            leaders = await self._cluster.leaders([place])
            if place not in leaders:
                return False
            found = partition_result_of(await self._cluster.ask(leaders[place], request))
            if found.error_code:
                raise KafkaError(found.error_code)
        except KafkaError as failure:
            if not failure.retriable and failure.code != ErrorCode.BROKER_NOT_AVAILABLE:
                raise
            self._cluster.forget_leaders([place])
            return False
        rows, end = shown(found, start)
        reading = Reading(
            reader=self._name,
            partition=partition,
            start=start,
            end=end,
            rows=rows,
            last_stable=found.last_stable_offset if self._isolation else None,
            high_watermark=found.high_watermark,
        )
        self.readings.append(reading)
        self._positions[partition] = end
        return end > start

    async def everything(self, partition: Partition) -> list[Row]:
        """All rows of a partition into which nobody writes, however often its leader moves."""
        async with asyncio.timeout(PATIENCE_S):
            while not self._is_at_end(partition):
                if not await self.read(partition):
                    await asyncio.sleep(PAUSE_S)
        return [
            row
            for reading in self.readings
            if reading.partition == partition
            for row in reading.rows
        ]

    def _is_at_end(self, partition: Partition) -> bool:
        """As the last answer had it; a fetch that failed says nothing."""
        found = [reading for reading in self.readings[-1:] if reading.partition == partition]
        return any(one.end == self._end_in(one) for one in found)

    def _end_in(self, reading: Reading) -> int:
        return reading.high_watermark if reading.last_stable is None else reading.last_stable


def shown(found: Any, start: int) -> tuple[list[Row], int]:
    """The rows of an answer from ``start`` on that are not aborted, and where to go on."""
    waiting = sorted(
        (one.first_offset, one.producer_id) for one in found.aborted_transactions or ()
    )
    aborting: set[int] = set()
    rows: list[Row] = []
    data = bytes(found.records or b"")
    end = start
    for position, _ in iterate(data):
        entry = list(records(data, position))
        producer = producer_id(data, position)
        while waiting and waiting[0][0] <= entry[-1].offset:
            aborting.add(waiting.pop(0)[1])
        if is_control(data, position):
            aborting.discard(producer)
        elif not (producer in aborting and is_transactional(data, position)):
            rows += [row_of(one.offset, one.value or b"") for one in entry if one.offset >= start]
        end = max(end, entry[-1].offset + 1)
    return rows, end


async def final_logs(cluster: Cluster, topics: Mapping[str, int]) -> dict[Partition, FinalLog]:
    """Every partition of these topics, at both levels; nobody writes any more."""
    found: dict[Partition, FinalLog] = {}
    for topic, count in topics.items():
        for number in range(count):
            partition = (topic, number)
            committed = CommittedReader(cluster, "final")
            everything = CommittedReader(cluster, "final", isolation=0)
            rows = await committed.everything(partition)
            all_rows = await everything.everything(partition)
            last = committed.readings[-1]
            assert last.last_stable is not None
            found[partition] = FinalLog(
                committed=rows,
                everything=all_rows,
                last_stable=last.last_stable,
                end=last.high_watermark,
            )
    return found
