"""The producer: takes records, finds their partitions, returns their metadata; transactions.

Source: docs/spec/coordinator.md §7; docs/spec/transactions.md §7 (transactions); the documentation
of Kafka 0.7's producer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self

from barnabas.client.background import BackgroundTasks
from barnabas.client.client_config import ClientConfig
from barnabas.client.cluster import Cluster
from barnabas.client.errors import Disconnected, KafkaError, QueueFull
from barnabas.client.group_metadata import CommittedOffset, GroupMetadata, OffsetsSource
from barnabas.client.retry import Attempts
from barnabas.client.topology import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.record import HeaderPair

from .accumulator import Delivery, RecordAccumulator, RecordMetadata
from .buffer_waiters import BufferWaiters
from .encoders import Encode, encoder_of
from .partitioner import HashPartitioner, Murmur2Partitioner, Partitioner, StickyPartitioner
from .producer_config import ProducerConfig, client_config
from .producer_queue import (
    CallbackHandler,
    DefaultEventHandler,
    EventHandler,
    Item,
    ProducerQueue,
)
from .sender import Sender
from .transaction import Transaction
from .transaction_manager import TransactionManager
from .transactional_sender import TransactionalAccumulator, TransactionalSender

log = logging.getLogger(__name__)

_PARTITIONERS: Final[Mapping[str, Callable[[], Partitioner]]] = {
    "hash": HashPartitioner,
    "murmur2": Murmur2Partitioner,
}
_make: Final = tuple.__new__
"""A record is made in a third of the time that its class takes."""


class Producer:
    """Sends records; use it in ``async with``, or start and close it.

    ``bootstrap`` is ``host:port``, or several with commas. ``config`` may be text under Kafka's
    names. With ``producer.type=async`` records wait in a queue for the event handler, otherwise
    they leave at once, with whatever else was sent in the same turn of the loop.

    With ``transactional_id`` records are sent in transactions, see :meth:`transaction`. A producer
    that starts fences every other one of its id, whose open transaction is aborted.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        config: ProducerConfig | Mapping[str, Any] | None = None,
        *,
        transactional_id: str | None = None,
        client: ClientConfig | None = None,
        partitioner: Partitioner | None = None,
        encoder: Encode | None = None,
        key_encoder: Encode | None = None,
        event_handler: EventHandler | None = None,
        callback_handler: CallbackHandler | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        if isinstance(config, Mapping):
            client = client or client_config(config)
            config = ProducerConfig.of(config)
        self.config = config or ProducerConfig()
        if transactional_id is not None:
            self.config = replace(self.config, transactional_id=transactional_id)
        self.cluster = Cluster(bootstrap, client)
        self._partitioner = partitioner or _PARTITIONERS[self.config.partitioner]()
        self._encode = encoder_of(encoder)
        self._encode_key = encoder_of(key_encoder)
        self._is_plain = encoder is None
        self._has_plain_keys = key_encoder is None
        self._handler = event_handler or DefaultEventHandler()
        self._callbacks = callback_handler or CallbackHandler()
        self._now_ms = now_ms
        self._counts = self.cluster.topology.counts
        self._sticky_partitioner = StickyPartitioner(self.cluster.topology, self.cluster.random)
        self._unrouted: dict[str, deque[Item]] = defaultdict(deque)
        """Records of topics whose partitions are not known yet, in order."""
        self._learning: dict[str, asyncio.Task[None]] = {}
        """What finds those partitions, and then sends the records."""
        self._waiters: BufferWaiters | None = None
        self._tasks = BackgroundTasks(lambda error: None)
        self._accumulator: RecordAccumulator | None = None
        self._sender: Sender | None = None
        self._queue: ProducerQueue | None = None
        self._manager: TransactionManager | None = None
        if self.config.transactional_id is not None:
            self._manager = TransactionManager(self.cluster, self.config)
        self._is_closed = False

    async def start(self) -> None:
        """Begin to send; without transactions nothing is connected before the first record.

        With transactions this is :meth:`init_transactions`, and raises what that raises.
        """
        assert self._accumulator is None, "started twice"
        loop = asyncio.get_running_loop()
        if self._manager is not None:
            accumulator = TransactionalAccumulator(self.config, loop, self._manager)
            sender = TransactionalSender(
                self.cluster,
                self.config,
                accumulator,
                self._manager,
                routed=self._routed,
                drop_unrouted=self._drop_unrouted,
            )
            self._accumulator, self._sender = accumulator, sender
            self._waiters = BufferWaiters(self._send, sender.memory_freed)
            self._manager.attach(sender)
            sender.start()
            await self._manager.init()
            return
        self._accumulator = RecordAccumulator(self.config, loop)
        self._sender = Sender(self.cluster, self.config, self._accumulator)
        self._waiters = BufferWaiters(self._send, self._sender.memory_freed)
        self._sender.start()
        if self.config.producer_type == "async":
            self._queue = ProducerQueue(self.config, self, self._handler, self._callbacks)

    async def send(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        partition: int | None = None,
        headers: Sequence[HeaderPair] = (),
        timestamp_ms: int | None = None,
        partition_key: Any = None,
    ) -> RecordMetadata:
        """Send one record and return its place once it is acknowledged.

        Waits for room first. Raises KafkaError; ``retriable`` then says whether sending it again
        may help, since the producer's own retries are over.
        """
        fields = (topic, value, key, partition, headers, timestamp_ms, partition_key, None)
        item = _make(Item, fields)
        if self._queue is not None:
            return await (await self._queue.put(item))
        return await (await self._send_with_room(item))

    def send_soon(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        partition: int | None = None,
        headers: Sequence[HeaderPair] = (),
        timestamp_ms: int | None = None,
        partition_key: Any = None,
    ) -> Delivery:
        """Send one record and return at once; await the delivery, or :meth:`flush`.

        Raises QueueFull when the buffer is full: await :meth:`room` before the next.
        """
        fields = (topic, value, key, partition, headers, timestamp_ms, partition_key, None)
        item = _make(Item, fields)
        if self._queue is not None:
            return self._queue.put_soon(item)
        return self._send(item)

    async def send_all(
        self, topic: str, values: Iterable[Any], *, keys: Iterable[Any] | None = None
    ) -> list[RecordMetadata]:
        """Send all ``values``, with a key each if given; returns when all are acknowledged.

        Raises the first failure, after the others had their turn.
        """
        pairs = (
            ((None, value) for value in values) if keys is None else zip(keys, values, strict=True)
        )
        deliveries = []
        for key, value in pairs:
            item = _make(Item, (topic, value, key, None, (), None, None, None))
            if self._queue is not None:
                deliveries.append(await self._queue.put(item))
                continue
            try:
                deliveries.append(self._send(item))
            except QueueFull:
                deliveries.append(await self._send_with_room(item))
        await self.flush()
        return [await delivery for delivery in deliveries]

    @property
    def has_room(self) -> bool:
        """Whether :meth:`send_soon` takes another record now."""
        if self._queue is not None:
            return not self._queue.is_full
        return self._started().has_room() and not (self._unrouted and self._holds_its_most())

    async def room(self) -> None:
        """Return when there is room for a record."""
        if self._queue is not None:
            await self._queue.room()
        accumulator = self._started()
        assert self._sender is not None, "started without a sender"
        while not accumulator.has_room() or (self._unrouted and self._holds_its_most()):
            await self._sender.memory_freed.wait()

    async def flush(self) -> None:
        """Return when every record sent so far is acknowledged, or has failed."""
        accumulator = self._started()
        assert self._sender is not None, "started without a sender"
        await asyncio.sleep(0)  # so that a task that was told to send before has begun to
        self._sender.flushing += 1
        try:
            self._sender.wake()  # what waits for room waits for batches that linger
            if self._queue is not None:
                await self._queue.flush()
            await self._routed()
            self._sender.wake()
            if accumulator.incomplete:
                await asyncio.wait(list(accumulator.incomplete))
        finally:
            self._sender.flushing -= 1

    # Transactions.

    def transaction(self) -> Transaction:
        """The next transaction: ``async with producer.transaction() as t: await t.send(...)``.

        Committed at the end of the block, aborted when it is left by an exception.
        """
        return Transaction(self, self._transactions)

    async def init_transactions(self) -> None:
        """Get the producer id: for who called :meth:`start` and saw it time out.

        Raises Unreachable when no address answers, FatalTransactionError, and RequestTimedOut:
        then call it again.
        """
        await self._transactions.init()

    def begin(self) -> None:
        """Open a transaction; every record sent from now on belongs to it."""
        self._transactions.begin()

    async def send_offsets(
        self,
        consumer: OffsetsSource | GroupMetadata,
        offsets: Mapping[TopicPartition, CommittedOffset | int] | None = None,
    ) -> None:
        """Store a consumer's offsets in the transaction, those behind all that it handed out.

        Or ``offsets``, which say where to read on. Raises AbortableTransactionError when the
        group went on without the consumer: others have its partitions, and will copy the same.
        """
        chosen = {
            topic_partition: offset
            if isinstance(offset, CommittedOffset)
            else CommittedOffset(offset)
            for topic_partition, offset in (offsets or {}).items()
        }
        if isinstance(consumer, GroupMetadata):
            assert offsets is not None, "only a consumer knows its offsets itself"
            await self._transactions.send_offsets(chosen, consumer)
            return
        member, handed_out = await consumer.offsets_for_transaction()
        due = handed_out if offsets is None else chosen
        await self._transactions.send_offsets(due, member)
        consumer.offsets_sent(due)

    async def commit(self) -> None:
        """Commit the open transaction: all its records and offsets, or none.

        Returns when that is decided; readers of committed records see it some milliseconds later.
        Raises AbortableTransactionError (then :meth:`abort`), FatalTransactionError (close the
        producer), and RequestTimedOut: then nobody knows, until it is called again and returns.
        """
        await self._transactions.commit()

    async def abort(self) -> None:
        """Drop the open transaction; nobody who reads committed records will see any of it."""
        await self._transactions.abort()

    async def partitions_for(self, topic: str) -> int:
        """How many partitions ``topic`` has; makes it where brokers make topics by themselves."""
        if topic not in self._counts:
            await self._learn_partitions(topic)
        return self._counts[topic]

    async def post(self, item: Item) -> None:
        """Send an item of the queue once there is room: what event handlers do."""
        await self._send_with_room(item)

    async def close(self) -> None:
        """Send what is left, then end; closing twice is allowed. An open transaction is aborted."""
        if self._is_closed or self._accumulator is None:
            await self.cluster.close()
            return
        if self._queue is not None:
            await self._queue.close()
        if self._manager is not None:
            await self._manager.close(is_clean=True)
        else:
            await self.flush()
        await self._end()

    async def __aenter__(self) -> Self:
        """Start."""
        try:
            await self.start()
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Send what is left and close; cancelled, close at once."""
        if error is None or isinstance(error, Exception):
            await self.close()
        else:
            await self._end()

    async def _end(self) -> None:
        self._is_closed = True
        await self._tasks.close()
        self._drop_unrouted(Disconnected("the producer was closed"))
        if self._manager is not None:
            await self._manager.close(is_clean=False)
        if self._sender is not None:
            await self._sender.close()
        await self.cluster.close()

    @property
    def _transactions(self) -> TransactionManager:
        assert self._manager is not None, "a producer without transactional.id"
        return self._manager

    async def _routed(self) -> None:
        """Return when every record given to us so far is in a batch, or was refused.

        By ``asyncio.wait``, which leaves what it waits for alone when it is cancelled itself.
        """
        assert self._waiters is not None, "started without its waiters"
        await self._waiters.served()
        if self._learning:
            await asyncio.wait(list(self._learning.values()))

    def _drop_unrouted(self, error: KafkaError) -> None:
        """Refuse what waits for the partitions of its topic: its transaction is over."""
        for items in self._unrouted.values():
            _refuse_held(items, error)

    def _send_with_room(self, item: Item) -> Awaitable[Delivery]:
        assert self._waiters is not None, "use the producer in `async with`, or start it"
        return self._waiters.send(item)

    def _holds_its_most(self) -> bool:
        """Whether some topic whose partitions are not known yet can have no more records held."""
        most = self.config.queue_size
        return any(len(items) >= most for items in self._unrouted.values())

    def _started(self) -> RecordAccumulator:
        if self._is_closed:
            raise Disconnected("the producer was closed")
        assert self._accumulator is not None, "use the producer in `async with`, or start it"
        return self._accumulator

    def _send(self, item: Item, *, is_held: bool = False) -> Delivery:
        """Put a record into a batch; one that was held back goes before those that still are."""
        accumulator = self._accumulator
        if accumulator is None or self._is_closed:
            accumulator = self._started()
        topic, value, key, partition, headers, timestamp_ms, partition_key, delivery = item
        if delivery is None:
            delivery = Delivery()
        if topic not in self._counts or (topic in self._unrouted and not is_held):
            self._hold_until_partitions_known(item._replace(delivery=delivery))
            delivery.is_accepted = True
            return delivery
        if not (self._is_plain and type(value) is bytes):
            value = self._encode(value)
        chosen = self._partition(topic, partition, key if partition_key is None else partition_key)
        if key is not None and not (self._has_plain_keys and type(key) is bytes):
            key = self._encode_key(key)
        if timestamp_ms is None:
            timestamp_ms = self._now_ms()
        if accumulator.add((topic, chosen), key, value, headers, timestamp_ms, delivery):
            assert self._sender is not None, "started without a sender"
            self._sender.wake()
            if partition is None and item.key is None:
                self._sticky_partitioner.on_new_batch(topic)
        return delivery

    def _partition(self, topic: str, partition: int | None, key: Any) -> int:
        count = self._counts[topic]
        if partition is None:
            if key is None:
                return self._sticky_partitioner.partition(topic)
            partition = self._partitioner.partition(key, count)
        if not 0 <= partition < count:
            raise ValueError(f"partition {partition} of {topic}, which has {count}")
        return partition

    def _hold_until_partitions_known(self, item: Item) -> None:
        """Keep an item until it is known how many partitions its topic has."""
        topic = item.topic
        if self._manager is not None:
            self._manager.check_may_send()
        if len(self._unrouted[topic]) >= self.config.queue_size:
            raise QueueFull(f"{topic}: its partitions are not known yet")
        self._unrouted[topic].append(item)
        if topic not in self._learning:
            learning = self._tasks.spawn(self._send_unrouted(topic), f"learn {topic}")
            self._learning[topic] = learning

    async def _send_unrouted(self, topic: str) -> None:
        """Find the partitions of a topic and send what was held for it, waiting for room."""
        assert self._sender is not None, "started without a sender"
        items = self._unrouted[topic]
        failure: Exception | None = None
        try:
            while items:
                if failure is None and topic not in self._counts:
                    failure = await self._why_unknown(topic)
                    continue
                item = items.popleft()
                assert item.delivery is not None, "put aside without a delivery"
                if failure is not None:
                    self._refuse(item.delivery, failure)
                    continue
                try:
                    self._send(item, is_held=True)
                except QueueFull:
                    items.appendleft(item)
                    await self._sender.memory_freed.wait()
                except Exception as error:  # noqa: BLE001 - an application's encoder may raise anything
                    self._refuse(item.delivery, error)
        finally:
            del self._learning[topic], self._unrouted[topic]
            _refuse_held(items, Disconnected("the producer was closed"))
            self._sender.memory_freed.notify()

    async def _why_unknown(self, topic: str) -> Exception | None:
        """Find out the partitions of a topic; why they cannot be found."""
        try:
            await self._learn_partitions(topic)
        except Exception as error:
            if not isinstance(error, KafkaError):
                log.exception("cannot look up a topic topic=%s", topic)
            return error
        return None

    def _refuse(self, delivery: Delivery, error: Exception) -> None:
        """A record that was taken is not sent; a transaction cannot be committed without it."""
        delivery.refuse(error)
        if self._manager is not None:
            known = isinstance(error, KafkaError)
            reason = error if known else KafkaError(ErrorCode.INVALID_RECORD, repr(error))
            assert isinstance(reason, KafkaError), "chosen so"
            self._manager.must_abort(reason, bump=False)

    async def _learn_partitions(self, topic: str) -> None:
        """Find out the partitions of a topic; raises KafkaError when there is none."""
        loop = asyncio.get_running_loop()
        attempts = Attempts(self.cluster.config, self.cluster.random, loop.time())
        while True:
            await self.cluster.metadata([topic], create=True)
            if topic in self._counts:
                return
            topic_errors = self.cluster.topology.topic_errors
            why = topic_errors.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if not why.retriable:
                raise KafkaError(why, topic)
            pause_s = attempts.backoff_after(why, loop.time())
            if pause_s is None:
                raise KafkaError(why, topic)
            await asyncio.sleep(pause_s)


def _refuse_held(items: deque[Item], error: KafkaError) -> None:
    while items:
        delivery = items.popleft().delivery
        assert delivery is not None, "put aside without a delivery"
        delivery.refuse(error)
