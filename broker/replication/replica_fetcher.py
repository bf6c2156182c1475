"""One leader, as fetched from: one connection, one request under way, all its partitions in it.

Source: docs/spec/cluster.md §3.4. What is on its way when the set of partitions changes is given
up, so that a leader with nothing new does not hold up the partitions that came to it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Mapping
from typing import Any, Final

from barnabas.broker.settings.node_config import ReplicationSettings
from barnabas.broker.storage.cooperative import at_once, in_slices
from barnabas.client.connection.connection import Connection
from barnabas.client.errors import KafkaError
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.messages import fetch, list_offsets

from . import fetch_response
from .fetch_response import NextStep
from .fetch_session_handler import FetchPosition, FetchSessionHandler, Key, NamedPartitions
from .partition import Partition

log = logging.getLogger(__name__)

FETCH_VERSION: Final = 12
LIST_OFFSETS_VERSION: Final = 5
"""Those of 2.7-IV1, which Kafka peers speak."""
LATEST: Final = -1
EARLIEST: Final = -2
FULL_LOOK_S: Final = 0.25
"""Partitions that no answer touched are looked at so often."""
SMALL_BYTES: Final = 64 << 10
"""An answer of this size is used at once: it holds up nobody."""
FIRST_RETRY_S: Final = 0.02
"""Doubled up to the back-off: most failures pass at once, when the leader hears that it leads."""
REFUSED_RETRY_S: Final = 10.0
"""What came is wrong: it is not asked for more often than this in the end."""
LOST_SESSION: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
)

GIVEN_UP: Final = b""
"""Stands for an answer that nobody waits for any more."""

Connect = Callable[[str, int], Awaitable[Connection]]
"""Connect to another node's inter-broker listener."""
Locate = Callable[[int], tuple[str, int] | None]
"""Where a node's inter-broker listener is; None while that is not known."""


class PartitionFetchState:
    """One partition in one epoch; another epoch is another object, so late answers miss it."""

    __slots__ = ("due_at", "is_new", "key", "leader_epoch", "partition", "pause_s", "refused")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.key: Key = partition.topic, partition.index
        self.leader_epoch = partition.leader_epoch
        self.due_at = 0.0
        self.pause_s = FIRST_RETRY_S
        self.is_new = True
        self.refused: tuple[int, ErrorCode] | None = None
        """Which offset could not be taken over at the last try, and why."""

    @property
    def is_safe(self) -> bool:
        """Whether all is on disk that the next request claims, as far as the topic asks for it."""
        log = self.partition.log
        return log.durable_offset >= log.end_offset

    @property
    def position(self) -> tuple[int, int, int, int]:
        """Epoch of the leader, end of this log, its newest epoch and its start."""
        log = self.partition.log
        return self.leader_epoch, log.end_offset, log.epochs.latest, log.start_offset


