"""Producers that write transactions on a simulated cluster, and what they were told.

Each writes one record to every partition of a few topics' partitions in each transaction, and ends
it. It does what Kafka's clients do about every code: retries what may pass, and after anything else
asks for a new epoch, which aborts what it had open.
Source: docs/spec/transactions.md §2.4 to §2.6 and §7.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
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
}
"""What passes by itself."""


class Outcome(Enum):
    """What is known of the end of a transaction."""

    OPEN = "its end was never asked for: it must be aborted"
    UNKNOWN = "its commit was asked for and never answered"
    COMMITTED = "its commit was answered with NONE"
    ABORTED = "its abort was answered with NONE"


@dataclass
class Transaction:
    """One transaction of one producer."""

    name: bytes
    """The value of each of its records."""
    producer_id: int
    producer_epoch: int
    partitions: Sequence[tuple[str, int]]
    written: dict[tuple[str, int], int] = field(default_factory=dict)
    """Partitions in which its record was acknowledged, and the offset."""
    outcome: Outcome = Outcome.OPEN


class GaveUp(Exception):  # noqa: N818 - what the producer did
    """The transaction cannot go on: the producer begins with a new epoch."""


def adding(
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: Sequence[tuple[str, int]],
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


class TransactionalProducer:
    """One transactional id."""

    def __init__(
        self, cluster: Cluster, transactional_id: str, partitions: Sequence[tuple[str, int]]
    ) -> None:
        self.transactions: list[Transaction] = []
        self._cluster = cluster
        self._id = transactional_id
        self._partitions = partitions
        self.identity = transactional_id, -1, -1
        """Transactional id, producer id and epoch."""
        self._producer_id = -1
        self._epoch = -1
        self._sequences: dict[tuple[str, int], int] = {}

    async def run(self) -> None:
        """One transaction after the other, until cancelled."""
        while True:
            try:
                await self.begin_anew()
                while True:
                    await self._transact()
            except GaveUp:
                await asyncio.sleep(PAUSE_S)

    async def begin_anew(self) -> None:
        """A new epoch, sequences from 0; what was open is aborted. Raises GaveUp."""
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=self._id, transaction_timeout_ms=TIMEOUT_MS
        )
        answer = await self._retried(request, 4, lambda answer: [answer.error_code])
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
        self.identity = self._id, self._producer_id, self._epoch
        self._sequences.clear()

    async def _transact(self) -> None:
        rng = self._cluster.loop.random
        chosen = rng.sample(self._partitions, rng.randint(1, len(self._partitions)))
        name = f"{self._id}/{len(self.transactions)}".encode()
        now = Transaction(name, self._producer_id, self._epoch, chosen)
        self.transactions.append(now)
        await self._add(chosen)
        for partition in chosen:
            now.written[partition] = await self._write(partition, name)
            await asyncio.sleep(rng.uniform(0, 0.03))
        is_commit = rng.random() < 0.7
        if is_commit:
            now.outcome = Outcome.UNKNOWN
        request = ending(self._id, self._producer_id, self._epoch, is_commit=is_commit)
        await self._retried(request, 3, lambda answer: [answer.error_code])
        now.outcome = Outcome.COMMITTED if is_commit else Outcome.ABORTED

    async def _add(self, partitions: Sequence[tuple[str, int]]) -> None:
        request = adding(self._id, self._producer_id, self._epoch, partitions)
        await self._retried(request, 3, added_codes)

    async def _write(self, partition: tuple[str, int], value: bytes) -> int:
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
        for _ in range(ATTEMPTS):
            node = await self._leader(topic, index)
            answer = None if node is None else await self._cluster.ask(node, request, 9)
            if answer is not None:
                result = answer.responses[0].partition_responses[0]
                if result.error_code == ErrorCode.NONE:
                    self._sequences[partition] = sequence + 1
                    return int(result.base_offset)
                if result.error_code not in RETRIED:
                    raise GaveUp(result.error_code)
            await asyncio.sleep(PAUSE_S)
        raise GaveUp

    async def _retried(self, request: Any, version: int, codes: Any) -> Any:
        """The answer of the coordinator with NONE only; raises GaveUp for what does not pass."""
        for _ in range(ATTEMPTS):
            node = await self.coordinator()
            answer = None if node is None else await self._cluster.ask(node, request, version)
            if answer is not None:
                found = {*codes(answer)}
                if found == {ErrorCode.NONE}:
                    return answer
                if not found <= RETRIED | {ErrorCode.NONE}:
                    raise GaveUp(found)
            await asyncio.sleep(PAUSE_S)
        raise GaveUp

    async def coordinator(self) -> int | None:
        """The node that any other names; None where there is none for now."""
        request = find_coordinator.FindCoordinatorRequest(key=self._id, key_type=TRANSACTION)
        answer = await self._asked_of_any(request, 2)
        if answer is None or answer.error_code:
            assert answer is None or answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            return None
        return int(answer.node_id)

    async def _leader(self, topic: str, index: int) -> int | None:
        request = metadata.MetadataRequest(topics=[metadata.Topic(name=topic)])
        answer = await self._asked_of_any(request, 9)
        if answer is None or not answer.topics:
            return None
        leaders = {found.partition_index: found.leader_id for found in answer.topics[0].partitions}
        return leaders.get(index) if leaders.get(index) in NODES else None

    async def _asked_of_any(self, request: Any, version: int) -> Any:
        for node in self._cluster.loop.random.sample(NODES, len(NODES)):
            if self._cluster.machines[node].is_up:
                answer = await self._cluster.ask(node, request, version)
                if answer is not None:
                    return answer
        return None
