"""A replica fetcher: fetches all partitions that one leader leads, with one request under way.

A round: make new partitions fit to be compared by epochs, flush where the topic asks for it, fetch,
apply each partition's part of the answer, and follow what it says (truncate, ask for the bounds of
the leader's log, wait, stop). One request in flight keeps appends in the order of offsets.

    connect → prepare → flush → fetch → apply → fetch what moved → apply → ...
                                          └─ anything else than plain success: a new round

What is on its way when the set of partitions changes is given up, so that a leader with nothing new
does not hold up the partitions that came to it: what was just elected must not wait for a long poll
to end.

What fails is kept as small as it is: a partition waits or stops alone; a lost connection holds up
all partitions of this leader, for one back-off.

Source: docs/spec/cluster.md §3.4 and §3.5. Kafka's ReplicaFetcherThread and AbstractFetcherThread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Mapping
from functools import partial
from math import inf
from typing import Any, Final

from barnabas.broker.quota.replication_quotas import ReplicationQuota
from barnabas.broker.settings.node_config import ReplicationSettings
from barnabas.broker.storage.cooperative import at_once, in_slices
from barnabas.client.connection.connection import Connection
from barnabas.client.errors import KafkaError
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.messages import fetch, list_offsets
from barnabas.protocol.messages.fetch import PartitionResult

from . import fetch_response, leader_epoch_truncation
from .fetch_response import NextStep
from .fetch_session_handler import (
    FetchPosition,
    FetchSessionHandler,
    Key,
    SessionRequest,
    full_look_s,
)
from .partition import Partition

log = logging.getLogger(__name__)

FETCH_VERSION: Final = 12
LIST_OFFSETS_VERSION: Final = 5
"""Those of 2.7-IV1, which Kafka peers speak. Fetch 12 is the first that carries the last fetched
epoch and answers with a diverging one (KIP-595): no OffsetForLeaderEpoch before each fetch."""
LATEST: Final = -1
"""Timestamps of ListOffsets. A replica that asks for the latest is told the log end, a consumer the
high watermark: a follower has to know what the leader has, committed or not."""
EARLIEST: Final = -2
SMALL_BYTES: Final = 64 << 10
"""An answer of this size is used at once: it holds up nobody."""
FIRST_RETRY_S: Final = 0.02
"""Doubled up to the back-off: most failures pass at once, when the leader hears that it leads."""
REFUSED_RETRY_S: Final = 10.0
"""What came is wrong: it is not asked for more often than this in the end."""
THROTTLED_S: Final = 0.1
"""A throttled partition is left out for so long, then the rate is looked at again."""
LOST_SESSION: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
)

GIVEN_UP: Final = b""
"""Stands for an answer that nobody waits for any more; no frame of a leader is empty."""

Dial = Callable[[str, int], Awaitable[Connection]]
"""Connect to another node's inter-broker listener."""
Locate = Callable[[int], tuple[str, int] | None]
"""Where a node's inter-broker listener is; None while that is not known."""


class PartitionFetchState:
    """One partition in one epoch; another epoch is another object, so late answers miss it.

    An answer to a request of a former epoch may hold records that the present leader does not
    have; appended under the new epoch they would never be compared again.
    """

    __slots__ = (
        "due_at",
        "is_in_sync",
        "is_new",
        "key",
        "leader_epoch",
        "partition",
        "pause_s",
        "refused",
    )

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.key: Key = partition.topic, partition.index
        self.leader_epoch = partition.leader_epoch
        self.due_at = 0.0
        """When it is asked for next, in seconds of the loop's clock; 0 is at once."""
        self.pause_s = FIRST_RETRY_S
        self.is_new = True
        """It has not been made fit yet to be compared by epochs: it is not asked for before."""
        self.is_in_sync = False
        """The last answer left nothing committed that is not here; noted while there is a quota."""
        self.refused: tuple[int, ErrorCode] | None = None
        """Which offset could not be taken over at the last try, and why."""

    @property
    def is_safe(self) -> bool:
        """Whether all is on disk that the next request claims, as far as the topic asks for it.

        To ask for an offset is to acknowledge everything below it. With ``flush.messages=1`` a
        follower that asks before its flush has ended acknowledges what a power cut can take.
        """
        log = self.partition.log
        return log.durable_offset >= log.end_offset

    @property
    def position(self) -> tuple[int, int, int, int]:
        """Epoch of the leader, end of this log, its newest epoch and its start."""
        log = self.partition.log
        return self.leader_epoch, log.end_offset, log.epochs.latest, log.start_offset


