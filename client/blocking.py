"""SyncProducer and SyncConsumer: no ``await``, a loop on a thread of its own does the work.

Works beside a running loop as well, in a notebook for example. Source: docs/spec/users.md §6 (own
thread and loop, so that it does not fight the notebook's).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from barnabas.protocol.records.record import HeaderPair

from .consumer.consumed_records import Chunk, ConsumedRecord
from .consumer.consumer import RECORDS_MAX, TIMEOUT_S, Consumer
from .consumer.consumer_batch import Batch
from .consumer.offset_commits import Offsets
from .group_metadata import CommittedOffset, GroupMetadata
from .producer.accumulator import RecordMetadata
from .producer.producer import Producer
from .producer.transaction import Transaction
from .topology import TopicPartition

if TYPE_CHECKING:
    import pandas
    import pyarrow

T = TypeVar("T")

_PROGRESS_INTERVAL_S: Final = 0.05


class LoopThread:
    """A running loop on a thread of its own, which ends with :meth:`close`."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether it was not closed yet."""
        return self._thread.is_alive()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin ``work`` on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do ``work`` on the loop and return its result; interrupted, it is cancelled."""
        doing = self.submit(work)
        try:
            return doing.result()
        except BaseException:
            doing.cancel()
            raise

    def begin(self, work: Coroutine[Any, Any, T]) -> T:
        """As :meth:`run`, for what the thread is there for: if that fails, the thread ends."""
        try:
            return self.run(work)
        except BaseException:
            self.close()
            raise

    def end(self, closing: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do the last work and end, whatever comes of it; twice is allowed."""
        if not self.is_alive:
            return
        try:
            self.run(closing())
        finally:
            self.close()

    def close(self) -> None:
        """Stop the loop and the thread."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


class SyncProducer:
    """A :class:`Producer` whose calls return when they are done; usable from several threads.

    Takes what a producer takes. Use it in ``with``, or close it.
    """

    def __init__(self, bootstrap: str | Sequence[str], *arguments: Any, **options: Any) -> None:
        self._thread = LoopThread("barnabas producer")
        self._producer = self._thread.begin(_started(Producer, bootstrap, *arguments, **options))

    def send(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        partition: int | None = None,
        headers: Sequence[HeaderPair] = (),
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Send one record and return its place once it is acknowledged; raises KafkaError."""
        return self._thread.run(
            self._producer.send(
                topic,
                value,
                key=key,
                partition=partition,
                headers=headers,
                timestamp_ms=timestamp_ms,
            )
        )

    def send_soon(self, topic: str, value: Any, **options: Any) -> Future[RecordMetadata]:
        """Send one record and return at once; the future has its place later."""
        return self._thread.submit(self._producer.send(topic, value, **options))

    def send_all(
        self, topic: str, values: Iterable[Any], *, keys: Iterable[Any] | None = None
    ) -> list[RecordMetadata]:
        """Send all ``values``; returns when all are acknowledged. The fast way for many."""
        return self._thread.run(self._producer.send_all(topic, values, keys=keys))

    def flush(self) -> None:
        """Return when everything sent so far is acknowledged, or has failed."""
        self._thread.run(self._producer.flush())

    def transaction(self) -> SyncTransaction:
        """The next transaction: ``with producer.transaction() as t: t.send(...)``."""
        return SyncTransaction(self, self._producer.transaction(), self._thread)

    def init_transactions(self) -> None:
        """As :meth:`Producer.init_transactions`."""
        self._thread.run(self._producer.init_transactions())

    def begin(self) -> None:
        """Open a transaction; every record sent from now on belongs to it."""
        self._thread.run(_called(self._producer.begin))

    def send_offsets(
        self,
        consumer: SyncConsumer | GroupMetadata,
        offsets: Mapping[TopicPartition, CommittedOffset | int] | None = None,
    ) -> None:
        """As :meth:`Producer.send_offsets`."""
        source = consumer if isinstance(consumer, GroupMetadata) else _OnItsLoop(consumer)
        self._thread.run(self._producer.send_offsets(source, offsets))

    def commit(self) -> None:
        """As :meth:`Producer.commit`; when it times out, call it again."""
        self._thread.run(self._producer.commit())

    def abort(self) -> None:
        """As :meth:`Producer.abort`."""
        self._thread.run(self._producer.abort())

    def partitions_for(self, topic: str) -> int:
        """How many partitions ``topic`` has."""
        return self._thread.run(self._producer.partitions_for(topic))

    def close(self) -> None:
        """Send what is left and end."""
        self._thread.end(self._producer.close)

    def __enter__(self) -> Self:
        """The producer; it runs already."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()


class SyncTransaction:
    """A :class:`Transaction`: committed at the end of ``with``, aborted after an exception."""

    def __init__(
        self, producer: SyncProducer, transaction: Transaction, thread: LoopThread
    ) -> None:
        self._producer = producer
        self._transaction = transaction
        self._thread = thread

    def send(self, topic: str, value: Any, **options: Any) -> RecordMetadata:
        """As :meth:`SyncProducer.send`: acknowledged, but not committed yet."""
        return self._producer.send(topic, value, **options)

    def send_soon(self, topic: str, value: Any, **options: Any) -> Future[RecordMetadata]:
        """As :meth:`SyncProducer.send_soon`; ask for its result before the block ends."""
        return self._producer.send_soon(topic, value, **options)

    def send_all(
        self, topic: str, values: Iterable[Any], *, keys: Iterable[Any] | None = None
    ) -> list[RecordMetadata]:
        """As :meth:`SyncProducer.send_all`: the fast way for many."""
        return self._producer.send_all(topic, values, keys=keys)

    def send_offsets(
        self,
        consumer: SyncConsumer | GroupMetadata,
        offsets: Mapping[TopicPartition, CommittedOffset | int] | None = None,
    ) -> None:
        """As :meth:`Producer.send_offsets`."""
        self._producer.send_offsets(consumer, offsets)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.run(self._transaction.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Commit; after an exception abort."""
        self._thread.run(self._transaction.__aexit__(kind, error, trace))


