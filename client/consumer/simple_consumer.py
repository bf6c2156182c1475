"""SimpleConsumer: Kafka 0.8's low-level consumer, one connection to one broker, no state.

Every call is one request; offsets always come from the caller, who also finds out which broker
to ask. Source: docs/spec/coordinator.md §6.11; the documentation of Kafka 0.8's SimpleConsumer.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from barnabas.client.cluster import version_for
from barnabas.client.connection.connection import Connection
from barnabas.client.connection.sasl_login import SaslLogin
from barnabas.client.errors import (
    DecodingFailed,
    Disconnected,
    KafkaError,
    RequestTimedOut,
    known_code,
    raise_for,
)
from barnabas.client.group_metadata import CommittedOffset
from barnabas.client.topology import Node, TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import fetch as fetching
from barnabas.protocol.messages import list_offsets, offset_commit, offset_fetch
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse, Topic
from barnabas.protocol.records.corrupt_records import CorruptRecords

from .consumed_records import Chunk, RecordSource
from .fetch_config import ISOLATION_LEVELS
from .fetched_batches import find_batches

LATEST_TIME: Final = -1
EARLIEST_TIME: Final = -2
_NO_SESSION: Final = -1
_GROWTH: Final = 2
_BYTES_MAX: Final = 1 << 28
_TRIES: Final = 2


class Fetch(NamedTuple):
    """One partition to read in :meth:`SimpleConsumer.multifetch`."""

    topic: str
    partition: int
    offset: int
    max_bytes: int | None = None
    """None for the consumer's ``buffer_bytes``."""


