"""Scripted brokers that keep logs: a cluster small enough to be told what to do wrong."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from barnabas.client.cluster import TopicPartition
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    fetch,
    init_producer_id,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
)
from barnabas.protocol.messages.find_coordinator import FindCoordinatorResponse
from barnabas.protocol.records import batch
from barnabas.protocol.records.record import Record

from .scripted_broker import Answer, ScriptedBroker, scripted_broker

EARLIEST = -2


class Log:
    """One partition: batches as they were appended, and what its leader says next."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.start = 0
        self.end = 0
        self.codes: list[int] = []
        """Codes for the next requests to this partition, before it is served again."""
        self.aborted: list[fetch.AbortedTransaction] = []

    def append(self, data: bytes | bytearray, leader_epoch: int = 0) -> int:
        base, made = self.end, bytearray(data)
        batch.assign(made, base, leader_epoch)
        self.end = batch.next_offset(made)
        self.batches.append(bytes(made))
        return base

    def add(self, *values: bytes, key: bytes | None = None, **options: Any) -> None:
        pairs = [(key, value) for value in values]
        self.append(batch.build_batch(pairs, timestamp_ms=1_000, **options))

    def read(self, offset: int, bytes_max: int) -> bytes:
        wanted = [stored for stored in self.batches if batch.next_offset(stored) > offset]
        return b"".join(wanted)[:bytes_max]

    def records(self) -> list[Record]:
        return [record for stored in self.batches for record in batch.records(stored)]

    def values(self) -> list[bytes | None]:
        return [record.value for record in self.records()]


