"""One leader, as fetched from: one connection, one request under way, all its partitions in it.

Source: cluster.md section 3.4. What is on its way when the set of partitions changes is given up,
so that a leader with nothing new does not hold up the partitions that came to it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any, Final

from barnabas.broker.config import ReplicationSettings
from barnabas.broker.storage.slices import in_slices
from barnabas.client.connection import Connection
from barnabas.client.errors import KafkaError
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.messages import fetch, list_offsets

from . import fetched
from .fetch_session import FetchSession, Key, Position
from .fetched import Next
from .partition import Partition

log = logging.getLogger(__name__)

FETCH_VERSION: Final = 12
LIST_OFFSETS_VERSION: Final = 5
"""Those of 2.7-IV1, which Kafka peers speak."""
LATEST: Final = -1
EARLIEST: Final = -2
LOST_SESSION: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
)

Dial = Callable[[str, int], Awaitable[Connection]]
"""Connect to another node's inter-broker listener."""
Locate = Callable[[int], tuple[str, int] | None]
"""Where a node's inter-broker listener is; None while that is not known."""


class Followed:
    """One partition in one epoch; another epoch is another object, so late answers miss it."""

    __slots__ = ("due_at", "is_new", "leader_epoch", "partition")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.due_at = 0.0
        self.is_new = True

    @property
    def position(self) -> tuple[int, int, int, int]:
        """Epoch of the leader, end of this log, its newest epoch and its start."""
        log = self.partition.log
        return self.leader_epoch, log.end_offset, log.epochs.latest, log.start_offset