class ReplicaFetcher:
    """Fetches from node ``leader`` whatever :meth:`add` names; :meth:`run` until cancelled.

    :meth:`add`, :meth:`remove` and :meth:`wake` are called between two steps of :meth:`run`, by
    whoever obeys LeaderAndIsr. So no answer is used before :meth:`_is_current` was asked again.
    """

    def __init__(
        self,
        leader: int,
        node_id: int,
        settings: ReplicationSettings,
        *,
        dial: Dial,
        locate: Locate,
        write_recovery_points: Callable[[], Awaitable[None]],
        quota: ReplicationQuota | None = None,
    ) -> None:
        """``write_recovery_points`` is awaited after a truncation, before more is appended.

        ``quota`` None: no partition ever waits for others.
        """
        self._quota = quota
        self._leader = leader
        self._node_id = node_id
        self._settings = settings
        self._dial = dial
        self._locate = locate
        self._write_recovery_points = write_recovery_points
        self._states: dict[Key, PartitionFetchState] = {}
        self._session = FetchSessionHandler()
        self._connection: Connection | None = None
        self._changed = asyncio.Event()
        self._is_failing = False
        """Told once: a leader that is away for an hour makes two lines of log, not thousands."""
        self._has_added = False
        """Something was added since the last full request was built."""
        self._version = 0
        """Counts changes of what is fetched, and when: a round that began before one must end."""
        self._in_flight: asyncio.Future[bytes] | None = None
        """The answer that is waited for; :meth:`wake` may complete it in the leader's place."""

    def add(self, partition: Partition) -> None:
        """Fetch a partition from its log's end, in the epoch it is in now."""
        self._states[partition.topic, partition.index] = PartitionFetchState(partition)
        self._has_added = True
        self._version += 1

    def remove(self, partition: Partition) -> None:
        """Fetch a partition no more; an answer that is on its way is not used.

        The leader keeps it in the session until the next request names what was forgotten.
        """
        self._states.pop((partition.topic, partition.index), None)
        self._version += 1

    def wake(self) -> None:
        """Partitions were added or nodes moved: wait for nothing that does not know of it.

        Called once for a whole LeaderAndIsr, and whenever metadata changed: the latter must not
        end a long poll, hence the condition. A removal needs no hurry; see :meth:`remove`.
        """
        if self._has_added or self._connection is None:
            self._changed.set()
            if self._in_flight is not None and not self._in_flight.done():
                self._in_flight.set_result(GIVEN_UP)

    async def run(self) -> None:
        """Fetch, for as long as there is anything to fetch, and wait for more.

        What is wrong with the connection or the whole answer ends the round, never the fetcher:
        whoever leads may be started again in a moment.
        """
        try:
            while True:
                try:
                    await self._fetch_round()
                except (KafkaError, OSError) as error:
                    await self._failed(error)
        finally:
            await self._disconnect()

    async def _fetch_round(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        is_throttled = self._quota is not None and not self._quota.is_empty
        if is_throttled:
            self._hold_back(now)
        ready = {key: state for key, state in self._states.items() if state.due_at <= now}
        if not ready:
            pauses = (state.due_at - now for state in self._states.values())
            await self._sleep(min(pauses, default=None))
            return
        connection = await self._connect()
        if connection is None:
            await self._sleep(self._settings.fetch_backoff_ms / 1000)
            return
        ready = await self._prepare(ready)
        if not ready:
            await self._sleep(self._settings.fetch_backoff_ms / 1000)
            return
        # One that was added while we connected or flushed is among these and overdue: the request,
        # which does not name it, waits for nothing then, and the round ends with its answer.
        later = (state.due_at for key, state in self._states.items() if key not in ready)
        next_due = min(later, default=inf)
        request = self._request(ready, next_due)
        version = self._version
        # A log start may have moved by this node's own retention, which is no answer of the leader.
        look_at = now + full_look_s(len(ready))
        while True:
            answer, size = await self._fetch(connection, request)
            touched = (
                None
                if answer is None
                else await self._process_response(answer, size, ready, connection)
            )
            # As long as all goes well and nothing changes, only what was touched is looked at: the
            # cost of a round does not grow with the partitions that are idle, or wait for their
            # next try.
            if (
                touched is None
                or is_throttled
                or version != self._version
                or loop.time() >= min(look_at, next_due)
                or not self._session.is_incremental
            ):
                return
            request = self._build_request(
                self._session.next_request_for(self._positions(touched)), next_due
            )

    def _hold_back(self, now: float) -> None:
        """Leave throttled partitions out for a while, where the rate is exceeded.

        Not those that are in sync: the leader's acks=all waits for them (KIP-73).
        """
        assert self._quota is not None
        for state in self._states.values():
            if state.due_at <= now and not state.is_in_sync and self._quota.holds_back(*state.key):
                state.due_at = now + THROTTLED_S

    def _note_progress(self, state: PartitionFetchState, result: PartitionResult) -> None:
        """Count what came, and whether the partition has caught up with what is committed."""
        if self._quota is not None and not self._quota.is_empty:
            self._quota.record(*state.key, len(result.records or b""))
            end = state.partition.log.end_offset
            state.is_in_sync = not result.error_code and end >= result.high_watermark

    async def _prepare(
        self, ready: Mapping[Key, PartitionFetchState]
    ) -> dict[Key, PartitionFetchState]:
        """Those to ask about: fit to be compared by epochs, and on disk as far as they claim.

        The latter where the topic asks for it (flush.messages): else nothing waits here. A log
        that cannot be flushed claims nothing: it is left out of the request.

        A log that has to be cut may take two turns: the first lowers the recovery point, the second
        cuts once that is written down. A crash between them leaves a start that reads more than it
        has to; the other order would leave one that trusts what is gone.
        """
        while new := [state for state in ready.values() if state.is_new]:
            for state in new:
                outcome = self._isolated(state, lambda state=state: self._prepare_partition(state))  # type: ignore[misc]
                state.is_new = outcome is NextStep.FETCH_AFTER_TRUNCATION
            if any(state.is_new for state in new):
                await self._write_recovery_points()
        unsafe = [state.partition.log for state in ready.values() if not state.is_safe]
        if unsafe:
            # Exceptions are not looked at: whether a flush did its work is asked of the log itself.
            await asyncio.gather(*(log.flush() for log in unsafe), return_exceptions=True)
        fit = {}
        for key, state in ready.items():
            if not state.is_safe:
                self._delay(state)
            elif self._is_current(state):
                fit[key] = state
        return fit

    def _prepare_partition(self, state: PartitionFetchState) -> NextStep:
        return (
            NextStep.FETCH_AFTER_TRUNCATION
            if leader_epoch_truncation.prepare_to_follow(state.partition)
            else NextStep.FETCH
        )

    def _request(
        self, ready: Mapping[Key, PartitionFetchState], next_due: float
    ) -> fetch.FetchRequest:
        self._has_added = False
        self._changed.clear()
        return self._build_request(
            self._session.next_request(self._positions(ready.values())), next_due
        )

    def _positions(self, of: Iterable[PartitionFetchState]) -> dict[Key, FetchPosition]:
        bytes_max = self._settings.fetch_max_bytes
        return {state.key: FetchPosition(*state.position, bytes_max) for state in of}

    def _build_request(
        self, session_request: SessionRequest, next_due: float
    ) -> fetch.FetchRequest:
        settings = self._settings
        # A partition that waits for its next try must not wait for this long poll to end. The
        # leader is told so: an answer under way is given up only for what was added.
        pause_ms = (next_due - asyncio.get_running_loop().time()) * 1000
        return fetch.FetchRequest(
            replica_id=self._node_id,
            max_wait_ms=max(0, int(min(settings.fetch_wait_max_ms, pause_ms))),
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_response_max_bytes,
            isolation_level=0,
            session_id=session_request.session_id,
            session_epoch=session_request.session_epoch,
            topics=session_request.topics,
            forgotten_topics_data=session_request.forgotten,
            rack_id="",
        )

    async def _fetch(
        self, connection: Connection, request: fetch.FetchRequest
    ) -> tuple[fetch.FetchResponse | None, int]:
        """The leader's answer and its bytes; None when it was given up for newcomers.

        Raises KafkaError when none comes within ``replica.socket.timeout.ms``, which is never below
        ``replica.fetch.wait.max.ms`` (the settings are refused else): a leader that only has
        nothing new is not taken for one that is gone.
        """
        asked = connection.ask(request, FETCH_VERSION, self._settings.socket_timeout_ms)
        self._in_flight = asked
        try:
            frame = await asked
        finally:
            self._in_flight = None
        if frame is GIVEN_UP:
            # Answers come in the order of requests: a new connection overtakes the one that waits.
            await self._disconnect()
            return None, 0
        answer: fetch.FetchResponse = connection.read(fetch.FetchRequest, FETCH_VERSION, frame)
        return answer, len(frame)

    async def _process_response(
        self,
        answer: fetch.FetchResponse,
        size: int,
        asked: Mapping[Key, PartitionFetchState],
        connection: Connection,
    ) -> Collection[PartitionFetchState] | None:
        """Use an answer of ``size`` bytes; those to fetch on from, None when not all went well."""
        if answer.error_code:
            # The connection is good, and a lost session costs one full request: no back-off.
            self._session.reset()
            if answer.error_code not in LOST_SESSION:
                raise KafkaError(answer.error_code, f"leader {self._leader}")
            return None
        # The leader has taken over what was named, whatever each partition's code is.
        self._session.handle_response(answer.session_id)
        if self._is_failing:
            self._note_success()
        steps = self._apply_results(answer, asked)
        outcomes = at_once(steps) if size <= SMALL_BYTES else await in_slices(steps)
        # What is not on disk yet, though the topic asks for it, ends the round, too: the next one
        # flushes before it asks.
        if all(outcome is NextStep.FETCH and state.is_safe for state, outcome in outcomes.items()):
            return outcomes.keys()
        # Before the next answer: only what is written down may be cut, and the leader's next word
        # about the same divergence finds it so.
        if NextStep.FETCH_AFTER_TRUNCATION in outcomes.values():
            await self._write_recovery_points()
        outside = [state for state, outcome in outcomes.items() if outcome is NextStep.ASK_BOUNDS]
        await self._ask_bounds(outside, connection)
        return None

    def _apply_results(
        self, answer: fetch.FetchResponse, asked: Mapping[Key, PartitionFetchState]
    ) -> Generator[None, None, dict[PartitionFetchState, NextStep]]:
        """Use each partition's part of an answer, one a step; what was not asked for is ignored.

        A large answer is used in slices of 2 ms (cooperative.py): 10 MiB of appends in one turn
        would hold up every client of this node.
        """
        outcomes = {}
        for topic in answer.responses:
            for result in topic.partitions:
                state = asked.get((topic.topic, result.partition_index))
                if state is not None and self._is_current(state):
                    outcomes[state] = self._isolated(
                        state,
                        lambda state=state, result=result: fetch_response.apply(  # type: ignore[misc]
                            state.partition, result
                        ),
                    )
                    self._note_progress(state, result)
                    yield
        return outcomes

    def _is_current(self, state: PartitionFetchState) -> bool:
        """Nothing is appended under an epoch that has ended, however late the answer is.

        Asked before every step: a LeaderAndIsr may have been obeyed since the last one.
        """
        partition = state.partition
        return (
            self._states.get(state.key) is state
            and not partition.is_leader
            and partition.leader_epoch == state.leader_epoch
        )

    def _isolated(self, state: PartitionFetchState, step: Callable[[], NextStep]) -> NextStep:
        """What goes wrong with one partition does not hinder the others.

        Not even a mistake of ours: one partition that is not followed is an in-sync set that
        shrinks, all of them are a node that is lost.
        """
        try:
            outcome = step()
        except Refused as refusal:
            # A full disk refuses with the same code, but only until there is space again; what is
            # offline has nothing to append to any more.
            is_lost = refusal.code is ErrorCode.KAFKA_STORAGE_ERROR
            self._report(state, refusal)
            outcome = NextStep.STOP if is_lost and state.partition.log.is_offline else NextStep.WAIT
        except Exception:
            log.exception("stopped following %s", state.partition)
            outcome = NextStep.STOP
        if outcome is NextStep.FETCH:
            state.pause_s = FIRST_RETRY_S
            state.refused = None
        elif outcome is NextStep.WAIT:
            self._delay(state)
        elif outcome is NextStep.STOP:
            self.remove(state.partition)
        return outcome

    def _report(self, state: PartitionFetchState, refusal: Refused) -> None:
        """Say it once for each offset: it is tried again for as long as the same node leads."""
        refused = state.partition.log.end_offset, refusal.code
        if state.refused != refused:
            state.refused = refused
            log.error(
                "could not follow %s leader=%d offset=%d: %s, asks again every now and then",
                *(state.partition, self._leader, refused[0], refusal),
            )

    def _delay(self, state: PartitionFetchState) -> None:
        """Ask for it later: 20 ms at first, doubled up to ``replica.fetch.backoff.ms``, or 10 s."""
        pause_s, most_s = state.pause_s, self._settings.fetch_backoff_ms / 1000
        if state.refused is not None:
            most_s = max(most_s, REFUSED_RETRY_S)
        # The back-off belongs to the partition: one whose leader has not heard yet that it leads
        # must not slow the others down.
        state.due_at = asyncio.get_running_loop().time() + min(pause_s, most_s)
        # Said once, when the bound is reached: what passes sooner is the usual end of an election.
        if pause_s < most_s <= 2 * pause_s:
            log.info("still cannot fetch %s from node=%d", state.partition, self._leader)
        state.pause_s = min(2 * pause_s, most_s)
        self._version += 1

    async def _ask_bounds(
        self, states: Collection[PartitionFetchState], connection: Connection
    ) -> None:
        """The leader has nothing where these logs end: go where it has something.

        Both bounds are asked for before anything is cut: a log that ends too late is truncated,
        one that ends too early begins anew at the leader's start, and nothing else is touched.
        The epoch goes with the question: a leader that was replaced meanwhile refuses it, instead
        of naming an end to which nobody has to truncate any more (docs/spec/cluster.md §3.5).
        """
        starts = await self._ask_bound(states, connection, EARLIEST)
        ends = await self._ask_bound(starts, connection, LATEST)
        outcomes = await in_slices(
            self._go_to_bounds({state: (starts[state], end) for state, end in ends.items()})
        )
        # Once for all of them, as after an answer: the file lists every log of this node.
        if NextStep.FETCH_AFTER_TRUNCATION in outcomes:
            await self._write_recovery_points()

    async def _ask_bound(
        self, states: Collection[PartitionFetchState], connection: Connection, timestamp: int
    ) -> dict[PartitionFetchState, int]:
        """One bound of each partition, asked for at once; those without an answer wait."""
        topics: dict[str, list[list_offsets.Partition]] = {}
        for state in states:
            topic, index = state.key
            topics.setdefault(topic, []).append(
                list_offsets.Partition(
                    partition_index=index,
                    current_leader_epoch=state.leader_epoch,
                    timestamp=timestamp,
                )
            )
        if not topics:
            return {}
        request = list_offsets.ListOffsetsRequest(
            replica_id=self._node_id,
            isolation_level=0,
            topics=[list_offsets.Topic(name=name, partitions=of) for name, of in topics.items()],
        )
        timeout_ms = self._settings.socket_timeout_ms
        answer: Any = await connection.request(request, LIST_OFFSETS_VERSION, timeout_ms)
        bounds = {
            (topic.name, result.partition_index): int(result.offset)
            for topic in answer.topics
            for result in topic.partitions
            if not result.error_code
        }
        found = {state: bounds[state.key] for state in states if state.key in bounds}
        for state in states:
            if state not in found:
                self._delay(state)
        return found

    def _go_to_bounds(
        self, bounds: Mapping[PartitionFetchState, tuple[int, int]]
    ) -> Generator[None, None, set[NextStep]]:
        outcomes = set()
        for state, (start, end) in bounds.items():
            if self._is_current(state):
                step = partial(self._truncate_to_bounds, state, start, end)
                outcomes.add(self._isolated(state, step))
                yield
        return outcomes

    def _truncate_to_bounds(self, state: PartitionFetchState, start: int, end: int) -> NextStep:
        # Between both bounds nothing is wrong any more, the leader has moved on: only ask again.
        is_changed = leader_epoch_truncation.truncate_to_bounds(state.partition, start, end)
        return NextStep.FETCH_AFTER_TRUNCATION if is_changed else NextStep.WAIT

    # --- the connection ------------------------------------------------------------------------

    async def _connect(self) -> Connection | None:
        """The connection, dialled where there is none; None while nobody knows where to."""
        if self._connection is None:
            address = self._locate(self._leader)
            if address is None:
                return None
            self._session.reset()  # the session may be gone with the process that held it
            self._connection = await self._dial(*address)
        return self._connection

    async def _failed(self, error: Exception) -> None:
        if not self._is_failing:
            log.warning("could not fetch from node=%d: %s", self._leader, error)
        self._is_failing = True
        await self._disconnect()
        await self._sleep(self._settings.fetch_backoff_ms / 1000)

    def _note_success(self) -> None:
        log.info("fetches again from node=%d", self._leader)
        self._is_failing = False

    async def _disconnect(self) -> None:
        self._session.reset()
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _sleep(self, seconds: float | None) -> None:
        """Wait for so long, or until partitions are added."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            pass
        self._changed.clear()
