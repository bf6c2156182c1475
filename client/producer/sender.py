"""Sends batches to the leaders, and decides what is retried and what fails.

Order inside a partition is an invariant of what is in flight:

- An idempotent producer has up to five batches of a partition in flight. Each carries its base
  sequence, so a leader refuses a batch that overtook another (OUT_OF_ORDER_SEQUENCE_NUMBER). Five
  is what a leader remembers of a producer: with more it could not recognise a duplicate
  (KAFKA-5494).
- Any other producer has one in flight, whatever ``max.in.flight`` says: with two, a retry of the
  first would land behind the second.
- After a failure nothing more of that partition leaves until all in flight is answered. Then the
  failed batches go first, in their order, one by one until the first of them is acknowledged.

Every batch ends in exactly one of three ways: acknowledged, failed and known not to be in the log,
or failed in doubt. After a failure in doubt its sequence numbers are never used again: the rest of
the partition goes on under a new producer id (KIP-360 does it with a new epoch).

    waiting ── drain ──> in flight ─┬─ acknowledged, or a duplicate ─────> done
       ^                            └─ failed ── all in flight answered ─┬─ may be retried ─┐
       │                                                                 └─> failed         │
       └───── at the front, in the order in which they were sent ───────────────────────────┘

Source: docs/spec/coordinator.md §1.9 and §7.4; docs/spec/log.md §7 (sequences); KIP-98, KIP-360.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict, deque
from collections.abc import Awaitable, Sequence
from typing import Any, Final

from barnabas.client.background import BackgroundTasks, Signal
from barnabas.client.cluster import Cluster
from barnabas.client.errors import (
    Disconnected,
    KafkaError,
    RequestTimedOut,
    UnsupportedVersion,
    known_code,
)
from barnabas.client.retry import may_succeed_later
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import produce
from barnabas.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

from .accumulator import (
    NO_PRODUCER_ID,
    PartitionQueue,
    ProducerBatch,
    ProducerIdAndEpoch,
    RecordAccumulator,
)
from .producer_config import ProducerConfig

log = logging.getLogger(__name__)

CHANNEL: Final = "produce"
"""A connection of its own: a fetch that waits for data on it would delay every batch."""
_MAGIC_2_SINCE: Final = 3
"""The first version of Produce that carries record batches (KIP-98); we write nothing older."""
_QUESTION_TIMEOUT_S: Final = 5.0
"""Bound on one question besides Produce; see :func:`_within_bound`."""
_TRANSACTION_TIMEOUT_MS: Final = 60_000
"""A field that has to be filled; without a transactional id there is nothing to time out."""
_PRODUCER_ID_LOST: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
"""The leader does not know our sequence: what it never took can go under a new producer id.

