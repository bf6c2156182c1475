"""Records sent by one task under one producer id, so that a second run sends nothing twice.

Batches are cut the same way from the same rows, and one at a time is under way to a partition.
So a task that runs again asks each leader what it has last seen of the producer id, leaves out
what came before that batch, and sends the batch again: the leader knows it, and acknowledges it
once it is replicated. Source: docs/spec/pipeline.md §2; docs/spec/log.md §7; KIP-98, KIP-664.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple

import numpy as np

from barnabas.client.cluster import Cluster, TopicPartition
from barnabas.client.errors import KafkaError, raise_for
from barnabas.client.retry import Attempts
from barnabas.pipeline.blocking_client import BlockingClient
from barnabas.pipeline.cluster_requests import partitions_of
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.hashing import keyed_partition
from barnabas.protocol.messages import describe_producers, init_producer_id, produce
from barnabas.protocol.records.builder import Pair, encode_record, encoded_pairs, seal
from barnabas.protocol.records.header import TRANSACTIONAL
from barnabas.protocol.records.record import HeaderPair, Record

from .record_columns import PER_RECORD_BYTES, RecordColumns, Rows

Headers = tuple[HeaderPair, ...]

_ALL: Final = -1
_NOTHING: Final = -1


Admit = Callable[[Sequence[TopicPartition]], None]
"""Called with partitions before anything is sent to them."""


class ProducerIdentity(NamedTuple):
    """What a broker knows a producer by."""

    producer_id: int
    epoch: int


@dataclass(slots=True)
class _PartitionQueue:
    """What is on its way to one partition."""

    last_known: int
    """The sequence number the leader saw last before this run; -1 for none."""
    sequence: int = 0
    """Of the first record gathered."""
    count: int = 0
    """Records gathered for the next batch."""
    encoded: list[bytes] = field(default_factory=list)
    """The first of them, in pieces."""
    pairs: list[Pair] = field(default_factory=list)
    """Keys and values of those that follow."""
    headers: list[Headers] = field(default_factory=list)
    """Of as many records, or none at all where no record has any."""
    size: int = 0
    under_way: Future[None] | None = None

    def encode(self) -> list[bytes]:
        """All that were gathered, in pieces."""
        first = self.count - len(self.pairs)
        if self.headers:
            rows = zip(self.pairs, self.headers, strict=True)
            self.encoded += [
                encode_record(Record(number, 0, *pair, headers), 0, None)
                for number, (pair, headers) in enumerate(rows, first)
            ]
        else:
            self.encoded += encoded_pairs(self.pairs, first)
        self.pairs, self.headers = [], []
        return self.encoded

    def take(self) -> tuple[bytes, int]:
        """The records gathered, encoded, and how many they are; the next batch is empty."""
        taken = b"".join(self.encode()), self.count
        self.encoded, self.count, self.size = [], 0, 0
        return taken


async def new_identity(cluster: Cluster) -> ProducerIdentity:
    """A producer id that nobody else has."""
    request = init_producer_id.InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=60_000
    )
    answer = await cluster.to_any(request, lambda answer: [answer.error_code])
    raise_for(answer.error_code)
    return ProducerIdentity(answer.producer_id, answer.producer_epoch)


class IdempotentSender:
    """Sends the records of one task in the order they come; call :meth:`finish` at the end."""

    def __init__(
        self,
        client: BlockingClient,
        identity: ProducerIdentity,
        *,
        is_second_run: bool,
        codec: int,
        batch_bytes: int,
        timeout_ms: int,
        task: int,
        transactional_id: str | None = None,
        admit: Admit | None = None,
    ) -> None:
        """``task`` says where records without a key go first; the same number, the same places.

        With ``transactional_id`` records are part of the transaction that is open under it, and
        ``admit`` has each partition made part of it.
        """
        self._client = client
        self._identity = identity
        self._is_second_run = is_second_run
        self._codec = codec
        self._batch_bytes = batch_bytes
        self._timeout_ms = timeout_ms
        self._task = task
        self._transactional_id = transactional_id
        self._admit = admit
        self._queues: dict[tuple[str, int], _PartitionQueue] = {}
        self._new: list[TopicPartition] = []
        """Partitions to which nothing was sent yet."""
        self._counts: dict[str, int] = {}
        self._sticky: dict[str, int] = defaultdict(lambda: task)
        self.sent = 0
        """Records sent or known to be there."""

    def add(
        self,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
    ) -> None:
        """Take one record; a full batch goes on its way. Raises KafkaError."""
        topic_partition = (topic, self._placed(topic, key) if partition is None else partition)
        queue = self._queues.get(topic_partition) or self._open(topic_partition)
        if headers and not queue.headers:
            queue.headers = [()] * len(queue.pairs)
        queue.pairs.append((key, value))
        queue.count += 1
        queue.size += len(key or b"") + len(value or b"") + PER_RECORD_BYTES
        if queue.headers or headers:
            queue.headers.append(headers)
            queue.size += sum(len(name) + len(data or b"") + 10 for name, data in headers)
        self.sent += 1
        if queue.size >= self._batch_bytes:
            self._dispatch(TopicPartition(*topic_partition), queue)
            if partition is None and key is None:
                self._sticky[topic] += 1

    def add_columns(self, topic: str, columns: RecordColumns) -> None:
        """Take many records, cut into the same batches as one by one. Raises KafkaError."""
        sizes = columns.sizes()
        placed = columns.partitions
        if placed is None and columns.keys is not None:
            placed = columns.keyed_partitions(self._partitions(topic))
        if placed is not None:
            for partition in np.unique(placed).tolist():
                rows = np.flatnonzero(placed == partition)
                while len(rows):
                    rows = rows[self._fill(topic, partition, columns, rows, sizes) :]
            return
        rows = np.arange(columns.count)
        while len(rows):
            partition = self._sticky[topic] % self._partitions(topic)
            rows = rows[self._fill(topic, partition, columns, rows, sizes) :]
            self._sticky[topic] += not self._queues[topic, partition].count

    def _fill(
        self, topic: str, partition: int, columns: RecordColumns, rows: Rows, sizes: Rows
    ) -> int:
        """Gather rows until the next batch is full and on its way; how many that took."""
        topic_partition = (topic, partition)
        queue = self._queues.get(topic_partition) or self._open(topic_partition)
        filled = queue.size + np.cumsum(sizes[rows])
        taken = min(len(rows), int(np.searchsorted(filled, self._batch_bytes)) + 1)
        queue.encode()
        queue.encoded += columns.encoded(rows[:taken], queue.count)
        queue.count += taken
        queue.size = int(filled[taken - 1])
        self.sent += taken
        if queue.size >= self._batch_bytes:
            self._dispatch(TopicPartition(*topic_partition), queue)
        return taken

    def finish(self) -> None:
        """Send what is left; return when everything is acknowledged by all in-sync replicas."""
        for topic_partition, queue in self._queues.items():
            if queue.count:
                self._dispatch(TopicPartition(*topic_partition), queue)
        for queue in self._queues.values():
            _await(queue)

    @property
    def topics(self) -> set[str]:
        """The topics of the records so far."""
        return {topic for topic, _ in self._queues}

    def _placed(self, topic: str, key: bytes | None) -> int:
        """Where a record goes that does not say so itself."""
        count = self._counts.get(topic) or self._partitions(topic)
        if key is None:
            return self._sticky[topic] % count
        return keyed_partition(key, count)

    def _partitions(self, topic: str) -> int:
        if topic not in self._counts:
            topic_partitions = self._client.run(
                partitions_of(self._client.cluster, [topic], creates=True)
            )
            self._counts[topic] = len(topic_partitions)
        return self._counts[topic]

    def _open(self, wanted: tuple[str, int]) -> _PartitionQueue:
        topic_partition = TopicPartition(*wanted)
        if not 0 <= topic_partition.partition < self._partitions(topic_partition.topic):
            where = f"{topic_partition.topic}-{topic_partition.partition}"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, where)
        last_known = _NOTHING
        if self._is_second_run:
            asked = last_sequence(self._client.cluster, topic_partition, self._identity)
            last_known = self._client.run(asked)
        self._queues[topic_partition] = _PartitionQueue(last_known)
        self._new.append(topic_partition)
        return self._queues[topic_partition]

    def _dispatch(self, topic_partition: TopicPartition, queue: _PartitionQueue) -> None:
        """Send the batch gathered unless the leader had it, and the one after it, already."""
        body, count = queue.take()
        first, queue.sequence = queue.sequence, queue.sequence + count
        # The leader has seen a later batch. One is in flight at a time, so this one was
        # acknowledged. The batch that ends at last_known is sent again: it may be appended and not
        # replicated yet, and the leader answers a duplicate only when it is.
        if queue.sequence - 1 < queue.last_known:
            return
        if self._new and self._admit is not None:
            self._admit(self._new)  # all that came up since the last time: one request, not many
            self._new = []
        batch = self._built(body, count, first)
        # After a retry the second of two batches in flight may arrive first, and a leader refuses a
        # sequence number that leaves a gap.
        _await(queue)
        sending = send(
            self._client.cluster, topic_partition, batch, self._timeout_ms, self._transactional_id
        )
        queue.under_way = self._client.start(sending)

    def _built(self, body: bytes, count: int, sequence: int) -> bytearray:
        now_ms = time.time_ns() // 1_000_000
        attributes = 0 if self._transactional_id is None else TRANSACTIONAL
        times, numbers = (now_ms, now_ms), (*self._identity, sequence)
        return seal(body, self._codec, attributes, count - 1, *times, *numbers, count)


async def last_sequence(
    cluster: Cluster, topic_partition: TopicPartition, identity: ProducerIdentity
) -> int:
    """The sequence number that the leader of a partition saw last of a producer; -1 for none."""
    topic = describe_producers.Topic(
        name=topic_partition.topic, partition_indexes=[topic_partition.partition]
    )
    request = describe_producers.DescribeProducersRequest(topics=[topic])
    answer = await cluster.to_leader(
        topic_partition, request, lambda answer: [answer.topics[0].partitions[0].error_code]
    )
    found = answer.topics[0].partitions[0]
    raise_for(found.error_code, found.error_message)
    for producer in found.active_producers:
        if producer.producer_id == identity.producer_id:
            return int(producer.last_sequence)
    return _NOTHING


async def send(
    cluster: Cluster,
    topic_partition: TopicPartition,
    batch: bytearray,
    timeout_ms: int,
    transactional_id: str | None = None,
) -> None:
    """Have a batch appended and replicated; a batch that the leader knows already is fine.

    Raises KafkaError, when waiting does not help or no longer than ``timeout_ms``.
    """
    clock = asyncio.get_running_loop().time
    attempts = Attempts(cluster.config, Random(), clock())  # noqa: S311 - spreads retries
    deadline = clock() + timeout_ms / 1000
    partition = produce.Partition(index=topic_partition.partition, records=batch)
    request = produce.ProduceRequest(
        transactional_id=transactional_id,
        acks=_ALL,
        timeout_ms=cluster.config.request_timeout_ms,
        topic_data=[produce.Topic(name=topic_partition.topic, partition_data=[partition])],
    )
    while True:
        failure = await _attempted(cluster, topic_partition, request)
        if failure is None:
            return
        if not failure.retriable or clock() >= deadline:
            raise failure
        cluster.forget_leaders([topic_partition])
        await asyncio.sleep(attempts.backoff_after(failure.code, clock()) or 1.0)


async def _attempted(
    cluster: Cluster, topic_partition: TopicPartition, request: produce.ProduceRequest
) -> KafkaError | None:
    where = f"{topic_partition.topic}-{topic_partition.partition}"
    try:
        leaders = await cluster.leaders([topic_partition])
        if topic_partition not in leaders:
            return KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, where)
        answer = await cluster.ask(leaders[topic_partition], request)
    except KafkaError as error:
        return error
    result = answer.responses[0].partition_responses[0]
    if result.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        return None
    return KafkaError(result.error_code, f"{where}: {result.error_message or 'refused'}")


def _await(queue: _PartitionQueue) -> None:
    """Wait for the batch under way, if there is one; raises what it raised."""
    if queue.under_way is not None:
        queue.under_way.result()
        queue.under_way = None
