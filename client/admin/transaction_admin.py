"""Administration of transactions: list, describe, find those that hang, and abort them.

A transaction hangs when a partition holds it open and no coordinator is going to end it. It blocks
readers of committed records and compaction of that partition until somebody aborts it.
Source: docs/spec/transactions.md §2.8 and §6; KIP-664.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from barnabas.client.cluster import TRANSACTION, TopicPartition, version_for
from barnabas.client.errors import (
    Disconnected,
    KafkaError,
    UnsupportedVersion,
    known_code,
    raise_for,
)
from barnabas.client.retry import Attempts, Remedy, may_succeed_later, remedy
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import describe_producers as producers_api
from barnabas.protocol.messages import describe_transactions, write_txn_markers
from barnabas.protocol.messages import list_transactions as listing_api

from .log_offsets import LogOffsets
from .transaction_descriptions import (
    OpenTransaction,
    PartitionProducers,
    ProducerDescription,
    TransactionDescription,
    TransactionListing,
)

T = TypeVar("T")

NO_DURATION: Final = -1
TRANSACTION_TOPIC: Final = "__transaction_state"
_AT_ONCE: Final = 500
"""So many partitions go into one DescribeProducers: each may answer with thousands of producers."""
_DURATION_SINCE: Final = 1
_NOT_SET: Final = -1
_NOT_STARTED: Final = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE})


class TransactionAdmin(LogOffsets):
    """The part of the administrator that knows transactions."""

    async def list_transactions(
        self,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        longer_than_ms: int = NO_DURATION,
    ) -> list[TransactionListing]:
        """Every transactional id of every coordinator, by coordinator and name.

        ``states`` (Kafka's words, exact case) and ``producer_ids`` filter; none lets all pass.
        ``longer_than_ms`` keeps those that began longer ago, and those that never began.
        Waits for a coordinator that loads; one that has not started fails the call, since its
        ids would be missing. Raises KafkaError, UnsupportedVersion for a duration that a node does
        not filter by.
        """
        nodes = await self.cluster.nodes()
        request = listing_api.ListTransactionsRequest(
            state_filters=states, producer_id_filters=producer_ids, duration_filter=longer_than_ms
        )
        listed = await asyncio.gather(*(self._listed_by(node.id, request) for node in nodes))
        return [listing for of_node in listed for listing in of_node]

    async def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        """The transaction of this id; raises TRANSACTIONAL_ID_NOT_FOUND where there is none."""
        request = describe_transactions.DescribeTransactionsRequest(
            transactional_ids=[transactional_id]
        )

        answer = await self.cluster.to_transaction_coordinator(
            transactional_id, request, _codes_of_description
        )
        found: describe_transactions.Transaction = answer.transaction_states[0]
        raise_for(found.error_code, transactional_id)
        coordinator = await self.cluster.coordinator_of(transactional_id, TRANSACTION)
        return _described(found, coordinator.id)

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, node_id: int | None = None
    ) -> dict[TopicPartition, PartitionProducers]:
        """Who writes to each of these partitions, as its leader remembers, or as one replica does.

        A partition that cannot be described is answered with its code and holds up no other.
        Leaders that move are looked up again; a replica that was named is asked as it is.
        """
        wanted = sorted(set(partitions))
        if node_id is not None:
            return await self._producers_at(node_id, wanted)
        found: dict[TopicPartition, PartitionProducers] = {}

        async def ask() -> None:
            missing = [
                topic_partition
                for topic_partition in wanted
                if topic_partition not in found or found[topic_partition].is_moved
            ]
            found.update(await self._producers_at_leaders(missing))
            moved = [one for one in missing if found[one].is_moved]
            if moved:
                self.cluster.forget_leaders(moved)
                raise KafkaError(_why_again(found[one].error for one in moved))

        try:
            await self._retried(ask)
        except KafkaError:
            if len(found) < len(wanted):
                raise
        return found

    async def find_hanging(
        self,
        partitions: Iterable[TopicPartition],
        *,
        now_ms: int,
        open_longer_than_ms: int,
        node_id: int | None = None,
    ) -> tuple[list[OpenTransaction], dict[TopicPartition, ErrorCode]]:
        """The transactions that hang in these partitions, and which of them could not be asked.

        A transaction hangs when its last record is older than ``open_longer_than_ms`` and no
        transactional id has its producer id, or the one that has it does not know the partition.
        ``now_ms`` is compared with timestamps of records.
        """
        described = await self.describe_producers(partitions, node_id=node_id)
        failures = {
            topic_partition: producers.error
            for topic_partition, producers in described.items()
            if producers.error
        }
        late = [
            transaction
            for transaction in open_in(described)
            if now_ms - transaction.producer.last_timestamp > open_longer_than_ms
        ]
        holders = await self.holders_of(late)
        return [transaction for transaction in late if transaction not in holders], failures

    async def holders_of(
        self, transactions: Sequence[OpenTransaction]
    ) -> dict[OpenTransaction, TransactionDescription]:
        """Who is going to end each of these; one that is left out hangs.

        Raises COORDINATOR_NOT_AVAILABLE while a partition of the transaction log has no leader:
        whoever has a transaction could not be asked, and it would be taken for one that hangs.
        """
        if not transactions:
            return {}
        await self._require_coordinators()
        ids = await self.list_transactions(
            producer_ids=sorted({one.producer.producer_id for one in transactions})
        )
        described = await asyncio.gather(
            *(self._described_if_there(listing.transactional_id) for listing in ids)
        )
        # Listed and described are two questions: an id may have expired, or have begun another
        # transaction with another producer id, in between.
        by_part = {
            (description.producer_id, topic_partition): description
            for description in described
            if description is not None
            for topic_partition in description.partitions
        }
        keys = {one: (one.producer.producer_id, one.partition) for one in transactions}
        return {one: by_part[key] for one, key in keys.items() if key in by_part}

    async def _require_coordinators(self) -> None:
        answer = await self.cluster.metadata([TRANSACTION_TOPIC])
        for topic in answer.topics:
            for partition in topic.partitions:
                if partition.leader_id < 0:
                    where = f"{TRANSACTION_TOPIC}-{partition.partition_index} has no leader"
                    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, where)

    async def open_transaction(
        self, partition: TopicPartition, start_offset: int
    ) -> OpenTransaction | None:
        """The transaction that is open in ``partition`` since ``start_offset``; None for none."""
        found = (await self.describe_producers([partition]))[partition]
        if found.error:
            raise KafkaError(found.error, f"{partition.topic}-{partition.partition}")
        for transaction in open_in({partition: found}):
            if transaction.start_offset == start_offset:
                return transaction
        return None

    async def abort_transaction(self, partition: TopicPartition, start_offset: int) -> bool:
        """Write an abort marker for what is open since ``start_offset``; False if nothing is.

        The producer may go on in the same epoch. Whether a coordinator has the transaction is not
        looked at: :meth:`holders_of` tells. Raises KafkaError.
        """
        has_sent = False

        async def attempt() -> bool:
            # Looked up before every attempt: a marker that arrives after its answer was lost, and
            # then a second time, would end whatever its producer has begun since.
            nonlocal has_sent
            transaction = await self.open_transaction(partition, start_offset)
            if transaction is None:
                return has_sent
            had_sent, has_sent = has_sent, True
            try:
                await self._write_abort_marker(transaction)
            except KafkaError as error:
                is_refused = error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                if not is_refused or await self.open_transaction(partition, start_offset):
                    raise
                return had_sent  # nodes of ours refuse it where it has ended meanwhile
            return True

        return await self._retried(attempt)

    async def _write_abort_marker(self, transaction: OpenTransaction) -> None:
        producer, (topic, index) = transaction.producer, transaction.partition
        marker = write_txn_markers.Marker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=False,
            topics=[write_txn_markers.Topic(name=topic, partition_indexes=[index])],
            # No marker was ever written for this producer: any epoch passes, 0 is the lowest.
            coordinator_epoch=max(producer.coordinator_epoch, 0),
        )
        leaders = await self.cluster.leaders([transaction.partition])
        leader = leaders.get(transaction.partition)
        if leader is None:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{index}")
        try:
            answer = await self.cluster.ask(
                leader, write_txn_markers.WriteTxnMarkersRequest(markers=[marker])
            )
        except Disconnected:
            self.cluster.forget_leaders([transaction.partition])
            raise
        for code in _marker_codes(answer):
            if code:
                self.cluster.forget_leaders([transaction.partition])
                raise KafkaError(code, f"{topic}-{index}")

    async def _listed_by(
        self, node_id: int, request: listing_api.ListTransactionsRequest
    ) -> list[TransactionListing]:
        async def ask() -> list[TransactionListing]:
            if request.duration_filter >= 0:
                connection = await self.cluster.connection_to(node_id)
                # A node that does not know the filter would list everything.
                if version_for(connection, type(request)) < _DURATION_SINCE:
                    raise UnsupportedVersion(f"node {node_id} cannot filter by duration")
            answer: listing_api.ListTransactionsResponse = await self.cluster.ask(node_id, request)
            if answer.error_code:
                raise KafkaError(answer.error_code, f"node {node_id}")
            if answer.unknown_state_filters:
                words = ", ".join(answer.unknown_state_filters)
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"no state of transactions: {words}")
            return [
                TransactionListing(
                    transactional_id=found.transactional_id,
                    coordinator=node_id,
                    producer_id=found.producer_id,
                    state=found.transaction_state,
                )
                for found in sorted(answer.transaction_states, key=_id_of)
            ]

        return await self._retried(ask, final=_NOT_STARTED)

    async def _described_if_there(self, transactional_id: str) -> TransactionDescription | None:
        try:
            return await self.describe_transaction(transactional_id)
        except KafkaError as error:
            if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
            return None

    async def _producers_at_leaders(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, PartitionProducers]:
        """One round over the leaders that are known; LEADER_NOT_AVAILABLE where there is none."""
        leaders = await self.cluster.leaders(partitions)
        by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
        found: dict[TopicPartition, PartitionProducers] = {}
        for topic_partition in partitions:
            leader = leaders.get(topic_partition)
            if leader is None:
                code = self._code_without_leader(topic_partition)
                found[topic_partition] = PartitionProducers(error=code)
            else:
                by_leader[leader].append(topic_partition)
        asked = (self._producers_if_up(*of_leader) for of_leader in by_leader.items())
        for described in await asyncio.gather(*asked):
            found.update(described)
        return found

    async def _producers_if_up(
        self, node_id: int, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, PartitionProducers]:
        try:
            return await self._producers_at(node_id, partitions)
        except KafkaError as error:
            if not may_succeed_later(error):
                raise
            return dict.fromkeys(partitions, PartitionProducers(error=error.code))

    def _code_without_leader(self, topic_partition: TopicPartition) -> ErrorCode:
        topology = self.cluster.topology
        if topic_partition.partition >= topology.counts.get(topic_partition.topic, 0):
            return topology.topic_errors.get(
                topic_partition.topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        return ErrorCode.LEADER_NOT_AVAILABLE

    async def _producers_at(
        self, node_id: int, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, PartitionProducers]:
        found: dict[TopicPartition, PartitionProducers] = {}
        for start in range(0, len(partitions), _AT_ONCE):
            request = _producers_request(partitions[start : start + _AT_ONCE])
            answer = await self.cluster.ask(node_id, request)
            for topic in answer.topics:
                for result in topic.partitions:
                    topic_partition = TopicPartition(topic.name, result.partition_index)
                    found[topic_partition] = PartitionProducers(
                        error=known_code(result.error_code),
                        producers=[_producer(producer) for producer in result.active_producers],
                    )
        return found

    async def _retried(
        self, ask: Callable[[], Awaitable[T]], *, final: frozenset[ErrorCode] = frozenset()
    ) -> T:
        """``ask`` until it succeeds or raises what no retry mends, or a code in ``final``."""
        clock = asyncio.get_running_loop().time
        attempts = Attempts(self.cluster.config, self.cluster.random, clock())
        while True:
            try:
                return await ask()
            except KafkaError as error:
                step, why = remedy([error.code])
                if step is Remedy.GIVE_UP or error.code in final:
                    raise
                pause_s = attempts.backoff_after(why, clock())
                if pause_s is None:
                    raise
            await asyncio.sleep(pause_s)


def _why_again(codes: Iterable[ErrorCode]) -> ErrorCode:
    """A topic that nobody knows is not waited for as long as a leader that is not there."""
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return unknown if set(codes) == {unknown} else ErrorCode.LEADER_NOT_AVAILABLE


def open_in(
    described: Mapping[TopicPartition, PartitionProducers],
) -> list[OpenTransaction]:
    """The transactions that are open in these partitions, in the order of partition and start."""
    found = [
        OpenTransaction(
            partition=topic_partition, start_offset=producer.start_offset, producer=producer
        )
        for topic_partition, producers in described.items()
        for producer in producers.producers
        if producer.start_offset is not None
    ]
    return sorted(found, key=lambda one: (one.partition, one.start_offset))


def _described(
    found: describe_transactions.Transaction, coordinator: int
) -> TransactionDescription:
    start_ms = found.transaction_start_time_ms
    return TransactionDescription(
        transactional_id=found.transactional_id,
        coordinator=coordinator,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        state=found.transaction_state,
        timeout_ms=found.transaction_timeout_ms,
        start_ms=None if start_ms == _NOT_SET else start_ms,
        partitions=sorted(
            TopicPartition(topic.topic, partition)
            for topic in found.topics
            for partition in topic.partitions
        ),
    )


def _producers_request(
    partitions: Iterable[TopicPartition],
) -> producers_api.DescribeProducersRequest:
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, index in partitions:
        topics[topic].append(index)
    return producers_api.DescribeProducersRequest(
        topics=[
            producers_api.Topic(name=name, partition_indexes=indexes)
            for name, indexes in topics.items()
        ]
    )


def _producer(producer: producers_api.Producer) -> ProducerDescription:
    start = producer.current_txn_start_offset
    return ProducerDescription(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        coordinator_epoch=producer.coordinator_epoch,
        last_sequence=producer.last_sequence,
        last_timestamp=producer.last_timestamp,
        start_offset=None if start == _NOT_SET else start,
    )


def _codes_of_description(answer: Any) -> Iterable[int]:
    return (found.error_code for found in answer.transaction_states)


def _marker_codes(answer: Any) -> Iterable[int]:
    return (
        partition.error_code
        for marker in answer.markers
        for topic in marker.topics
        for partition in topic.partitions
    )


def _id_of(transaction: listing_api.Transaction) -> str:
    return transaction.transactional_id
