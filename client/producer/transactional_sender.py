"""Records of a transactional producer: which batches may leave, and what their failure means.

What differs from the sender of other producers: a batch leaves only when the coordinator knows of
its partition, a batch that is lost means that the transaction must be aborted, and broken sequences
are mended by another epoch behind the abort instead of another producer id at once.

Source: docs/spec/transactions.md §7; KIP-98, KIP-360.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final

from barnabas.client.cluster import Cluster
from barnabas.client.errors import KafkaError, QueueFull
from barnabas.client.topology import TopicPartition
from barnabas.protocol.records.record import HeaderPair

from .accumulator import (
    Delivery,
    PartitionQueue,
    ProducerBatch,
    ProducerIdAndEpoch,
    RecordAccumulator,
)
from .producer_config import ProducerConfig
from .sender import Sender
from .transaction_errors import Request, Treatment, treatment_of
from .transaction_manager import TransactionManager

_AGAIN: Final = frozenset({Treatment.RETRY, Treatment.RETRY_BEHIND_A_FAILURE})


class TransactionalQueue(PartitionQueue):
    """One partition; nothing leaves before the coordinator has added it to the transaction."""

    __slots__ = ("is_added",)

    def __init__(self, topic_partition: TopicPartition) -> None:
        super().__init__(topic_partition)
        self.is_added = False
        """Part of the transaction: until then a leader would refuse what we send, or worse, take
        records that no end of the transaction reaches (KAFKA-5364, KAFKA-12870)."""

    def is_ready(self, now: float, in_flight_max: int, *, is_flushing: bool) -> bool:
        """Whether its first batch may leave."""
        return self.is_added and super().is_ready(now, in_flight_max, is_flushing=is_flushing)

    def ready_in_s(self, now: float) -> float | None:
        """Seconds until it is ready by time alone; until it expires when it is not added."""
        if not self.is_added:
            return max(0.0, self.waiting[0].deadline - now)
        return super().ready_in_s(now)

    def take_unsent(self) -> deque[ProducerBatch]:
        """Take out the batches that have no number: they never left."""
        unsent: deque[ProducerBatch] = deque()
        while self.waiting and self.waiting[-1].sequence < 0:
            unsent.appendleft(self.waiting.pop())
        return unsent


class TransactionalAccumulator(RecordAccumulator):
    """Takes records only inside a transaction, and tells it of the partitions."""

    def __init__(
        self,
        config: ProducerConfig,
        loop: asyncio.AbstractEventLoop,
        transactions: TransactionManager,
    ) -> None:
        super().__init__(config, loop)
        self._transactions = transactions

    def add(
        self,
        topic_partition: tuple[str, int],
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[HeaderPair],
        timestamp_ms: int,
        delivery: Delivery,
    ) -> bool:
        """Append a record; True when it is the first of a new batch.

        Raises AbortableTransactionError, FatalTransactionError, or INVALID_TXN_STATE outside a
        transaction. A record that is too large makes the transaction abortable: a commit without
        it would be half of what was meant.
        """
        self._transactions.check_may_send()
        try:
            is_new = super().add(topic_partition, key, value, headers, timestamp_ms, delivery)
        except QueueFull:
            raise
        except KafkaError as error:
            self._transactions.must_abort(error, bump=False)
            raise
        if is_new:
            self._transactions.add_partition(self.queues[topic_partition].topic_partition)
        return is_new

    def new_queue(self, topic_partition: TopicPartition) -> PartitionQueue:
        """The queue of a partition that had none."""
        return TransactionalQueue(topic_partition)


class TransactionalSender(Sender):
    """Sends the batches of transactions, and tells the manager what becomes of them."""

    def __init__(
        self,
        cluster: Cluster,
        config: ProducerConfig,
        accumulator: TransactionalAccumulator,
        transactions: TransactionManager,
        *,
        routed: Callable[[], Awaitable[None]],
        drop_unrouted: Callable[[KafkaError], None],
    ) -> None:
        super().__init__(cluster, config, accumulator)
        self._transactions = transactions
        self._routed = routed
        self._drop_unrouted = drop_unrouted

    # What the transaction decides: TransactionRecords.

    async def routed(self) -> None:
        """Return when every record taken so far has found its partition, or was refused."""
        await self._routed()

    async def settled(self, is_wanted: Callable[[], bool]) -> None:
        """Return when every batch was acknowledged or failed, or is not waited for any more."""
        self.flushing += 1
        try:
            self.wake()
            while self._accumulator.incomplete and is_wanted():
                await self.memory_freed.wait()
        finally:
            self.flushing -= 1

    def admit(self, topic_partitions: Collection[TopicPartition]) -> None:
        """These are part of the transaction now: their batches may leave."""
        for topic_partition in topic_partitions:
            self._queues[topic_partition].is_added = True
        self.wake()

    def end_transaction(self) -> None:
        """No partition is part of a transaction now."""
        assert not self._accumulator.incomplete, "a batch would be part of the next transaction"
        for queue in self._queues.values():
            queue.is_added = False

    def drop_unsent(self, error: KafkaError) -> None:
        """Fail what never left; what left goes on to be acknowledged."""
        self._drop_unrouted(error)
        for queue in self._queues.values():
            for batch in queue.take_unsent():
                self._accumulator.complete(batch, -1, error)
        self.memory_freed.notify()

    def drop_waiting(self, error: KafkaError) -> None:
        """Fail whatever is not in flight: its sequence numbers are void."""
        for queue in self._queues.values():
            while queue.waiting:
                self._accumulator.complete(queue.waiting.popleft(), -1, error)
        self.memory_freed.notify()

    def fail_all(self, error: KafkaError) -> None:
        """Fail every batch there is."""
        self._drop_unrouted(error)
        self._fail_all(error)

    def use(self, producer_id: ProducerIdAndEpoch) -> None:
        """Number what comes from 0 under this id and epoch; nothing is in flight."""
        self._producer_id = producer_id
        for queue in self._queues.values():
            assert not queue.in_flight, "a batch of the old epoch would be refused behind the new"
            queue.renumber(producer_id)

    # What the sender does otherwise.

    @property
    def _queues(self) -> dict[tuple[str, int], TransactionalQueue]:
        return self._accumulator.queues  # type: ignore[return-value]

    async def _ensure_producer_ids(self) -> None:
        """The manager has the id before the first record is taken."""

    def _retry_or_fail(self, queue: PartitionQueue) -> None:
        """Put back what may be retried and fail the rest, once nothing is in flight any more.

        Behind a batch that is lost nothing is retried under this epoch: its numbers follow on
        those of the lost one.
        """
        now = asyncio.get_running_loop().time()
        again: list[ProducerBatch] = []
        for batch in list(queue.in_flight):
            queue.in_flight.remove(batch)
            assert batch.error is not None, "retried before all were answered"
            treatment = self._treatment(batch, now, has_failed_before=bool(again))
            if treatment is Treatment.RETRY and not self._transactions.needs_bump:
                again.append(batch)
            else:
                self._give_up(batch, batch.error, is_fatal=treatment is Treatment.FAIL)
        if self._transactions.needs_bump:
            for batch in again:
                assert batch.error is not None, "retried without a reason"
                self._give_up(batch, batch.error)
            again = []
        queue.reenqueue(again, now + self._config.retry_backoff_ms / 1000)
        if queue.waiting:
            self._accumulator.active[queue.topic_partition] = queue

    def _treatment(self, batch: ProducerBatch, now: float, *, has_failed_before: bool) -> Treatment:
        error, retries = batch.error, self._config.retries
        assert error is not None, "treated without a reason"
        treatment = treatment_of(Request.PRODUCE, error)
        is_over = now >= batch.deadline or (retries is not None and batch.attempts > retries)
        # In order behind a batch that goes again, this one will be as well.
        if treatment is Treatment.RETRY_BEHIND_A_FAILURE and has_failed_before:
            treatment = Treatment.RETRY
        return Treatment.ABORT_AND_BUMP if is_over and treatment in _AGAIN else treatment

    def _give_up(self, batch: ProducerBatch, error: KafkaError, *, is_fatal: bool = False) -> None:
        """Fail a batch that is lost, and with it the transaction."""
        if is_fatal:
            failure = self._transactions.fail(error)
        else:
            failure = self._transactions.must_abort(error, bump=batch.sequence >= 0)
        self._accumulator.complete(batch, -1, failure)

    def _expire(self, queue: PartitionQueue, batch: ProducerBatch, error: KafkaError) -> None:
        self._give_up(batch, error)

    def _fail_batches(
        self, queue: PartitionQueue, batches: deque[ProducerBatch], error: KafkaError
    ) -> None:
        while batches:
            self._give_up(batches.popleft(), error)

    def _fail_all(self, error: KafkaError) -> None:
        """Fail every batch; unlike :meth:`_fail_batches` not for the transaction to know."""
        for queue in self._queues.values():
            for batch in (*queue.waiting, *queue.in_flight):
                self._accumulator.complete(batch, -1, error)
            queue.waiting.clear()
            queue.in_flight.clear()
            queue.is_retrying = False
        self.memory_freed.notify()

    def _give_up_all(self, error: KafkaError) -> None:
        self._transactions.fail(error)
