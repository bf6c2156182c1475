"""The records of a range, fetched from the leader of its partition while others are unpacked.

Runs on executors. Source: docs/spec/pipeline.md §3.3 and §5 (network reads).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from random import Random
from typing import Final

from barnabas.client.cluster import Cluster, TopicPartition
from barnabas.client.consumer.single_fetch import fetch_request_of, partition_result_of
from barnabas.client.errors import KafkaError
from barnabas.client.retry import Attempts
from barnabas.pipeline.blocking_client import client_for
from barnabas.pipeline.cluster_requests import offsets_at
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import fetch
from barnabas.protocol.records import batch

from .errors import DataLost
from .offsets_json import EARLIEST, names
from .options import READ_COMMITTED, TopicOptions
from .rows import Rows
from .task_planning import OffsetRange
from .unpacking import Aborted, Unpacker

log = logging.getLogger(__name__)

_WAIT_MS: Final = 500
_BYTES_PER_OFFSET: Final = 1024.0
"""Expected of records of which none has been seen."""
_BYTES_MIN: Final = 64 << 10
_SPARE: Final = 1.1
_ABSENT: Final = 0.05
"""Seconds before a leader is asked again that has nothing yet where there should be something."""


def read_range(
    wanted: OffsetRange, options: TopicOptions, *, needs_records: bool
) -> Iterator[Rows]:
    """The rows of a range in the order of their offsets; what compaction removed is not there.

    Raises DataLost when the log begins later than the range unless that was allowed, KafkaError
    when the leader stays away longer than ``kafkaConsumer.pollTimeoutMs``, CorruptRecords.
    """
    client = client_for(*options.address)
    reader = PartitionReader(client.cluster, wanted.topic_partition, options)
    unpacker = Unpacker(
        wanted.topic_partition,
        wanted.start,
        wanted.end,
        needs_records=needs_records,
        aborted=() if options.isolation == READ_COMMITTED else None,
    )
    offset, density, most = wanted.start, _BYTES_PER_OFFSET, options.fetch_bytes
    coming = client.start(reader.after(offset, bytes_wanted(wanted.size, density, most)))
    while offset < wanted.end:
        found = coming.result()
        # Advance by batches, not by their records: compaction leaves a producer's last batch
        # without any, and whoever waited for a record in it would fetch it for ever.
        begun, offset = offset, found.next_offset(offset)
        if found.records:
            density = len(found.records) / max(1, offset - begun)
        if offset < wanted.end:
            size = bytes_wanted(wanted.end - offset, density, most)
            coming = client.start(reader.after(offset, size))  # on its way while we unpack
        # An answer lists every aborted transaction that reaches into it, those that began before it
        # too (KIP-98), so the list of the answer before is of no use any more.
        unpacker.expect(found.aborted)
        for position, _ in batch.iterate(found.records):
            if batch.base_offset(found.records, position) >= wanted.end:
                break
            rows = unpacker.take(found.records, position)
            if rows is not None:
                yield rows
        rows = unpacker.drain()
        if rows is not None:
            yield rows


def bytes_wanted(offsets: int, bytes_per_offset: float, most: int) -> int:
    """What to ask for at once to have so many offsets: little where a batch of a stream is small.

    A broker sends a whole batch of records however little it was asked for.
    """
    return min(most, max(_BYTES_MIN, int(offsets * bytes_per_offset * _SPARE)))


class _Found:
    """The entries of one answer."""

    def __init__(self, records: batch.Buffer, aborted: list[Aborted], jump: int = -1) -> None:
        self.records = records
        self.aborted = aborted
        self._jump = jump

    def next_offset(self, asked: int) -> int:
        """Where to ask next: after the last entry, or where the log begins by now."""
        last = asked
        for position, _ in batch.iterate(self.records):
            last = max(last, batch.next_offset(self.records, position))
        return max(last, self._jump)


class PartitionReader:
    """Asks whoever leads one partition, until there is an answer with something in it."""

    def __init__(
        self, cluster: Cluster, topic_partition: TopicPartition, options: TopicOptions
    ) -> None:
        self._cluster = cluster
        self._topic_partition = topic_partition
        self._options = options

    async def after(self, offset: int, bytes_max: int) -> _Found:
        """What stands at ``offset`` and behind it."""
        clock = asyncio.get_running_loop().time
        attempts = Attempts(self._cluster.config, Random(), clock())  # noqa: S311
        deadline = clock() + self._options.poll_timeout_ms / 1000
        why = ErrorCode.LEADER_NOT_AVAILABLE
        while clock() < deadline:
            try:
                found = await self._asked(offset, bytes_max)
                if found is not None:
                    return found
                await asyncio.sleep(_ABSENT)
                continue
            except KafkaError as error:
                if not error.retriable:
                    raise
                why = error.code
            self._cluster.forget_leaders([self._topic_partition])
            await asyncio.sleep(attempts.backoff_after(why, clock()) or _ABSENT)
        raise KafkaError(
            why,
            f"nothing at {offset} of {names([self._topic_partition])}",
        )

    async def _asked(self, offset: int, bytes_max: int) -> _Found | None:
        """One answer; None when nothing is there yet."""
        leaders = await self._cluster.leaders([self._topic_partition])
        if self._topic_partition not in leaders:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
        request = fetch_request_of(
            self._topic_partition,
            offset,
            bytes_max=bytes_max,
            wait_ms=_WAIT_MS,
            isolation=self._options.isolation,
        )
        result = partition_result_of(
            await self._cluster.ask(leaders[self._topic_partition], request)
        )
        if result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return await self._moved(offset, result)
        if result.error_code:
            raise KafkaError(result.error_code)
        records = b"" if result.records is None else result.records
        if not records:
            return self._nothing_until(offset, result)
        if not any(True for _ in batch.iterate(records)):
            return None
        aborted = [
            Aborted(transaction.producer_id, transaction.first_offset)
            for transaction in result.aborted_transactions or ()
        ]
        return _Found(records, aborted)

    def _nothing_until(self, offset: int, result: fetch.PartitionResult) -> _Found | None:
        """The end that an answer without records tells, when it lies behind ``offset``.

        A broker gives one batch at least where there is one. So compaction has taken what was
        there, an aborted transaction with its marker for example, and nothing will come.
        """
        is_committed = self._options.isolation == READ_COMMITTED
        end = result.last_stable_offset if is_committed else result.high_watermark
        return _Found(b"", [], end) if end > offset else None

    async def _moved(self, offset: int, result: fetch.PartitionResult) -> _Found:
        """The log begins behind ``offset`` by now; else a new leader will catch up."""
        begins = (await offsets_at(self._cluster, {self._topic_partition: EARLIEST}))[
            self._topic_partition
        ]
        if begins <= offset:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        problem = f"{names([self._topic_partition])} begins at {begins}, not {offset}"
        if self._options.fail_on_data_loss:
            raise DataLost(problem)
        log.warning("lost data problem=%s", problem)
        return _Found(b"", [], begins)