It lost its producer state (retention, KIP-360), or a batch before this one never arrived.
"""


class Sender:
    """Empties an accumulator; its one task decides, each request in flight has another.

    State of a partition is changed without an ``await`` in between, by whichever task holds the
    loop: the deciding task and the tasks of requests never see each other's halves.
    """

    def __init__(
        self, cluster: Cluster, config: ProducerConfig, accumulator: RecordAccumulator
    ) -> None:
        self.memory_freed = Signal()
        """Fires whenever batches were completed, and their memory is free again."""
        self.flushing = 0
        """How many callers flush: meanwhile no batch waits for ``linger.ms``."""
        self._cluster = cluster
        self._config = config
        self._accumulator = accumulator
        self._producer_id: ProducerIdAndEpoch | None = (
            None if config.is_idempotent else NO_PRODUCER_ID
        )
        self._in_flight_requests: dict[int, int] = defaultdict(int)
        """How many Produce requests each leader has not answered, by node id."""
        self._wakeup = asyncio.Event()
        self._tasks = BackgroundTasks(self._fail)
        self._refreshed_at = 0.0

    def start(self) -> None:
        """Begin to send; needs a running loop."""
        self._refreshed_at = asyncio.get_running_loop().time()
        self._tasks.spawn(self._run(), "produce")

    def wake(self) -> None:
        """Look again: records came, or somebody waits for all of them."""
        self._wakeup.set()

    async def close(self) -> None:
        """Stop; what is not acknowledged fails.

        The tasks first: as long as they run answers come, and what has one does not fail.
        """
        await self._tasks.close()
        self._fail_all(Disconnected("the producer was closed"))

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            # Cleared before looking: what comes while we look sets it again and is not missed.
            self._wakeup.clear()
            now = loop.time()
            self._expire_batches(now)
            try:
                await self._ensure_producer_ids()
                pause_s = await self._dispatch(loop.time())
            except KafkaError as error:
                if not may_succeed_later(error):
                    log.error("cannot produce reason=%s", error)
                    self._give_up_all(error)
            except Exception as error:
                # A task that ended here would leave the next record waiting for ever.
                log.exception("the producer failed")
                self._fail(error)
            else:
                await self._news_within(pause_s)
                continue
            # Not a wait for news: records that come meanwhile would make this loop spin against a
            # cluster that is down.
            await asyncio.sleep(self._config.retry_backoff_ms / 1000)

    async def _news_within(self, pause_s: float | None) -> None:
        if self._wakeup.is_set():
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._wakeup.wait()

    async def _dispatch(self, now: float) -> float | None:
        """Send what is ready; seconds until something else may be, None until :meth:`wake`."""
        await self._refresh_metadata(now)
        ready: dict[int, list[PartitionQueue]] = defaultdict(list)
        leaderless: list[PartitionQueue] = []
        later: list[float | None] = []
        leaders = self._cluster.topology.leaders
        # Two batches without sequence numbers in flight could be swapped by a retry of the first.
        in_flight_max = self._config.in_flight_max if self._config.is_idempotent else 1
        is_flushing = self.flushing > 0
        for topic_partition, queue in list(self._accumulator.active.items()):
            if not queue.waiting:
                del self._accumulator.active[topic_partition]
            elif queue.is_ready(now, in_flight_max, is_flushing=is_flushing):
                leader = leaders.get(topic_partition)
                (leaderless if leader is None else ready[leader]).append(queue)
            else:
                later.append(queue.ready_in_s(now))
        # Served before leaderless partitions are asked about: a topic that has no leader must not
        # hold up those that have one.
        for leader, queues in ready.items():
            while queues and self._in_flight_requests[leader] < self._config.in_flight_max:
                queues = self._drain(leader, queues)
        if leaderless:
            topics = sorted({queue.topic_partition.topic for queue in leaderless})
            await _within_bound(self._cluster.metadata(topics))
            self._fail_unwritable_topics(leaderless)
            if any(leaders.get(queue.topic_partition) is None for queue in leaderless):
                return max(self._config.retry_backoff_ms, 1) / 1000
            return 0.0
        return min((ready_s for ready_s in later if ready_s is not None), default=None)

    def _drain(self, leader: int, queues: Sequence[PartitionQueue]) -> list[PartitionQueue]:
        """Send one request with the first batches of as many queues as fit; return the others.

        At most one batch of each partition: a Produce request names a partition once. The first
        batch goes even if it alone is larger than ``max.request.size``, as a leader may allow it.
        """
        batches: list[tuple[PartitionQueue, ProducerBatch]] = []
        size, left = 0, []
        for queue in queues:
            bytes_ = queue.waiting[0].bytes
            if batches and size + bytes_ > self._config.request_bytes_max:
                left.append(queue)
                continue
            size += bytes_
            batches.append((queue, queue.drain_first(is_numbered=self._config.is_idempotent)))
        self._in_flight_requests[leader] += 1
        self._tasks.spawn(self._send_request(leader, batches), f"produce to {leader}")
        return left

    async def _send_request(
        self, leader: int, batches: Sequence[tuple[PartitionQueue, ProducerBatch]]
    ) -> None:
        """Send one request, and complete, retry or fail its batches.

        A request that failed as a whole (connection lost, no answer) counts as that failure for
        each of its batches.
        """
        try:
            results = await self._produce(leader, batches)
        except KafkaError as failure:
            results = {batch.topic_partition: (failure, -1, -1) for _, batch in batches}
        finally:
            self._in_flight_requests[leader] -= 1
        for queue, batch in batches:
            if batch.done.done():
                continue  # the producer was closed, or failed as a whole, meanwhile
            missing = (KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "no answer for it"), -1, -1)
            error, base_offset, append_time = results.get(batch.topic_partition, missing)
            # A duplicate is an acknowledgement: the leader has the batch from an earlier attempt
            # whose answer was lost (KIP-98). Its offset is no longer known then.
            if error is None or error.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                batch.base_offset, batch.error = base_offset, None
                # Not while another one failed: that one goes again first, and alone.
                queue.is_producer_known = not queue.is_retrying
                queue.in_flight.remove(batch)
                self._accumulator.complete(batch, append_time)
            else:
                self._note_failure(queue, batch, error)
            # Only when the last batch in flight is answered is it known which of them failed:
            # to resend the first while the second may still succeed would swap them.
            if queue.is_retrying and all(batch.error is not None for batch in queue.in_flight):
                self._retry_or_fail(queue)
        self.memory_freed.notify()
        self._wakeup.set()

    async def _produce(
        self, leader: int, batches: Sequence[tuple[PartitionQueue, ProducerBatch]]
    ) -> dict[tuple[str, int], tuple[KafkaError | None, int, int]]:
        connection = await self._cluster.connection_to(leader, CHANNEL)
        version = connection.version_of(produce.ProduceRequest)
        if version < _MAGIC_2_SINCE:
            raise UnsupportedVersion(f"{connection.peer} is older than Kafka 0.11")
        # The leader itself waits up to request.timeout.ms for its followers: the bound on the
        # answer must lie behind that, or every slow acknowledgement would be in doubt.
        bound_ms = self._cluster.config.request_timeout_ms + self._config.request_timeout_ms
        answer = await connection.request(self._request(batches), version, bound_ms)
        if answer is None:  # acks=0: nobody tells an offset
            return {batch.topic_partition: (None, -1, -1) for _, batch in batches}
        return {
            (topic.name, partition.index): (
                KafkaError(
                    partition.error_code,
                    partition.error_message or f"{topic.name}-{partition.index}",
                )
                if partition.error_code
                else None,
                partition.base_offset,
                partition.log_append_time_ms,
            )
            for topic in answer.responses
            for partition in topic.partition_responses
        }

    def _request(
        self, batches: Sequence[tuple[PartitionQueue, ProducerBatch]]
    ) -> produce.ProduceRequest:
        topics: dict[str, list[produce.Partition]] = defaultdict(list)
        transactional_id = self._config.transactional_id
        is_transactional = transactional_id is not None
        for queue, batch in batches:
            topic, partition = batch.topic_partition
            producer_id = queue.producer_id or self._producer_id or NO_PRODUCER_ID
            codec = self._config.codec_for(topic)
            records = batch.encode(codec, producer_id, is_transactional=is_transactional)
            topics[topic].append(produce.Partition(index=partition, records=records))
        return produce.ProduceRequest(
            transactional_id=transactional_id,
            acks=self._config.required_acks,
            timeout_ms=self._config.request_timeout_ms,
            topic_data=[
                produce.Topic(name=name, partition_data=partitions)
                for name, partitions in topics.items()
            ],
        )

    # What went wrong.

    def _note_failure(self, queue: PartitionQueue, batch: ProducerBatch, error: KafkaError) -> None:
        """Note why; the batch stays in order until all in flight are answered.

        The leader is asked for again, unless the refusal came from one that leads but lacks
        in-sync replicas.
        """
        batch.error = error
        batch.may_be_logged |= _leaves_doubt(error)  # sticky: a later refusal proves nothing
        queue.is_retrying, queue.is_producer_known = True, False
        if error.code is not ErrorCode.NOT_ENOUGH_REPLICAS:
            self._cluster.forget_leaders([queue.topic_partition])
        log.info(
            "produce failed partition=%s-%d attempt=%d reason=%s",
            *queue.topic_partition,
            batch.attempts,
            error,
        )

    def _retry_or_fail(self, queue: PartitionQueue) -> None:
        """Put back what may be retried and fail the rest, once nothing is in flight any more.

        ``gap`` is the sequence of the first batch that failed and is known not to be in the log:
        what follows takes its numbers over. ``broken`` says that a batch failed in doubt: its
        numbers may be in the log, so nothing else may use them, and whatever follows needs another
        producer id. Batches in doubt cannot follow there, since the leader would take them for new
        ones and log them twice.

        For example, of four batches in flight under producer id 7, numbered 0, 3, 5 and 9::

            0 acknowledged   3 INVALID_RECORD   5 OUT_OF_ORDER   9 OUT_OF_ORDER
              3 fails, gap = 3; 5 and 9 were refused only since 3 is missing, and go as 3 and 7
            0 acknowledged   3 times out for good   5 OUT_OF_ORDER   9 connection lost
              3 fails in doubt, broken; 9 may be logged under id 7 and fails, 5 goes as 0 of id 8
        """
        now = asyncio.get_running_loop().time()
        again: list[ProducerBatch] = []
        broken, gap = False, -1
        for batch in list(queue.in_flight):
            queue.in_flight.remove(batch)
            assert batch.error is not None, "retried before all were answered"
            has_gap = broken or gap >= 0 or bool(again)
            if (broken and batch.may_be_logged) or not self._may_retry(batch, now, has_gap=has_gap):
                broken, gap = self._fail_batch(queue, batch, broken=broken, gap=gap)
            else:
                again.append(batch)
        backoff_s = self._config.retry_backoff_ms / 1000
        queue.reenqueue(again, now + backoff_s)
        queue.needs_producer_id |= broken
        if queue.needs_producer_id:
            self._fail_doubtful(queue)
        elif gap >= 0:
            queue.rewind_sequence(gap)
        if queue.waiting:
            self._accumulator.active[queue.topic_partition] = queue

    def _fail_batch(
        self, queue: PartitionQueue, batch: ProducerBatch, *, broken: bool, gap: int
    ) -> tuple[bool, int]:
        """Fail a batch; return whether the sequence is broken, or else where its gap begins."""
        error = batch.error
        assert error is not None, "given up without a reason"
        log.warning(
            "dropped a batch partition=%s-%d records=%d reason=%s",
            *queue.topic_partition,
            batch.count,
            error,
        )
        self._accumulator.complete(batch, -1, error)
        is_unsure = batch.may_be_logged or error.code in _PRODUCER_ID_LOST
        if batch.sequence < 0 or broken or is_unsure:
            return broken or (batch.sequence >= 0 and is_unsure), gap
        return False, batch.sequence if gap < 0 else gap

    def _fail_doubtful(self, queue: PartitionQueue) -> None:
        """Fail what waits and may be logged: under another producer id it would be logged twice."""
        for batch in [waiting for waiting in queue.waiting if waiting.may_be_logged]:
            queue.waiting.remove(batch)
            self._fail_batch(queue, batch, broken=True, gap=-1)

    def _may_retry(self, batch: ProducerBatch, now: float, *, has_gap: bool) -> bool:
        error = batch.error
        assert error is not None, "retried without a reason"
        retries = self._config.retries
        # delivery.timeout.ms bounds a record from send() to its end, retries included (KIP-91).
        if now >= batch.deadline or (retries is not None and batch.attempts > retries):
            return False
        # Behind a batch that failed, a wrong sequence is only its consequence: the batch was never
        # taken and goes again with other numbers. As the first failure it says that the leader
        # lost our state: whether earlier attempts are in the log cannot be known.
        if error.code in _PRODUCER_ID_LOST:
            return has_gap
        return may_succeed_later(error) or isinstance(error, RequestTimedOut)

    def _expire_batches(self, now: float) -> None:
        """Fail what waited longer than ``delivery.timeout.ms`` (KIP-91).

        Partitions with something in flight are left out: the answer decides about those first.
        """
        for queue in list(self._accumulator.active.values()):
            if queue.in_flight or queue.is_retrying:
                continue
            while queue.waiting and queue.waiting[0].deadline <= now:
                batch = queue.waiting.popleft()
                late = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "not sent in time")
                self._expire(queue, batch, batch.error or late)
            self.memory_freed.notify()

    def _expire(self, queue: PartitionQueue, batch: ProducerBatch, error: KafkaError) -> None:
        """Fail a batch whose time is over, and mend the numbers of those behind it."""
        self._accumulator.complete(batch, -1, error)
        if batch.sequence < 0:
            return  # no number is missing
        if batch.may_be_logged:
            queue.needs_producer_id = True
            self._fail_doubtful(queue)
        elif not queue.needs_producer_id:
            queue.rewind_sequence(batch.sequence)

    def _fail_unwritable_topics(self, queues: Sequence[PartitionQueue]) -> None:
        """Fail the batches of topics that nobody may write to, or that are gone."""
        for queue in queues:
            refusal = self._cluster.topology.topic_errors.get(queue.topic_partition.topic)
            if refusal is None or refusal.retriable:
                continue
            self._fail_batches(
                queue, queue.waiting, KafkaError(refusal, queue.topic_partition.topic)
            )
            self.memory_freed.notify()

    def _fail_all(self, error: KafkaError) -> None:
        """Fail every batch there is; their numbers are in doubt, so queues need new ids."""
        for queue in self._accumulator.queues.values():
            self._fail_batches(queue, queue.waiting, error)
            self._fail_batches(queue, queue.in_flight, error)
            queue.is_retrying = False
        self.memory_freed.notify()

    def _fail_batches(
        self, queue: PartitionQueue, batches: deque[ProducerBatch], error: KafkaError
    ) -> None:
        """Fail all ``batches``; numbers that are gone with them break the sequence of the rest.

        A batch that never left has no number, and breaks nothing.
        """
        while batches:
            batch = batches.popleft()
            queue.needs_producer_id |= batch.sequence >= 0
            self._accumulator.complete(batch, -1, error)

    def _give_up_all(self, error: KafkaError) -> None:
        """Nothing can be sent now, and no waiting helps."""
        self._fail_all(error)

    def _fail(self, failure: BaseException) -> None:
        self._give_up_all(
            KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the producer failed: {failure!r}")
        )

    # What is asked besides.

    async def _ensure_producer_ids(self) -> None:
        """Get the producer id, and another for each partition whose sequence broke.

        A partition with batches in flight keeps its old id until they are answered: their numbers
        belong to it.
        """
        if not self._accumulator.active:
            return
        if self._producer_id is None:
            try:
                self._producer_id = await self._init_producer_id()
            except UnsupportedVersion as error:
                raise UnsupportedVersion(
                    f"set enable.idempotence=false: {error.message}"
                ) from error
        for queue in list(self._accumulator.active.values()):  # a copy: records come meanwhile
            if queue.needs_producer_id and not queue.in_flight:
                queue.renumber(await self._init_producer_id())

    async def _init_producer_id(self) -> ProducerIdAndEpoch:
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS
        )
        answer = await _within_bound(self._cluster.to_any(request, _code))
        if answer.error_code:
            raise KafkaError(known_code(answer.error_code), "no producer id")
        return ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)

    async def _refresh_metadata(self, now: float) -> None:
        """Ask for metadata every ``topic.metadata.refresh.interval.ms``: partitions are added."""
        if now - self._refreshed_at < self._config.metadata_refresh_ms / 1000:
            return
        self._refreshed_at = now
        topics = {topic for topic, _ in self._accumulator.queues}
        if topics:
            await _within_bound(self._cluster.metadata(sorted(topics)))


async def _within_bound(asking: Awaitable[Any]) -> Any:
    """The answer, or RequestTimedOut after 5 s.

    The sender's one task waits here: without a bound shorter than the API's own, records whose
    ``delivery.timeout.ms`` passes meanwhile would fail late.
    """
    try:
        async with asyncio.timeout(_QUESTION_TIMEOUT_S):
            return await asking
    except TimeoutError:
        raise RequestTimedOut(f"nobody answered within {_QUESTION_TIMEOUT_S:g} s") from None


def _leaves_doubt(error: KafkaError) -> bool:
    """Whether records that were refused so may be in the log all the same.

    A leader that loses leadership, its disk or the partition after it appended answers with that,
    although a follower may have copied the batch and become leader. NOT_ENOUGH_REPLICAS is said
    before appending (NOT_ENOUGH_REPLICAS_AFTER_APPEND is its other half), so it leaves no doubt.
    """
    if error.code is ErrorCode.NOT_ENOUGH_REPLICAS:
        return False
    return may_succeed_later(error) or error.code is ErrorCode.UNKNOWN_SERVER_ERROR


def _code(answer: InitProducerIdResponse) -> list[int]:
    return [answer.error_code]