class SimpleConsumer:
    """Asks one broker, one call after the other, over one connection.

    A call whose connection breaks is sent once more over a new one, and then raises. Use it in
    ``async with``, or close it. With ``isolation_level="read_committed"`` records of aborted
    transactions are left out, nothing behind an open one is read, and the latest offset is where
    the first open one begins.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        so_timeout_ms: int = 30_000,
        buffer_bytes: int = 65_536,
        client_id: str = "barnabas",
        sasl: SaslLogin | tuple[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        isolation_level: str = "read_uncommitted",
    ) -> None:
        self.host = host
        self.port = port
        self.buffer_bytes = buffer_bytes
        """How much of a partition a fetch asks for, unless it says otherwise."""
        assert isolation_level in ISOLATION_LEVELS, f"isolation level {isolation_level}"
        self._is_committed_only = isolation_level == ISOLATION_LEVELS[1]
        self._so_timeout_ms = so_timeout_ms
        self._client_id = client_id
        self._sasl = SaslLogin(*sasl) if isinstance(sasl, tuple) else sasl
        self._tls = tls
        self._turn = asyncio.Lock()
        self._connection: Connection | None = None

    async def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int | None = None,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
    ) -> Chunk:
        """The records from ``offset`` on, none if there are none within ``max_wait_ms``.

        When a single message is larger than ``max_bytes``, the fetch is repeated with a buffer
        twice as large until it fits. Raises KafkaError with the partition's code, for example
        OFFSET_OUT_OF_RANGE or NOT_LEADER_OR_FOLLOWER.
        """
        asked = [Fetch(topic, partition, offset, max_bytes)]
        (found,) = await self.multifetch(asked, max_wait_ms=max_wait_ms, min_bytes=min_bytes)
        if isinstance(found, KafkaError):
            raise found
        return found

    async def multifetch(
        self, fetches: Sequence[Fetch], *, max_wait_ms: int = 0, min_bytes: int = 1
    ) -> list[Chunk | KafkaError]:
        """Several partitions in one request; results in the order of ``fetches``."""
        found: dict[int, Chunk | KafkaError] = {}
        sizes = [fetch.max_bytes or self.buffer_bytes for fetch in fetches]
        missing = list(range(len(fetches)))
        while missing:
            topic_partitions = [
                TopicPartition(fetches[i].topic, fetches[i].partition) for i in missing
            ]
            round_, left = _distinct(missing, topic_partitions)
            results = await self._fetch(
                [(fetches[i], sizes[i]) for i in round_], max_wait_ms, min_bytes
            )
            for i in round_:
                topic_partition = TopicPartition(fetches[i].topic, fetches[i].partition)
                chunk, needed = _chunk(
                    topic_partition,
                    fetches[i].offset,
                    results.get(topic_partition),
                    is_committed_only=self._is_committed_only,
                )
                if needed and sizes[i] < _BYTES_MAX:
                    sizes[i] = min(max(needed, _GROWTH * sizes[i]), _BYTES_MAX)
                    left.append(i)
                else:
                    found[i] = chunk
            missing = sorted(left)
        return [found[i] for i in range(len(fetches))]

    async def get_offsets_before(
        self, topic: str, partition: int, time_ms: int, offsets_max: int
    ) -> list[int]:
        """Up to ``offsets_max`` offsets at which segments begin, the newest first.

        Those of segments written before ``time_ms``; LATEST_TIME and EARLIEST_TIME ask for the
        end and the beginning. Raises KafkaError.
        """
        asked = list_offsets.Partition(
            partition_index=partition, timestamp=time_ms, max_num_offsets=offsets_max
        )
        result = await self._list_offsets(topic, asked, 0)
        return list(result.old_style_offsets)

    async def earliest_or_latest_offset(self, topic: str, partition: int, time_ms: int) -> int:
        """The first offset at or after a time, or at EARLIEST_TIME or LATEST_TIME; -1 for none."""
        asked = list_offsets.Partition(partition_index=partition, timestamp=time_ms)
        result = await self._list_offsets(topic, asked, None)
        return result.old_style_offsets[0] if result.old_style_offsets else result.offset

    async def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, CommittedOffset], *, version: int = 0
    ) -> dict[TopicPartition, ErrorCode]:
        """Store offsets of ``group``; how each went, NONE when it is stored.

        Version 0 stores in ZooKeeper and may ask any broker; from version 1 on the offset manager
        stores, and only the group's coordinator may be asked.
        """
        topics: dict[str, list[offset_commit.Partition]] = defaultdict(list)
        for topic_partition, committed in offsets.items():
            topics[topic_partition.topic].append(
                offset_commit.Partition(
                    partition_index=topic_partition.partition,
                    committed_offset=committed.offset,
                    committed_metadata=committed.metadata,
                    committed_leader_epoch=committed.leader_epoch,
                )
            )
        request = offset_commit.OffsetCommitRequest(
            group_id=group,
            topics=[
                offset_commit.Topic(name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )
        answer = await self._ask(request, version)
        return {
            TopicPartition(topic.name, partition.partition_index): known_code(partition.error_code)
            for topic in answer.topics
            for partition in topic.partitions
        }

    async def fetch_offsets(
        self, group: str, topic_partitions: Iterable[TopicPartition], *, version: int = 0
    ) -> dict[TopicPartition, CommittedOffset | KafkaError]:
        """What ``group`` has committed; offset -1 where it has nothing (version 1 and later).

        In version 0, ZooKeeper's, that is UNKNOWN_TOPIC_OR_PARTITION. Raises KafkaError when the
        broker refuses the whole question.
        """
        topics: dict[str, list[int]] = defaultdict(list)
        for topic_partition in topic_partitions:
            topics[topic_partition.topic].append(topic_partition.partition)
        request = offset_fetch.OffsetFetchRequest(
            group_id=group,
            topics=[
                offset_fetch.Topic(name=name, partition_indexes=partitions)
                for name, partitions in topics.items()
            ],
        )
        answer = await self._ask(request, version)
        raise_for(answer.error_code, group)
        return {
            TopicPartition(topic.name, partition.partition_index): _committed(partition)
            for topic in answer.topics
            for partition in topic.partitions
        }

    async def metadata(self, topics: Sequence[str] | None = None) -> MetadataResponse:
        """What this broker says of ``topics``, None for all of them."""
        wanted = None if topics is None else [Topic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        answer: MetadataResponse = await self._ask(request)
        return answer

    async def find_coordinator(self, group: str) -> Node:
        """The broker that manages the offsets of ``group``; raises KafkaError."""
        answer = await self._ask(FindCoordinatorRequest(key=group))
        raise_for(answer.error_code, answer.error_message)
        return Node(answer.node_id, answer.host, answer.port)

    async def close(self) -> None:
        """Close the connection; the next call opens another."""
        if self._connection is not None:
            await self._connection.close()

    async def __aenter__(self) -> Self:
        """Nothing is connected before the first call."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        await self.close()

    async def _fetch(
        self, asked: Sequence[tuple[Fetch, int]], max_wait_ms: int, min_bytes: int
    ) -> dict[TopicPartition, fetching.PartitionResult]:
        topics: dict[str, list[fetching.Partition]] = defaultdict(list)
        for fetch, size in asked:
            topics[fetch.topic].append(
                fetching.Partition(
                    partition=fetch.partition, fetch_offset=fetch.offset, partition_max_bytes=size
                )
            )
        request = fetching.FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            isolation_level=int(self._is_committed_only),
            session_epoch=_NO_SESSION,
            topics=[
                fetching.Topic(topic=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )
        answer = await self._ask(request, wait_ms=max_wait_ms)
        raise_for(answer.error_code)
        return {
            TopicPartition(topic.topic, partition.partition_index): partition
            for topic in answer.responses
            for partition in topic.partitions
        }

    async def _list_offsets(
        self, topic: str, asked: list_offsets.Partition, version: int | None
    ) -> list_offsets.PartitionResult:
        request = list_offsets.ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(self._is_committed_only),
            topics=[list_offsets.Topic(name=topic, partitions=[asked])],
        )
        answer = await self._ask(request, version)
        result: list_offsets.PartitionResult = answer.topics[0].partitions[0]
        raise_for(result.error_code, f"{topic}-{result.partition_index}")
        return result

    async def _ask(self, message: Any, version: int | None = None, *, wait_ms: int = 0) -> Any:
        """One call; over a second connection when the first one broke."""
        async with self._turn:
            for left in reversed(range(_TRIES)):
                try:
                    connection = await self._connected()
                    chosen = version_for(connection, type(message)) if version is None else version
                    return await connection.request(message, chosen, self._so_timeout_ms + wait_ms)
                except (Disconnected, RequestTimedOut):
                    if not left:
                        raise
            raise AssertionError("unreachable")

    async def _connected(self) -> Connection:
        if self._connection is None or self._connection.is_closed:
            self._connection = await Connection.open(
                self.host,
                self.port,
                client_id=self._client_id,
                timeout_ms=self._so_timeout_ms,
                sasl=self._sasl,
                tls=self._tls,
            )
        return self._connection