class SyncConsumer:
    """A :class:`Consumer` whose calls wait; iterate over it, or over :meth:`batches`.

    Takes what a consumer takes. Use it in ``with``, or close it; from one thread.

    Records are given out here, on the application's thread; the loop is told how far they are
    with each call, and every 50 ms while nothing is called.
    """

    def __init__(self, bootstrap: str | Sequence[str], *topics: str, **options: Any) -> None:
        self._progress: tuple[Chunk, int] | None = None
        self._thread = LoopThread("barnabas consumer")
        self._consumer = self._thread.begin(_started(Consumer, bootstrap, *topics, **options))

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read now."""
        return self._consumer.assignment

    def next_batch(
        self, max_records: int = RECORDS_MAX, *, timeout_s: float | None = TIMEOUT_S
    ) -> SyncBatch | None:
        """What there is, up to ``max_records``; None when nothing came within ``timeout_s``."""
        batch = self._run(self._consumer.next_batch(max_records, timeout_s=timeout_s))
        self._progress = None
        return None if batch is None else SyncBatch(batch, self._thread)

    def batches(self, max_records: int = RECORDS_MAX) -> Iterator[SyncBatch]:
        """Batches, for ever."""
        while True:
            batch = self.next_batch(max_records, timeout_s=None)
            assert batch is not None, "no limit, but nothing came"
            yield batch

    def __iter__(self) -> Iterator[ConsumedRecord]:
        """Records, one by one, for ever; the loop may be left and begun again."""
        while True:
            chunk = self._run(self._consumer.next_chunk())
            reported_at = time.monotonic()
            for index, record in enumerate(chunk.records()):
                self._progress = chunk, index
                yield record
                if self._progress is None or self._progress[0] is not chunk:
                    break  # somebody moved away
                if time.monotonic() - reported_at > _PROGRESS_INTERVAL_S:
                    if not self._run(self._consumer.may_continue(chunk)):
                        break
                    reported_at = time.monotonic()

    def commit(self, offsets: Offsets | None = None) -> None:
        """Commit ``offsets``, or where everything handed out so far ends; raises CommitFailed."""
        self._run(self._consumer.commit(offsets))

    def committed(
        self, topic_partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """What the group has committed, in ``topic_partitions`` or everywhere."""
        return self._run(self._consumer.committed(topic_partitions))

    def seek_to_committed(self) -> None:
        """Read everything again from where the group has committed, after an abort for example."""
        self._run(self._consumer.seek_to_committed())
        self._progress = None

    def assign(
        self, topic_partitions: Iterable[TopicPartition] | Mapping[TopicPartition, int | None]
    ) -> None:
        """Read exactly these."""
        self._run(self._consumer.assign(topic_partitions))
        self._progress = None

    def seek(self, topic_partition: TopicPartition, offset: int) -> None:
        """Read on at ``offset``."""
        self._run(_called(self._consumer.seek, topic_partition, offset))
        self._progress = None

    def position(self, topic_partition: TopicPartition) -> int | None:
        """The offset of the next record; None while nobody knows it."""
        return self._run(_called(self._consumer.position, topic_partition))

    def pause(self, *topic_partitions: TopicPartition) -> None:
        """Hand out nothing of these until :meth:`resume`."""
        self._run(_called(self._consumer.pause, *topic_partitions))

    def resume(self, *topic_partitions: TopicPartition) -> None:
        """Undo :meth:`pause`."""
        self._run(_called(self._consumer.resume, *topic_partitions))

    def to_arrow(self, max_records: int, *, timeout_s: float = TIMEOUT_S) -> pyarrow.Table:
        """The next records as a pyarrow table."""
        return self._run(self._consumer.to_arrow(max_records, timeout_s=timeout_s))

    def to_pandas(self, max_records: int, *, timeout_s: float = TIMEOUT_S) -> pandas.DataFrame:
        """The next records as a pandas frame."""
        return self._run(self._consumer.to_pandas(max_records, timeout_s=timeout_s))

    def close(self) -> None:
        """Commit, if that is automatic, and leave the group."""
        self._thread.end(lambda: self._with_progress(self._consumer.close()))

    def __enter__(self) -> Self:
        """The consumer; it runs already."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close; after an exception what is in hand is not committed by itself."""
        self._thread.end(lambda: self._with_progress(self._consumer.__aexit__(kind, error, trace)))

    def submit_offsets_for_transaction(
        self,
    ) -> Future[tuple[GroupMetadata, dict[TopicPartition, CommittedOffset]]]:
        """Who we are in the group, and where everything handed out ends: for a producer."""
        work = self._consumer.offsets_for_transaction()
        return self._thread.submit(self._with_progress(work))

    def offsets_sent(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """A transaction has these."""
        self._thread.submit(_called(self._consumer.offsets_sent, offsets))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._thread.run(self._with_progress(work))

    async def _with_progress(self, work: Coroutine[Any, Any, T]) -> T:
        if self._progress is not None:
            self._consumer.mark_delivered(*self._progress)
        return await work


class _OnItsLoop:
    """A consumer on a loop of its own, for a producer on another."""

    def __init__(self, consumer: SyncConsumer) -> None:
        self._consumer = consumer

    async def offsets_for_transaction(
        self,
    ) -> tuple[GroupMetadata, Mapping[TopicPartition, CommittedOffset]]:
        return await asyncio.wrap_future(self._consumer.submit_offsets_for_transaction())

    def offsets_sent(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        self._consumer.offsets_sent(offsets)


class SyncBatch:
    """A :class:`Batch` that is committed at the end of ``with`` unless something is raised."""

    def __init__(self, batch: Batch, thread: LoopThread) -> None:
        self.batch = batch
        self._thread = thread

    @property
    def offsets(self) -> dict[TopicPartition, CommittedOffset]:
        """Where to read on after this batch, by partition."""
        return self.batch.offsets

    def records(self) -> list[ConsumedRecord]:
        """All records."""
        return self.batch.records()

    def commit(self) -> None:
        """Commit :attr:`offsets`; raises CommitFailed when the group went on without us."""
        self._thread.run(self.batch.commit())

    def __len__(self) -> int:
        """How many records."""
        return len(self.batch)

    def __iter__(self) -> Iterator[ConsumedRecord]:
        """The records."""
        return iter(self.batch)

    def __enter__(self) -> Self:
        """The batch."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Commit, unless something was raised."""
        if error is None:
            self.commit()


C = TypeVar("C", Producer, Consumer)


async def _started(made: type[C], *arguments: Any, **options: Any) -> C:
    """Made and started on the loop that it will run on."""
    client = made(*arguments, **options)
    try:
        await client.start()
    except BaseException:
        await client.close()
        raise
    return client


async def _called(function: Callable[..., T], *arguments: Any) -> T:
    return function(*arguments)
