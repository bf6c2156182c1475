"""The requests of a transactional producer on a simulated cluster, sent as Kafka's clients do.

What may pass is tried again; after anything else the producer is of no more use and gives up.
Source: docs/spec/transactions.md §2.4 to §2.6, §4.1 and §7.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable
from typing import Any, Final

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    add_partitions_to_txn,
    end_txn,
    find_coordinator,
    init_producer_id,
    metadata,
    produce,
)
from barnabas.protocol.records.batch import build_batch
from tests.sim.cluster import NODES, Cluster

TIMEOUT_MS: Final = 20_000
ATTEMPTS: Final = 40
PAUSE_S: Final = 0.1
GROUP: Final = 0
TRANSACTION: Final = 1

RETRIED: Final = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
}
"""What passes by itself."""

Partition = tuple[str, int]
Find = Callable[[], Awaitable[int | None]]


class GaveUp(Exception):  # noqa: N818 - what the producer did
    """The transaction cannot go on: the producer begins with a new epoch."""


def adding(
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: Iterable[Partition],
) -> add_partitions_to_txn.AddPartitionsToTxnRequest:
    """AddPartitionsToTxn 3."""
    by_topic: dict[str, list[int]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, []).append(index)
    return add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=producer_epoch,
        v3_and_below_topics=[
            add_partitions_to_txn.Topic(name=topic, partitions=indexes)
            for topic, indexes in by_topic.items()
        ],
    )


def added_codes(answer: add_partitions_to_txn.AddPartitionsToTxnResponse) -> list[int]:
    """The code of each partition."""
    return [
        partition.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    ]


def ending(
    transactional_id: str, producer_id: int, producer_epoch: int, *, is_commit: bool
) -> end_txn.EndTxnRequest:
    """EndTxn."""
    return end_txn.EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        committed=is_commit,
    )


def one_code(answer: Any) -> Collection[int]:
    """Of an answer that has one."""
    return [answer.error_code]


class Lookups:
    """Who coordinates what and who leads what, as any node says."""

    def __init__(self, cluster: Cluster, fresh_s: float = 0.0) -> None:
        """What was found is believed for ``fresh_s``, as clients do."""
        self._cluster = cluster
        self._fresh_s = fresh_s
        self._found: dict[Hashable, tuple[float, int]] = {}

    async def coordinator(self, key: str, key_type: int) -> int | None:
        """The coordinator of a group or a transactional id; None where there is none for now."""
        if (known := self._known((key, key_type))) is not None:
            return known
        request = find_coordinator.FindCoordinatorRequest(key=key, key_type=key_type)
        answer = await self._asked_of_any(request, 2)
        if answer is None or answer.error_code:
            assert answer is None or answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            return None
        return self._note((key, key_type), int(answer.node_id))

    async def leader(self, partition: Partition) -> int | None:
        """None where there is none for now."""
        if (known := self._known(partition)) is not None:
            return known
        topic, index = partition
        request = metadata.MetadataRequest(topics=[metadata.Topic(name=topic)])
        answer = await self._asked_of_any(request, 9)
        if answer is None or not answer.topics:
            return None
        for found in answer.topics[0].partitions:
            if found.leader_id in NODES:
                self._note((topic, found.partition_index), found.leader_id)
        leaders = {found.partition_index: found.leader_id for found in answer.topics[0].partitions}
        return leaders.get(index) if leaders.get(index) in NODES else None

    def _known(self, what: Hashable) -> int | None:
        found = self._found.get(what)
        if found is None or self._cluster.loop.time() >= found[0] + self._fresh_s:
            return None
        return found[1]

    def _note(self, what: Hashable, node: int) -> int:
        self._found[what] = self._cluster.loop.time(), node
        return node

    async def _asked_of_any(self, request: Any, version: int) -> Any:
        for node in self._cluster.loop.random.sample(NODES, len(NODES)):
            if self._cluster.machines[node].is_up:
                answer = await self._cluster.ask(node, request, version)
                if answer is not None:
                    return answer
        return None


class TransactionalClient:
    """One life of one transactional id."""

    def __init__(self, cluster: Cluster, transactional_id: str, lookups: Lookups) -> None:
        self._cluster = cluster
        self._lookups = lookups
        self._id = transactional_id
        self.identity = transactional_id, -1, -1
        """Transactional id, producer id and epoch."""
        self._producer_id = -1
        self._epoch = -1
        self._sequences: dict[Partition, int] = {}

    async def begin_anew(self) -> None:
        """A new epoch, sequences from 0; what was open is aborted. Raises GaveUp."""
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=self._id, transaction_timeout_ms=TIMEOUT_MS
        )
        answer = await self._retried(request, 4, one_code)
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
        self.identity = self._id, self._producer_id, self._epoch
        self._sequences.clear()

    async def coordinator(self) -> int | None:
        """Of the transactional id."""
        return await self._lookups.coordinator(self._id, TRANSACTION)

    async def _ask(self, node: int, request: Any, version: int) -> Any:
        """One request; None when the node did not answer."""
        return await self._cluster.ask(node, request, version)

    async def _add(self, partitions: Iterable[Partition]) -> None:
        request = adding(self._id, self._producer_id, self._epoch, partitions)
        await self._retried(request, 3, added_codes)

    async def _finish(self, *, is_commit: bool) -> None:
        request = ending(self._id, self._producer_id, self._epoch, is_commit=is_commit)
        await self._retried(request, 3, one_code)

    async def _write(self, partition: Partition, value: bytes) -> int:
        """One record; a retry has the same sequence. Returns its offset, or raises GaveUp."""
        topic, index = partition
        sequence = self._sequences.get(partition, 0)
        data = build_batch(
            [(None, value)],
            timestamp_ms=self._cluster.loop.wall_ms(),
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        request = produce.ProduceRequest(
            transactional_id=self._id,
            acks=-1,
            timeout_ms=2000,
            topic_data=[
                produce.Topic(
                    name=topic,
                    partition_data=[produce.Partition(index=index, records=bytes(data))],
                )
            ],
        )
        answer = await self._retried(
            request,
            9,
            lambda answer: [answer.responses[0].partition_responses[0].error_code],
            lambda: self._lookups.leader(partition),
        )
        self._sequences[partition] = sequence + 1
        return int(answer.responses[0].partition_responses[0].base_offset)

    async def _retried(
        self,
        request: Any,
        version: int,
        codes: Callable[[Any], Collection[int]],
        find: Find | None = None,
    ) -> Any:
        """The answer with NONE only, of the coordinator or of whom ``find`` names.

        Raises GaveUp for what does not pass.
        """
        find = find or self.coordinator
        for _ in range(ATTEMPTS):
            node = await find()
            answer = None if node is None else await self._ask(node, request, version)
            if answer is not None:
                found = {*codes(answer)}
                if found == {ErrorCode.NONE}:
                    return answer
                if not found <= RETRIED | {ErrorCode.NONE}:
                    raise GaveUp(found)
            await asyncio.sleep(PAUSE_S)
        raise GaveUp
