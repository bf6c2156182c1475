"""A scripted cluster that coordinates transactions, and is told what to answer wrongly.

The coordinator follows docs/spec/transactions.md §2 as far as one producer can see it, and marks
nothing in the logs: what was committed is what a test finds in ``committed``.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from barnabas.client.cluster import TopicPartition
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    find_coordinator,
    init_producer_id,
    txn_offset_commit,
)
from barnabas.protocol.records import batch
from barnabas.protocol.records.header import TRANSACTIONAL

from .scripted_broker import ScriptedBroker, scripted_broker
from .scripted_cluster import ScriptedCluster

PRODUCER_ID = 7_000


class ScriptedTransactions(ScriptedCluster):
    """Brokers of which one coordinates the transactions of every id."""

    def __init__(self, brokers: list[ScriptedBroker]) -> None:
        super().__init__(brokers)
        self.transaction_coordinator = 1
        self.codes: dict[ApiKey, list[int]] = defaultdict(list)
        """What is answered next, by API, before it is served again."""
        self.silent: dict[ApiKey, int] = defaultdict(int)
        """How many of the next requests are served, but never answered: the connection ends."""
        self.before: Callable[[int, ApiKey, Any], None] = lambda node, key, request: None
        """Sees each request of a transaction before it is served."""
        self.served: list[ApiKey] = []
        """The transactional requests, in the order in which they came."""
        self.epoch = -1
        self.open: set[TopicPartition | str] = set()
        """Partitions and groups of the open transaction."""
        self.is_ongoing = False
        self.last_end: bool | None = None
        self.sent: list[tuple[TopicPartition, int, int, bytes]] = []
        """Partition, epoch, sequence and value of the records of the open transaction."""
        self.committed_values: list[bytes] = []
        self.aborted_values: list[bytes] = []
        self.pending_offsets: dict[TopicPartition, tuple[int, str, int]] = {}
        self.members: list[tuple[int, str, str | None]] = []
        for number, broker in self.brokers.items():
            broker.answers = {
                **broker.answers,
                ApiKey.FIND_COORDINATOR: self._wrapped(number, ApiKey.FIND_COORDINATOR, self.find),
                ApiKey.INIT_PRODUCER_ID: self._wrapped(number, ApiKey.INIT_PRODUCER_ID, self.init),
                ApiKey.ADD_PARTITIONS_TO_TXN: self._wrapped(
                    number, ApiKey.ADD_PARTITIONS_TO_TXN, self.add_partitions
                ),
                ApiKey.ADD_OFFSETS_TO_TXN: self._wrapped(
                    number, ApiKey.ADD_OFFSETS_TO_TXN, self.add_offsets
                ),
                ApiKey.TXN_OFFSET_COMMIT: self._wrapped(
                    number, ApiKey.TXN_OFFSET_COMMIT, self.store_offsets
                ),
                ApiKey.END_TXN: self._wrapped(number, ApiKey.END_TXN, self.end),
            }

    def count(self, key: ApiKey) -> int:
        """How many requests of this kind came."""
        return self.served.count(key)

    def hold(self, number: int, key: ApiKey) -> asyncio.Event:
        """Answer no request of this kind at this broker before the event is set."""
        broker, release = self.brokers[number], asyncio.Event()
        serve = broker.answers[key]

        async def held(request: Any, version: int) -> Any:
            await release.wait()
            return serve(request, version)

        broker.answers = {**broker.answers, key: held}
        return release

    def _wrapped(self, number: int, key: ApiKey, serve: Callable[[int, Any, int], Any]) -> Any:
        def answer(request: Any, version: int) -> Any:
            self.before(number, key, request)
            self.served.append(key)
            code = self.codes[key].pop(0) if self.codes[key] else self._refusal_of(number, key)
            response = serve(code, request, version)
            if self.silent[key]:
                self.silent[key] -= 1
                for writer in self.brokers[number].writers:
                    writer.close()
                return None
            return response

        return answer

    def _refusal_of(self, number: int, key: ApiKey) -> int:
        if key is ApiKey.FIND_COORDINATOR:
            return 0
        keeper = (
            self.coordinator if key is ApiKey.TXN_OFFSET_COMMIT else self.transaction_coordinator
        )
        return 0 if number == keeper else ErrorCode.NOT_COORDINATOR

    def find(self, code: int, request: Any, version: int) -> Any:
        number = self.transaction_coordinator if request.key_type else self.coordinator
        if code:
            return find_coordinator.FindCoordinatorResponse(
                error_code=code, node_id=-1, host="", port=-1
            )
        port = self.brokers[number].port
        return find_coordinator.FindCoordinatorResponse(node_id=number, host="127.0.0.1", port=port)

    def init(self, code: int, request: Any, version: int) -> Any:
        if code or request.transactional_id is None:
            return init_producer_id.InitProducerIdResponse(
                error_code=code, producer_id=-1 if code else 1, producer_epoch=0
            )
        self._over(is_commit=False)
        self.epoch += 1
        return init_producer_id.InitProducerIdResponse(
            producer_id=PRODUCER_ID, producer_epoch=self.epoch
        )

    def _judged(self, code: int, request: Any) -> int:
        epoch = getattr(request, "producer_epoch", None)
        if epoch is None:
            epoch = request.v3_and_below_producer_epoch
        return code or (0 if epoch == self.epoch else ErrorCode.PRODUCER_FENCED)

    def add_partitions(self, code: int, request: Any, version: int) -> Any:
        code = self._judged(code, request)
        asked = {
            TopicPartition(topic.name, partition)
            for topic in request.v3_and_below_topics
            for partition in topic.partitions
        }
        assert asked, "a request for nothing"
        if not code:
            self.open |= asked
            self.is_ongoing = True
        return add_partitions_to_txn.AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                add_partitions_to_txn.TopicResult(
                    name=topic.name,
                    results_by_partition=[
                        add_partitions_to_txn.PartitionResult(
                            partition_index=partition, partition_error_code=code
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in request.v3_and_below_topics
            ]
        )

    def add_offsets(self, code: int, request: Any, version: int) -> Any:
        code = self._judged(code, request)
        if not code:
            self.open.add(request.group_id)
            self.is_ongoing = True
        return add_offsets_to_txn.AddOffsetsToTxnResponse(error_code=code)

    def store_offsets(self, code: int, request: Any, version: int) -> Any:
        """``code`` for the first partition only, so that a retry asks for it alone."""
        fenced = self._judged(0, request)
        if not fenced and request.group_id not in self.open:
            fenced = ErrorCode.INVALID_TXN_STATE
        self.members.append((request.generation_id, request.member_id, request.group_instance_id))
        results = []
        for topic in request.topics:
            partitions = []
            for asked in topic.partitions:
                found, code = code or fenced, 0
                if not found:
                    place = TopicPartition(topic.name, asked.partition_index)
                    words, epoch = asked.committed_metadata or "", asked.committed_leader_epoch
                    self.pending_offsets[place] = (asked.committed_offset, words, epoch)
                partitions.append(
                    txn_offset_commit.PartitionResult(
                        partition_index=asked.partition_index, error_code=found
                    )
                )
            results.append(txn_offset_commit.TopicResult(name=topic.name, partitions=partitions))
        return txn_offset_commit.TxnOffsetCommitResponse(topics=results)

    def end(self, code: int, request: Any, version: int) -> Any:
        code = self._judged(code, request)
        if not code and not self.is_ongoing:
            code = 0 if self.last_end is request.committed else ErrorCode.INVALID_TXN_STATE
        elif not code:
            self._over(is_commit=request.committed)
        return end_txn.EndTxnResponse(error_code=code)

    def _over(self, *, is_commit: bool) -> None:
        if self.is_ongoing:
            self.last_end = is_commit
        values = [value for _, _, _, value in self.sent]
        (self.committed_values if is_commit else self.aborted_values).extend(values)
        if is_commit:
            self.committed.update(self.pending_offsets)
        self.sent, self.pending_offsets, self.open = [], {}, set()
        self.is_ongoing = False

    def answer_produce(self, number: int, request: Any, version: int) -> Any:
        answer = super().answer_produce(number, request, version)
        assert answer is not None, "transactions need acks=-1"
        for topic, results in zip(request.topic_data, answer.responses, strict=True):
            for sent, result in zip(topic.partition_data, results.partition_responses, strict=True):
                if result.error_code:
                    continue
                place = TopicPartition(topic.name, sent.index)
                head = batch.header(sent.records, 0)
                assert request.transactional_id, "a transactional producer says its id"
                assert head.attributes & TRANSACTIONAL, "a batch outside the transaction"
                assert place in self.open, f"{place} was not added to the transaction"
                assert head.producer_epoch == self.epoch, "a batch of another epoch"
                self.sent += [
                    (place, head.producer_epoch, head.base_sequence + index, record.value or b"")
                    for index, record in enumerate(batch.records(sent.records, 0))
                ]
        return answer


@asynccontextmanager
async def scripted_transactions(count: int = 1) -> AsyncIterator[ScriptedTransactions]:
    async with AsyncExitStack() as stack:
        brokers = [await stack.enter_async_context(scripted_broker()) for _ in range(count)]
        yield ScriptedTransactions(brokers)


async def until(condition: Any) -> None:
    """Return when it holds; the time-out is of the test's own."""
    async with asyncio.timeout(90):
        while True:
            if condition():
                return
            await asyncio.sleep(0.001)
