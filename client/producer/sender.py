"""Carries batches to the leaders: who is ready, what comes of it, and what is tried again.

Order inside a partition is kept by what leaves: an idempotent producer has up to five batches of
a partition under way and every batch carries its place in the sequence; any other has one. After
a failure nothing more leaves until all that is under way was answered, then the failed go first,
one by one until the first of them is acknowledged; so do the first batches of all.
Source: docs/spec/coordinator.md §1.9 and §7.4; docs/spec/log.md §7 (sequences); KIP-98, KIP-360.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Awaitable, Sequence
from typing import Any, Final

from barnabas.client.background import Signal, Tasks
from barnabas.client.cluster import Cluster
from barnabas.client.errors import (
    Disconnected,
    KafkaError,
    RequestTimedOut,
    UnsupportedVersion,
    known_code,
)
from barnabas.client.retry import may_pass
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import produce
from barnabas.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

from .accumulator import NOBODY, Accumulator, Batch, Lane, ProducerIdentity
from .producer_config import ProducerConfig

log = logging.getLogger(__name__)

CHANNEL: Final = "produce"
_MAGIC_2_SINCE: Final = 3
_ASKED_AGAIN_S: Final = 5.0
_TRANSACTION_TIMEOUT_MS: Final = 60_000
_IDENTITY_LOST: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
"""The leader does not know our sequence: what it never took can go under a new identity."""


class Sender:
    """Empties an accumulator; its one task decides, each request under way has another."""

    def __init__(self, cluster: Cluster, config: ProducerConfig, accumulator: Accumulator) -> None:
        self.room = Signal()
        """Fires whenever batches were settled."""
        self.is_flushing = 0
        """How many wait for everything to be sent: nothing lingers meanwhile."""
        self._cluster = cluster
        self._config = config
        self._accumulator = accumulator
        self._identity: ProducerIdentity | None = None if config.is_idempotent else NOBODY
        self._requests: dict[int, int] = defaultdict(int)
        self._news = asyncio.Event()
        self._tasks = Tasks(self._fail)
        self._refreshed_at = 0.0

    def start(self) -> None:
        """Begin to send; needs a running loop."""
        self._refreshed_at = asyncio.get_running_loop().time()
        self._tasks.spawn(self._run(), "produce")

    def wake(self) -> None:
        """Look again: records came, or somebody waits for all of them."""
        self._news.set()

    async def close(self) -> None:
        """Stop; what is not acknowledged fails."""
        await self._tasks.close()
        self._abandon(Disconnected("the producer was closed"))

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._news.clear()
            now = loop.time()
            self._expire(now)
            try:
                await self._find_identities()
                pause_s = await self._dispatch(loop.time())
            except KafkaError as error:
                if not may_pass(error):
                    log.error("cannot produce reason=%s", error)
                    self._abandon(error)
                pause_s = self._config.retry_backoff_ms / 1000
                await asyncio.sleep(pause_s)
                continue
            if self._news.is_set():
                continue
            try:
                async with asyncio.timeout(pause_s):
                    await self._news.wait()
            except TimeoutError:
                pass

    async def _dispatch(self, now: float) -> float | None:
        """Send what is ready; seconds until something else may be, None for not before news."""
        await self._refresh(now)
        ready: dict[int, list[Lane]] = defaultdict(list)
        leaderless: list[Lane] = []
        later: list[float | None] = []
        leaders = self._cluster.topology.leaders
        flying_max = self._config.in_flight_max if self._config.is_idempotent else 1
        is_flushing = self.is_flushing > 0
        for place, lane in list(self._accumulator.active.items()):
            if not lane.waiting:
                del self._accumulator.active[place]
            elif lane.is_ready(now, flying_max, is_flushing=is_flushing):
                leader = leaders.get(place)
                (leaderless if leader is None else ready[leader]).append(lane)
            else:
                later.append(self._next_look(lane, now))
        for leader, lanes in ready.items():
            while lanes and self._requests[leader] < self._config.in_flight_max:
                lanes = self._send(leader, lanes)
        if leaderless:
            topics = sorted({lane.place.topic for lane in leaderless})
            await _bounded(self._cluster.metadata(topics))
            self._refuse_unknown(leaderless)
            if any(leaders.get(lane.place) is None for lane in leaderless):
                return max(self._config.retry_backoff_ms, 1) / 1000
            return 0.0
        return min((each for each in later if each is not None), default=None)

    def _next_look(self, lane: Lane, now: float) -> float | None:
        """When a lane that is not ready may be by itself; None for one that waits for answers."""
        head = lane.waiting[0]
        if lane.is_retrying or lane.flying:
            return None
        return max(0.0, max(lane.retry_at, head.linger_until if head.is_open else 0.0) - now)

    def _send(self, leader: int, lanes: Sequence[Lane]) -> list[Lane]:
        """One request with the first batch of as many lanes as it holds; the other lanes."""
        batches: list[tuple[Lane, Batch]] = []
        size, left = 0, []
        for lane in lanes:
            bytes_ = lane.waiting[0].bytes
            if batches and size + bytes_ > self._config.request_bytes_max:
                left.append(lane)
                continue
            size += bytes_
            batches.append((lane, lane.depart(is_numbered=self._config.is_idempotent)))
        self._requests[leader] += 1
        self._tasks.spawn(self._carry(leader, batches), f"produce to {leader}")
        return left

    async def _carry(self, leader: int, batches: Sequence[tuple[Lane, Batch]]) -> None:
        """One request and what comes of it."""
        try:
            results = await self._ask(leader, batches)
        except KafkaError as failure:
            results = {batch.place: (failure, -1, -1) for _, batch in batches}
        finally:
            self._requests[leader] -= 1
        for lane, batch in batches:
            if batch.done.done():
                continue  # all was abandoned meanwhile
            missing = (KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "no answer for it"), -1, -1)
            error, base_offset, append_time = results.get(batch.place, missing)
            if error is None or error.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                batch.base_offset, batch.error = base_offset, None
                lane.is_known = not lane.is_retrying
                lane.flying.remove(batch)
                self._accumulator.settle(batch, append_time)
            else:
                self._failed(lane, batch, error)
            if lane.is_retrying and all(each.error is not None for each in lane.flying):
                self._regroup(lane)
        self.room.notify()
        self._news.set()

    async def _ask(
        self, leader: int, batches: Sequence[tuple[Lane, Batch]]
    ) -> dict[tuple[str, int], tuple[KafkaError | None, int, int]]:
        connection = await self._cluster.connection_to(leader, CHANNEL)
        version = connection.version_of(produce.ProduceRequest)
        if version < _MAGIC_2_SINCE:
            raise UnsupportedVersion(f"{connection.peer} is older than Kafka 0.11")
        bound_ms = self._cluster.config.request_timeout_ms + self._config.request_timeout_ms
        answer = await connection.request(self._request(batches), version, bound_ms)
        if answer is None:
            return {batch.place: (None, -1, -1) for _, batch in batches}
        return {
            (topic.name, each.index): (
                KafkaError(each.error_code, each.error_message or f"{topic.name}-{each.index}")
                if each.error_code
                else None,
                each.base_offset,
                each.log_append_time_ms,
            )
            for topic in answer.responses
            for each in topic.partition_responses
        }

    def _request(self, batches: Sequence[tuple[Lane, Batch]]) -> produce.ProduceRequest:
        topics: dict[str, list[produce.Partition]] = defaultdict(list)
        for lane, batch in batches:
            topic, partition = batch.place
            identity = lane.identity or self._identity or NOBODY
            records = batch.encode(self._config.codec_for(topic), identity)
            topics[topic].append(produce.Partition(index=partition, records=records))
        return produce.ProduceRequest(
            acks=self._config.required_acks,
            timeout_ms=self._config.request_timeout_ms,
            topic_data=[
                produce.Topic(name=name, partition_data=each) for name, each in topics.items()
            ],
        )

    # What went wrong.

    def _failed(self, lane: Lane, batch: Batch, error: KafkaError) -> None:
        """Note why; the batch stays in its place until all around it are answered."""
        batch.error = error
        batch.is_in_doubt |= _may_be_logged(error)
        lane.is_retrying, lane.is_known = True, False
        if error.code is not ErrorCode.NOT_ENOUGH_REPLICAS:
            self._cluster.forget_leaders([lane.place])
        log.info(
            "produce failed place=%s-%d attempt=%d reason=%s", *lane.place, batch.attempts, error
        )

    def _regroup(self, lane: Lane) -> None:
        """Nothing is under way any more: what may be tried again goes first, the rest is told."""
        now = asyncio.get_running_loop().time()
        again: list[Batch] = []
        broken, gap = False, -1
        for batch in list(lane.flying):
            lane.flying.remove(batch)
            assert batch.error is not None, "regrouped before the answer"
            has_gap = broken or gap >= 0 or bool(again)
            if (broken and batch.is_in_doubt) or not self._may_retry(batch, now, has_gap=has_gap):
                broken, gap = self._give_up(lane, batch, broken=broken, gap=gap)
            else:
                again.append(batch)
        backoff_s = self._config.retry_backoff_ms / 1000
        lane.return_failed(again, now + backoff_s)
        lane.needs_identity |= broken
        if lane.needs_identity:
            self._give_up_doubtful(lane)
        elif gap >= 0:
            lane.number_from(gap)
        if lane.waiting:
            self._accumulator.active[lane.place] = lane

    def _give_up(self, lane: Lane, batch: Batch, *, broken: bool, gap: int) -> tuple[bool, int]:
        """Tell a batch's senders; whether the sequence broke, or else where it has a gap now."""
        error = batch.error
        assert error is not None, "given up without a reason"
        log.warning(
            "dropped a batch place=%s-%d records=%d reason=%s", *lane.place, batch.count, error
        )
        self._accumulator.settle(batch, -1, error)
        is_unsure = batch.is_in_doubt or error.code in _IDENTITY_LOST
        if batch.sequence < 0 or broken or is_unsure:
            return broken or (batch.sequence >= 0 and is_unsure), gap
        return False, batch.sequence if gap < 0 else gap

    def _give_up_doubtful(self, lane: Lane) -> None:
        """Of what waits, tell the senders of what may be logged: under another identity it would
        be logged twice.
        """
        for batch in [each for each in lane.waiting if each.is_in_doubt]:
            lane.waiting.remove(batch)
            self._give_up(lane, batch, broken=True, gap=-1)

    def _may_retry(self, batch: Batch, now: float, *, has_gap: bool) -> bool:
        error = batch.error
        assert error is not None, "retried without a reason"
        retries = self._config.retries
        if now >= batch.deadline or (retries is not None and batch.attempts > retries):
            return False
        if error.code in _IDENTITY_LOST:  # behind a batch that failed, or never taken at all
            return has_gap
        return may_pass(error) or isinstance(error, RequestTimedOut)

    def _expire(self, now: float) -> None:
        """Fail what has waited too long without ever leaving; what left is asked for first."""
        for lane in list(self._accumulator.active.values()):
            if lane.flying or lane.is_retrying:
                continue
            while lane.waiting and lane.waiting[0].deadline <= now:
                batch = lane.waiting.popleft()
                reason = batch.error or KafkaError(ErrorCode.REQUEST_TIMED_OUT, "not sent in time")
                self._accumulator.settle(batch, -1, reason)
                if batch.sequence < 0:
                    continue
                if batch.is_in_doubt:
                    lane.needs_identity = True
                    self._give_up_doubtful(lane)
                elif not lane.needs_identity:
                    lane.number_from(batch.sequence)
            self.room.notify()

    def _refuse_unknown(self, lanes: Sequence[Lane]) -> None:
        """Fail the batches of topics that nobody may write to, or that are gone."""
        for lane in lanes:
            refusal = self._cluster.topology.refusals.get(lane.place.topic)
            if refusal is None or refusal.retriable:
                continue
            self._drop(lane, lane.waiting, KafkaError(refusal, lane.place.topic))
            self.room.notify()

    def _abandon(self, error: KafkaError) -> None:
        for lane in self._accumulator.lanes.values():
            self._drop(lane, lane.waiting, error)
            self._drop(lane, lane.flying, error)
            lane.is_retrying = False
        self.room.notify()

    def _drop(self, lane: Lane, batches: deque[Batch], error: KafkaError) -> None:
        """Tell the senders of all ``batches``; numbers that are gone with them break the rest."""
        while batches:
            batch = batches.popleft()
            lane.needs_identity |= batch.sequence >= 0
            self._accumulator.settle(batch, -1, error)

    def _fail(self, failure: BaseException) -> None:
        self._abandon(
            KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the producer failed: {failure!r}")
        )

    # What is asked besides.

    async def _find_identities(self) -> None:
        """Get the producer id, and another for each lane whose sequence broke."""
        if not self._accumulator.active:
            return
        if self._identity is None:
            try:
                self._identity = await self._new_identity()
            except UnsupportedVersion as error:
                raise UnsupportedVersion(
                    f"set enable.idempotence=false: {error.message}"
                ) from error
        for lane in list(self._accumulator.active.values()):  # records come meanwhile
            if lane.needs_identity and not lane.flying:
                lane.begin(await self._new_identity())

    async def _new_identity(self) -> ProducerIdentity:
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS
        )
        answer = await _bounded(self._cluster.to_any(request, _code))
        if answer.error_code:
            raise KafkaError(known_code(answer.error_code), "no producer id")
        return ProducerIdentity(answer.producer_id, answer.producer_epoch)

    async def _refresh(self, now: float) -> None:
        """Count partitions anew now and then: there may be more."""
        if now - self._refreshed_at < self._config.metadata_refresh_ms / 1000:
            return
        self._refreshed_at = now
        topics = {topic for topic, _ in self._accumulator.lanes}
        if topics:
            await _bounded(self._cluster.metadata(sorted(topics)))


async def _bounded(asking: Awaitable[Any]) -> Any:
    """What cannot be learnt soon is asked again later: records that waited too long come first."""
    try:
        async with asyncio.timeout(_ASKED_AGAIN_S):
            return await asking
    except TimeoutError:
        raise RequestTimedOut(f"nobody answered within {_ASKED_AGAIN_S:g} s") from None


def _may_be_logged(error: KafkaError) -> bool:
    """Whether records that were refused so may be in the log all the same.

    A leader also says that it is none, or that the partition is gone or its disk failed, of what
    it appended and its followers had not yet copied.
    """
    if error.code is ErrorCode.NOT_ENOUGH_REPLICAS:
        return False
    return may_pass(error) or error.code is ErrorCode.UNKNOWN_SERVER_ERROR


def _code(answer: InitProducerIdResponse) -> list[int]:
    return [answer.error_code]