class ScriptedCluster:
    """Brokers 1 to n, all of one mind about who leads what."""

    def __init__(self, brokers: Sequence[ScriptedBroker]) -> None:
        self.brokers = dict(enumerate(brokers, start=1))
        self.logs: dict[TopicPartition, Log] = defaultdict(Log)
        self.leaders: dict[TopicPartition, int] = {}
        self.epochs: dict[TopicPartition, int] = defaultdict(int)
        self.coordinator = 1
        self.coordinator_codes: list[int] = []
        self.committed: dict[TopicPartition, tuple[int, str, int]] = {}
        self.grown = asyncio.Event()
        self.fetches_throttled = 0.0
        """So many answers to fetches are held back, as by a quota: KIP-219."""
        self.on_produce: Callable[[int, produce.ProduceRequest], None] = lambda node, request: None
        self.producers = 0
        for number, broker in self.brokers.items():
            broker.answers = {
                ApiKey.METADATA: self.answer_metadata,
                ApiKey.FIND_COORDINATOR: self.answer_find,
                ApiKey.FETCH: self._at(number, self.answer_fetch),
                ApiKey.LIST_OFFSETS: self._at(number, self.answer_list_offsets),
                ApiKey.PRODUCE: self._at(number, self.answer_produce),
                ApiKey.INIT_PRODUCER_ID: self.answer_init_producer_id,
                ApiKey.OFFSET_COMMIT: self.answer_commit,
                ApiKey.OFFSET_FETCH: self.answer_fetch_committed,
            }

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers.values())

    def topic(self, name: str, partitions: int = 1) -> list[TopicPartition]:
        """Create a topic whose leaders take turns."""
        topic_partitions = [TopicPartition(name, number) for number in range(partitions)]
        for topic_partition in topic_partitions:
            self.leaders[topic_partition] = topic_partition.partition % len(self.brokers) + 1
        return topic_partitions

    def move(self, topic_partition: TopicPartition, leader: int) -> None:
        self.leaders[topic_partition] = leader
        self.epochs[topic_partition] += 1

    def asked(self, key: ApiKey) -> list[Any]:
        """Every request of this kind, broker by broker."""
        return [
            request
            for broker in self.brokers.values()
            for header, request in broker.seen
            if header.key == key
        ]

    def _at(self, number: int, answer: Callable[[int, Any, int], Any]) -> Answer:
        return lambda request, version: answer(number, request, version)

    def _refusal(self, number: int, topic_partition: TopicPartition) -> int:
        if topic_partition not in self.leaders:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if self.leaders[topic_partition] != number:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        codes = self.logs[topic_partition].codes
        return codes.pop(0) if codes else 0

    def answer_metadata(self, request: Any, version: int) -> metadata.MetadataResponse:
        names = sorted({topic_partition.topic for topic_partition in self.leaders})
        if request.topics is not None:
            names = [topic.name for topic in request.topics]
        return metadata.MetadataResponse(
            brokers=[
                metadata.Broker(node_id=number, host="127.0.0.1", port=broker.port)
                for number, broker in self.brokers.items()
            ],
            controller_id=1,
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str) -> metadata.TopicResult:
        topic_partitions = [
            topic_partition for topic_partition in self.leaders if topic_partition.topic == name
        ]
        return metadata.TopicResult(
            name=name,
            error_code=0 if topic_partitions else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            partitions=[
                metadata.Partition(
                    partition_index=topic_partition.partition,
                    leader_id=self.leaders[topic_partition],
                    leader_epoch=self.epochs[topic_partition],
                )
                for topic_partition in topic_partitions
            ],
        )

    def answer_find(self, request: Any, version: int) -> FindCoordinatorResponse:
        broker = self.brokers[self.coordinator]
        return FindCoordinatorResponse(node_id=self.coordinator, host="127.0.0.1", port=broker.port)

    async def answer_fetch(
        self, number: int, request: fetch.FetchRequest, version: int
    ) -> fetch.FetchResponse:
        """What there is at once, else what comes within the time to wait."""
        if self.fetches_throttled:
            self.fetches_throttled -= 1
            return fetch.FetchResponse(throttle_time_ms=1, responses=[])
        answer = self._fetched(number, request)
        if not any(
            partition.error_code or partition.records
            for t in answer.responses
            for partition in t.partitions
        ):
            self.grown.clear()
            try:
                async with asyncio.timeout(request.max_wait_ms / 1000):
                    await self.grown.wait()
            except TimeoutError:
                pass
            answer = self._fetched(number, request)
        return answer

    def _fetched(self, number: int, request: fetch.FetchRequest) -> fetch.FetchResponse:
        return fetch.FetchResponse(
            responses=[
                fetch.TopicResult(
                    topic=topic.topic,
                    partitions=[
                        self._read(number, topic.topic, partition) for partition in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _read(self, number: int, topic: str, asked: fetch.Partition) -> fetch.PartitionResult:
        topic_partition = TopicPartition(topic, asked.partition)
        log, code = self.logs[topic_partition], self._refusal(number, topic_partition)
        if not code and not log.start <= asked.fetch_offset <= log.end:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        return fetch.PartitionResult(
            partition_index=asked.partition,
            error_code=code,
            high_watermark=log.end,
            last_stable_offset=log.end,
            aborted_transactions=log.aborted,
            records=b"" if code else log.read(asked.fetch_offset, asked.partition_max_bytes),
        )

    def answer_list_offsets(
        self, number: int, request: Any, version: int
    ) -> list_offsets.ListOffsetsResponse:
        def found(topic: str, asked: list_offsets.Partition) -> list_offsets.PartitionResult:
            topic_partition = TopicPartition(topic, asked.partition_index)
            log, code = self.logs[topic_partition], self._refusal(number, topic_partition)
            offset = log.start if asked.timestamp == EARLIEST else log.end
            return list_offsets.PartitionResult(
                partition_index=topic_partition.partition,
                error_code=code,
                offset=-1 if code else offset,
                old_style_offsets=[offset, log.start][: asked.max_num_offsets],
            )

        return list_offsets.ListOffsetsResponse(
            topics=[
                list_offsets.TopicResult(
                    name=topic.name,
                    partitions=[found(topic.name, partition) for partition in topic.partitions],
                )
                for topic in request.topics
            ]
        )

    def answer_produce(
        self, number: int, request: Any, version: int
    ) -> produce.ProduceResponse | None:
        self.on_produce(number, request)

        def done(topic: str, sent: produce.Partition) -> produce.PartitionResult:
            topic_partition = TopicPartition(topic, sent.index)
            code = self._refusal(number, topic_partition)
            assert sent.records is not None
            base = -1 if code else self.logs[topic_partition].append(bytes(sent.records))
            return produce.PartitionResult(index=sent.index, error_code=code, base_offset=base)

        responses = [
            produce.TopicResult(
                name=topic.name,
                partition_responses=[
                    done(topic.name, partition) for partition in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
        self.grown.set()
        return produce.ProduceResponse(responses=responses) if request.acks else None

    def answer_init_producer_id(
        self, request: Any, version: int
    ) -> init_producer_id.InitProducerIdResponse:
        self.producers += 1
        return init_producer_id.InitProducerIdResponse(
            producer_id=4_000 + self.producers, producer_epoch=0
        )

    def answer_commit(self, request: Any, version: int) -> offset_commit.OffsetCommitResponse:
        code = self.coordinator_codes.pop(0) if self.coordinator_codes else 0

        def done(topic: str, each: offset_commit.Partition) -> offset_commit.PartitionResult:
            if not code:
                topic_partition = TopicPartition(topic, each.partition_index)
                epoch, words = each.committed_leader_epoch, each.committed_metadata or ""
                self.committed[topic_partition] = (each.committed_offset, words, epoch)
            return offset_commit.PartitionResult(
                partition_index=each.partition_index, error_code=code
            )

        return offset_commit.OffsetCommitResponse(
            topics=[
                offset_commit.TopicResult(
                    name=topic.name,
                    partitions=[done(topic.name, partition) for partition in topic.partitions],
                )
                for topic in request.topics
            ]
        )

    def answer_fetch_committed(
        self, request: Any, version: int
    ) -> offset_fetch.OffsetFetchResponse:
        code = self.coordinator_codes.pop(0) if self.coordinator_codes else 0

        def one(topic: str, partition: int) -> offset_fetch.PartitionResult:
            topic_partition = TopicPartition(topic, partition)
            offset, words, epoch = self.committed.get(topic_partition, (-1, "", -1))
            return offset_fetch.PartitionResult(
                partition_index=partition,
                committed_offset=-1 if code else offset,
                metadata=words,
                committed_leader_epoch=epoch,
                error_code=code if version < 2 else 0,
            )

        return offset_fetch.OffsetFetchResponse(
            error_code=code,
            topics=[
                offset_fetch.TopicResult(
                    name=topic.name,
                    partitions=[
                        one(topic.name, partition) for partition in topic.partition_indexes
                    ],
                )
                for topic in request.topics or []
            ],
        )


@asynccontextmanager
async def scripted_cluster(count: int = 1, **script: Any) -> AsyncIterator[ScriptedCluster]:
    async with AsyncExitStack() as stack:
        brokers = [await stack.enter_async_context(scripted_broker(**script)) for _ in range(count)]
        cluster = ScriptedCluster(brokers)
        yield cluster
        cluster.grown.set()