class Fetcher:
    """Fetches from node ``leader`` whatever :meth:`add` names; :meth:`run` until cancelled."""

    def __init__(
        self,
        leader: int,
        node_id: int,
        settings: ReplicationSettings,
        *,
        dial: Dial,
        locate: Locate,
        truncated: Callable[[], Awaitable[None]],
    ) -> None:
        """``truncated`` writes recovery points down."""
        self._leader = leader
        self._node_id = node_id
        self._settings = settings
        self._dial = dial
        self._locate = locate
        self._truncated = truncated
        self._followed: dict[Key, Followed] = {}
        self._session = FetchSession()
        self._link: Connection | None = None
        self._changed = asyncio.Event()
        self._is_failing = False
        self._has_newcomers = False

    def add(self, partition: Partition) -> None:
        """Fetch a partition from its log's end, in the epoch it is in now."""
        self._followed[partition.topic, partition.index] = Followed(partition)
        self._has_newcomers = True

    def remove(self, partition: Partition) -> None:
        """Fetch a partition no more; an answer that is on its way is not used."""
        self._followed.pop((partition.topic, partition.index), None)

    def hurry(self) -> None:
        """Partitions were added or nodes moved: wait for nothing that does not know of it."""
        if self._has_newcomers or self._link is None:
            self._changed.set()

    async def run(self) -> None:
        """Fetch, for as long as there is anything to fetch, and wait for more."""
        try:
            while True:
                try:
                    await self._round()
                except (KafkaError, OSError) as error:
                    await self._failed(error)
        finally:
            await self._hang_up()

    async def _round(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        ready = {key: one for key, one in self._followed.items() if one.due_at <= now}
        pause_s = min((one.due_at - now for one in self._followed.values()), default=None)
        if not ready:
            await self._sleep(pause_s)
            return
        link = await self._connected()
        if link is None:
            await self._sleep(self._settings.fetch_backoff_ms / 1000)
            return
        ready = await self._made_ready(ready)
        if not ready:
            await self._sleep(self._settings.fetch_backoff_ms / 1000)
            return
        later = [one.due_at - now for key, one in self._followed.items() if key not in ready]
        answer = await self._answer(link, self._request(ready, min(later, default=None)))
        if answer is not None:
            await self._take(answer, ready, link)

    async def _made_ready(self, ready: Mapping[Key, Followed]) -> dict[Key, Followed]:
        """Those to ask about: fit to be compared by epochs, and on disk as far as they claim.

        The latter where the topic asks for it (flush.messages): else nothing waits here. A log
        that cannot be flushed claims nothing.
        """
        while new := [one for one in ready.values() if one.is_new]:
            for one in new:
                outcome = self._guarded(one, lambda one=one: self._begin(one))  # type: ignore[misc]
                one.is_new = outcome is Next.FETCH_AFTER_TRUNCATION
            if any(one.is_new for one in new):
                await self._truncated()
        unsafe = [
            one.partition.log
            for one in ready.values()
            if one.partition.log.durable_offset < one.partition.log.end_offset
        ]
        if unsafe:
            await asyncio.gather(*(log.flush() for log in unsafe), return_exceptions=True)
        fit = {}
        for key, one in ready.items():
            if one.partition.log.durable_offset < one.partition.log.end_offset:
                self._delay(one)
            elif self._is_current(one):
                fit[key] = one
        return fit

    def _begin(self, one: Followed) -> Next:
        return Next.FETCH_AFTER_TRUNCATION if fetched.begin(one.partition) else Next.FETCH

    def _request(self, ready: Mapping[Key, Followed], pause_s: float | None) -> fetch.FetchRequest:
        settings = self._settings
        wait_ms = settings.fetch_wait_max_ms
        if pause_s is not None:
            wait_ms = max(0, min(wait_ms, int(pause_s * 1000)))
        self._has_newcomers = False
        self._changed.clear()
        named = self._session.name(
            {key: Position(*one.position, settings.fetch_max_bytes) for key, one in ready.items()}
        )
        return fetch.FetchRequest(
            replica_id=self._node_id,
            max_wait_ms=wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_response_max_bytes,
            isolation_level=0,
            session_id=named.session_id,
            session_epoch=named.session_epoch,
            topics=named.topics,
            forgotten_topics_data=named.forgotten,
            rack_id="",
        )

    async def _answer(
        self, link: Connection, request: fetch.FetchRequest
    ) -> fetch.FetchResponse | None:
        """The leader's answer; None when it was given up for partitions that came meanwhile."""
        answering = asyncio.ensure_future(
            link.request(request, FETCH_VERSION, self._settings.socket_timeout_ms)
        )
        changing = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait({answering, changing}, return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                answer: fetch.FetchResponse = answering.result()
                return answer
        finally:
            changing.cancel()
            answering.cancel()
        # Answers come in the order of requests: a new connection overtakes the one that waits.
        await self._hang_up()
        return None

    async def _take(
        self, answer: fetch.FetchResponse, asked: Mapping[Key, Followed], link: Connection
    ) -> None:
        if answer.error_code:
            self._session.reset()
            if answer.error_code not in LOST_SESSION:
                raise KafkaError(answer.error_code, f"leader {self._leader}")
            return
        self._session.answered(answer.session_id)
        self._note_success()
        outcomes = await in_slices(self._apply_all(answer, asked))
        if Next.FETCH_AFTER_TRUNCATION in outcomes.values():
            await self._truncated()
        for one, outcome in outcomes.items():
            if outcome is Next.ASK_BOUNDS:
                await self._ask_bounds(one, link)

    def _apply_all(
        self, answer: fetch.FetchResponse, asked: Mapping[Key, Followed]
    ) -> Generator[None, None, dict[Followed, Next]]:
        outcomes = {}
        for topic in answer.responses:
            for result in topic.partitions:
                one = asked.get((topic.topic, result.partition_index))
                if one is not None and self._is_current(one):
                    outcomes[one] = self._guarded(
                        one,
                        lambda one=one, result=result: fetched.apply(  # type: ignore[misc]
                            one.partition, result
                        ),
                    )
                    yield
        return outcomes

    def _is_current(self, one: Followed) -> bool:
        """Nothing is appended under an epoch that has ended, however late the answer is."""
        partition = one.partition
        return (
            self._followed.get((partition.topic, partition.index)) is one
            and not partition.is_leader
            and partition.leader_epoch == one.leader_epoch
        )

    def _guarded(self, one: Followed, step: Callable[[], Next]) -> Next:
        """What goes wrong with one partition does not hinder the others."""
        try:
            outcome = step()
        except Refused as refusal:
            is_lost = refusal.code is ErrorCode.KAFKA_STORAGE_ERROR
            log.error("could not follow %s: %s", one.partition, refusal)
            outcome = Next.STOP if is_lost and one.partition.log.is_offline else Next.WAIT
        except Exception:
            log.exception("stopped following %s", one.partition)
            outcome = Next.STOP
        if outcome is Next.WAIT:
            self._delay(one)
        elif outcome is Next.STOP:
            self.remove(one.partition)
        return outcome

    def _delay(self, one: Followed) -> None:
        backoff_s = self._settings.fetch_backoff_ms / 1000
        one.due_at = asyncio.get_running_loop().time() + backoff_s

    async def _ask_bounds(self, one: Followed, link: Connection) -> None:
        """The leader has nothing where this log ends: go where it has something."""
        bounds = []
        for timestamp in (EARLIEST, LATEST):
            bound = await self._ask_bound(one, link, timestamp)
            if bound is None:
                self._delay(one)
                return
            bounds.append(bound)
        if not self._is_current(one):
            return
        outcome = self._guarded(one, lambda: self._restart(one, *bounds))
        if outcome is Next.FETCH_AFTER_TRUNCATION:
            await self._truncated()

    async def _ask_bound(self, one: Followed, link: Connection, timestamp: int) -> int | None:
        partition = one.partition
        request = list_offsets.ListOffsetsRequest(
            replica_id=self._node_id,
            isolation_level=0,
            topics=[
                list_offsets.Topic(
                    name=partition.topic,
                    partitions=[
                        list_offsets.Partition(
                            partition_index=partition.index,
                            current_leader_epoch=one.leader_epoch,
                            timestamp=timestamp,
                        )
                    ],
                )
            ],
        )
        timeout_ms = self._settings.socket_timeout_ms
        answer: Any = await link.request(request, LIST_OFFSETS_VERSION, timeout_ms)
        result = answer.topics[0].partitions[0]
        return None if result.error_code else int(result.offset)

    def _restart(self, one: Followed, start: int, end: int) -> Next:
        is_changed = fetched.restart(one.partition, start, end)
        return Next.FETCH_AFTER_TRUNCATION if is_changed else Next.WAIT

    # --- the connection ------------------------------------------------------------------------

    async def _connected(self) -> Connection | None:
        """The connection, dialled where there is none; None while nobody knows where to."""
        if self._link is None:
            address = self._locate(self._leader)
            if address is None:
                return None
            self._session.reset()
            self._link = await self._dial(*address)
        return self._link

    async def _failed(self, error: Exception) -> None:
        if not self._is_failing:
            log.warning("could not fetch from node=%d: %s", self._leader, error)
        self._is_failing = True
        await self._hang_up()
        await self._sleep(self._settings.fetch_backoff_ms / 1000)

    def _note_success(self) -> None:
        if self._is_failing:
            log.info("fetches again from node=%d", self._leader)
        self._is_failing = False

    async def _hang_up(self) -> None:
        self._session.reset()
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    async def _sleep(self, seconds: float | None) -> None:
        """Wait for so long, or until partitions are added."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            pass
        self._changed.clear()