class _NoRecords:
    """No records: the end of the log, or markers only."""

    def records(self, topic_partition: TopicPartition) -> Sequence[Any]:
        return ()

    def values(self) -> list[Any]:
        return []

    def iterate(self, topic_partition: TopicPartition) -> Iterator[Any]:
        return iter(())

    def count(self) -> int:
        return 0


_NO_RECORDS: Final[RecordSource] = _NoRecords()


def _distinct(
    missing: Sequence[int], topic_partitions: Sequence[TopicPartition]
) -> tuple[list[int], list[int]]:
    """Those for this request, and those for later: a request names a partition once."""
    first: dict[TopicPartition, int] = {}
    for i, topic_partition in zip(missing, topic_partitions, strict=True):
        first.setdefault(topic_partition, i)
    now = set(first.values())
    return sorted(now), [i for i in missing if i not in now]


def _chunk(
    topic_partition: TopicPartition,
    offset: int,
    result: fetching.PartitionResult | None,
    *,
    is_committed_only: bool,
) -> tuple[Chunk | KafkaError, int]:
    """What came for one partition, and how many bytes more room would have to hold."""
    if result is None:
        # It is how a broker throttles (KIP-219): without a session it leaves out no other one.
        code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        return KafkaError(code, "the broker held its answer back"), 0
    if result.error_code:
        where = f"{topic_partition.topic}-{topic_partition.partition} at offset {offset}"
        return KafkaError(result.error_code, where), 0
    try:
        aborted = (result.aborted_transactions or ()) if is_committed_only else None
        found = find_batches(result.records or b"", offset, aborted=aborted)
    except CorruptRecords as bad:
        return DecodingFailed(*topic_partition, offset, bad.message), 0
    chunk = Chunk(
        topic_partition,
        found.source or _NO_RECORDS,
        found.next_offset,
        found.leader_epoch,
        result.high_watermark,
    )
    end = result.last_stable_offset if is_committed_only else result.high_watermark
    is_short = not result.records and end > offset
    return chunk, 1 if is_short else found.bytes_needed


def _committed(result: offset_fetch.PartitionResult) -> CommittedOffset | KafkaError:
    if result.error_code:
        return KafkaError(result.error_code)
    return CommittedOffset(
        result.committed_offset, result.metadata or "", result.committed_leader_epoch
    )