class ReplicaFetcher:
    """Fetches from node ``leader`` whatever :meth:`add` names; :meth:`run` until cancelled."""

    def __init__(
        self,
        leader: int,
        node_id: int,
        settings: ReplicationSettings,
        *,
        dial: Connect,
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
        self._followed: dict[Key, PartitionFetchState] = {}
        self._session = FetchSessionHandler()
        self._link: Connection | None = None
        self._changed = asyncio.Event()
        self._is_failing = False
        self._has_newcomers = False
        self._version = 0
        """Counts changes of what is fetched, and when."""
        self._asked: asyncio.Future[bytes] | None = None

    def add(self, partition: Partition) -> None:
        """Fetch a partition from its log's end, in the epoch it is in now."""
        self._followed[partition.topic, partition.index] = PartitionFetchState(partition)
        self._has_newcomers = True
        self._version += 1

    def remove(self, partition: Partition) -> None:
        """Fetch a partition no more; an answer that is on its way is not used."""
        self._followed.pop((partition.topic, partition.index), None)
        self._version += 1

    def hurry(self) -> None:
        """Partitions were added or nodes moved: wait for nothing that does not know of it."""
        if self._has_newcomers or self._link is None:
            self._changed.set()
            if self._asked is not None and not self._asked.done():
                self._asked.set_result(GIVEN_UP)

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
        request = self._request(ready, min(later, default=None))
        version = self._version
        while True:
            answer, size = await self._answer(link, request)
            touched = None if answer is None else await self._take(answer, size, ready, link)
            # As long as all goes well and nothing changes, only what was touched is looked at.
            if (
                not touched
                or later
                or version != self._version
                or loop.time() >= now + FULL_LOOK_S
                or not self._session.is_incremental
            ):
                return
            request = self._filled(self._session.name_again(self._positions(touched)))

    async def _made_ready(
        self, ready: Mapping[Key, PartitionFetchState]
    ) -> dict[Key, PartitionFetchState]:
        """Those to ask about: fit to be compared by epochs, and on disk as far as they claim.

        The latter where the topic asks for it (flush.messages): else nothing waits here. A log
        that cannot be flushed claims nothing.
        """
        while new := [one for one in ready.values() if one.is_new]:
            for one in new:
                outcome = self._guarded(one, lambda one=one: self._begin(one))  # type: ignore[misc]
                one.is_new = outcome is NextStep.FETCH_AFTER_TRUNCATION
            if any(one.is_new for one in new):
                await self._truncated()
        unsafe = [one.partition.log for one in ready.values() if not one.is_safe]
        if unsafe:
            await asyncio.gather(*(log.flush() for log in unsafe), return_exceptions=True)
        fit = {}
        for key, one in ready.items():
            if not one.is_safe:
                self._delay(one)
            elif self._is_current(one):
                fit[key] = one
        return fit

    def _begin(self, one: PartitionFetchState) -> NextStep:
        return (
            NextStep.FETCH_AFTER_TRUNCATION
            if fetch_response.begin(one.partition)
            else NextStep.FETCH
        )

    def _request(
        self, ready: Mapping[Key, PartitionFetchState], pause_s: float | None
    ) -> fetch.FetchRequest:
        wait_ms = self._settings.fetch_wait_max_ms
        if pause_s is not None:
            wait_ms = max(0, min(wait_ms, int(pause_s * 1000)))
        self._has_newcomers = False
        self._changed.clear()
        return self._filled(self._session.name(self._positions(ready.values())), wait_ms)

    def _positions(self, of: Iterable[PartitionFetchState]) -> dict[Key, FetchPosition]:
        bytes_max = self._settings.fetch_max_bytes
        return {one.key: FetchPosition(*one.position, bytes_max) for one in of}

    def _filled(self, named: NamedPartitions, wait_ms: int | None = None) -> fetch.FetchRequest:
        settings = self._settings
        return fetch.FetchRequest(
            replica_id=self._node_id,
            max_wait_ms=settings.fetch_wait_max_ms if wait_ms is None else wait_ms,
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
    ) -> tuple[fetch.FetchResponse | None, int]:
        """The leader's answer and its bytes; None when it was given up for newcomers."""
        asked = link.ask(request, FETCH_VERSION, self._settings.socket_timeout_ms)
        self._asked = asked
        try:
            frame = await asked
        finally:
            self._asked = None
        if frame is GIVEN_UP:
            # Answers come in the order of requests: a new connection overtakes the one that waits.
            await self._hang_up()
            return None, 0
        answer: fetch.FetchResponse = link.read(fetch.FetchRequest, FETCH_VERSION, frame)
        return answer, len(frame)

    async def _take(
        self,
        answer: fetch.FetchResponse,
        size: int,
        asked: Mapping[Key, PartitionFetchState],
        link: Connection,
    ) -> Collection[PartitionFetchState] | None:
        """Use an answer of ``size`` bytes; those to fetch on from, None when not all went well."""
        if answer.error_code:
            self._session.reset()
            if answer.error_code not in LOST_SESSION:
                raise KafkaError(answer.error_code, f"leader {self._leader}")
            return None
        self._session.answered(answer.session_id)
        if self._is_failing:
            self._note_success()
        steps = self._apply_all(answer, asked)
        outcomes = at_once(steps) if size <= SMALL_BYTES else await in_slices(steps)
        if all(outcome is NextStep.FETCH and one.is_safe for one, outcome in outcomes.items()):
            return outcomes.keys()
        if NextStep.FETCH_AFTER_TRUNCATION in outcomes.values():
            await self._truncated()
        for one, outcome in outcomes.items():
            if outcome is NextStep.ASK_BOUNDS:
                await self._ask_bounds(one, link)
        return None

    def _apply_all(
        self, answer: fetch.FetchResponse, asked: Mapping[Key, PartitionFetchState]
    ) -> Generator[None, None, dict[PartitionFetchState, NextStep]]:
        outcomes = {}
        for topic in answer.responses:
            for result in topic.partitions:
                one = asked.get((topic.topic, result.partition_index))
                if one is not None and self._is_current(one):
                    outcomes[one] = self._guarded(
                        one,
                        lambda one=one, result=result: fetch_response.apply(  # type: ignore[misc]
                            one.partition, result
                        ),
                    )
                    yield
        return outcomes

    def _is_current(self, one: PartitionFetchState) -> bool:
        """Nothing is appended under an epoch that has ended, however late the answer is."""
        partition = one.partition
        return (
            self._followed.get(one.key) is one
            and not partition.is_leader
            and partition.leader_epoch == one.leader_epoch
        )

    def _guarded(self, one: PartitionFetchState, step: Callable[[], NextStep]) -> NextStep:
        """What goes wrong with one partition does not hinder the others."""
        try:
            outcome = step()
        except Refused as refusal:
            is_lost = refusal.code is ErrorCode.KAFKA_STORAGE_ERROR
            self._report(one, refusal)
            outcome = NextStep.STOP if is_lost and one.partition.log.is_offline else NextStep.WAIT
        except Exception:
            log.exception("stopped following %s", one.partition)
            outcome = NextStep.STOP
        if outcome is NextStep.FETCH:
            one.pause_s = FIRST_RETRY_S
            one.refused = None
        elif outcome is NextStep.WAIT:
            self._delay(one)
        elif outcome is NextStep.STOP:
            self.remove(one.partition)
        return outcome

    def _report(self, one: PartitionFetchState, refusal: Refused) -> None:
        """Say it once: it is tried again for as long as the same node leads."""
        refused = one.partition.log.end_offset, refusal.code
        if one.refused != refused:
            one.refused = refused
            log.error(
                "could not follow %s leader=%d offset=%d: %s, asks again every now and then",
                *(one.partition, self._leader, refused[0], refusal),
            )

    def _delay(self, one: PartitionFetchState) -> None:
        pause_s, most_s = one.pause_s, self._settings.fetch_backoff_ms / 1000
        if one.refused is not None:
            most_s = max(most_s, REFUSED_RETRY_S)
        one.due_at = asyncio.get_running_loop().time() + min(pause_s, most_s)
        if pause_s < most_s <= 2 * pause_s:
            log.info("still cannot fetch %s from node=%d", one.partition, self._leader)
        one.pause_s = min(2 * pause_s, most_s)
        self._version += 1

    async def _ask_bounds(self, one: PartitionFetchState, link: Connection) -> None:
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
        if outcome is NextStep.FETCH_AFTER_TRUNCATION:
            await self._truncated()

    async def _ask_bound(
        self, one: PartitionFetchState, link: Connection, timestamp: int
    ) -> int | None:
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

    def _restart(self, one: PartitionFetchState, start: int, end: int) -> NextStep:
        is_changed = fetch_response.restart(one.partition, start, end)
        return NextStep.FETCH_AFTER_TRUNCATION if is_changed else NextStep.WAIT

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
