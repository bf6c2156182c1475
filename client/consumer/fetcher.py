"""Reads many partitions at once: requests to their leaders, chunks kept ready.

Two tasks a leader fetch what has room in its queue. One waits at the broker for data
(``fetch.max.wait.ms``); the other asks without waiting, on a connection of its own, for what a
seek, a resume or a taken chunk made fetchable meanwhile: behind a waiting fetch it would wait as
long, since a broker answers a connection in order. One task routes: it finds leaders again when
they moved, and offsets by the reset policy. Queues are bounded, so that a slow application stops
the fetching of its partitions and of no other.

    route ── finds leaders and offsets ──> serve, serve express (one each for a leader)
      ^                                       │ Fetch, answer
      └── a leader or an offset is not known ─┤
                                              └─> queue of the partition ──> take (the application)

Whatever an answer says is for a partition, and a position in it, that may be gone when it arrives:
each request remembers the ``seek_id`` of its partitions, and what was sought, or removed and added
again meanwhile, is left alone by the answer.

Source: docs/spec/coordinator.md §1.9, §6.6 and §6.11.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Final, Self

from barnabas.client.background import BackgroundTasks, Signal
from barnabas.client.cluster import Cluster, version_for
from barnabas.client.errors import KafkaError, OffsetOutOfRange
from barnabas.client.group_metadata import CommittedOffset
from barnabas.client.retry import Remedy, may_succeed_later
from barnabas.client.topology import TopicPartition
from barnabas.protocol.messages import fetch

from .consumed_records import Chunk
from .fetch_config import FetchConfig
from .fetch_state import TopicPartitionState, fetch_request
from .list_offsets import EARLIEST, LATEST, ask_leaders

log = logging.getLogger(__name__)

CHANNEL: Final = "fetch"
"""A connection of its own: commits and heartbeats must not wait behind a fetch."""
_LEADERS_AGE_S: Final = 1.0
"""How often leaders are looked at without a failure: others share the cluster and learn them."""
_BATCH_SINCE: Final = 3
"""The version of Fetch from which on a batch comes whole, however little was asked for (KIP-74)."""
EXPRESS: Final = "fetch at once"
"""Used while the other waits for data: for what was moved, or has room again."""


class Fetcher:
    """Positions in partitions, and the chunks that lie behind them.

    Use it in ``async with``, or start and close it. Partitions come and go while it runs. It is
    used on one loop: methods without ``await`` are never seen half done by its tasks.
    """

    def __init__(self, cluster: Cluster, config: FetchConfig | None = None) -> None:
        self.config = config or FetchConfig()
        self._cluster = cluster
        self._states: dict[TopicPartition, TopicPartitionState] = {}
        """What is read, in the order in which requests name it; see :meth:`_accept`."""
        self._led: dict[int, dict[TopicPartition, TopicPartitionState]] = {}
        """The same by leader, in the same order; those without a leader are left out."""
        self._led_version: int | None = None
        """The ``leaders_version`` that ``_led`` was made of; None: make it anew."""
        self._ready: dict[TopicPartition, None] = {}
        """Those with chunks, in the order in which they are served; paused ones included."""
        self._failed: dict[TopicPartition, None] = {}
        """Those that stopped, and nobody was told yet."""
        self._serving: dict[int, asyncio.Task[None]] = {}
        """The task that fetches from a leader, by node id."""
        self._polled: set[int] = set()
        """Leaders at which a request waits for data now: only then the other has a use."""
        self._changed: dict[int, Signal] = defaultdict(Signal)
        """By leader: something may be fetched that could not be, its tasks look again."""
        self._needs_routing = asyncio.Event()
        """A partition lacks its leader or its offset."""
        self._arrived = Signal()
        """There may be something to take, a failure included."""
        self._wakes = 0
        """Counts :meth:`wake`, so that a taker knows one from the arrival of a chunk."""
        self._tasks = BackgroundTasks(self._fail)
        self._failure: BaseException | None = None
        """A mistake of ours in one of the tasks: nothing is fetched any more."""

    def start(self) -> None:
        """Begin to fetch; needs a running loop."""
        self._tasks.spawn(self._route(), "fetch routes")

    @property
    def topic_partitions(self) -> frozenset[TopicPartition]:
        """The partitions that are read, paused ones included."""
        return frozenset(self._states)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that wait for :meth:`resume`."""
        return frozenset(
            topic_partition for topic_partition, state in self._states.items() if state.is_paused
        )

    def add(self, positions: Mapping[TopicPartition, int | None]) -> None:
        """Read these from the given offsets, None being where the reset policy says.

        A partition that is read already goes on at its new offset: what it has ready is dropped, a
        failure that nobody was told of is forgotten. Whether it is paused does not change.
        """
        for topic_partition, offset in positions.items():
            state = self._states.get(topic_partition)
            if state is None:
                bytes_max = self.config.partition_max_bytes
                self._states[topic_partition] = TopicPartitionState(
                    topic_partition, offset, bytes_max
                )
                self._led_version = None
            else:
                self._ready.pop(topic_partition, None)
                self._failed.pop(topic_partition, None)
                state.seek(offset)
        self._needs_routing.set()
        self._wake_leaders_of(positions)

    def remove(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Read these no more; what was ready of them is dropped."""
        topic_partitions = list(topic_partitions)
        for topic_partition in topic_partitions:
            self._ready.pop(topic_partition, None)
            self._failed.pop(topic_partition, None)
            self._states.pop(topic_partition, None)
        self._led_version = None
        self._wake_leaders_of(topic_partitions)

    def seek(self, topic_partition: TopicPartition, offset: int | None) -> None:
        """Go on at ``offset``, None being where the reset policy says; KeyError if not read."""
        self._states[topic_partition]
        self.add({topic_partition: offset})

    def pause(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Hand out nothing of these until :meth:`resume`; what is ready is kept.

        So is what comes of a fetch under way. Nothing more is asked for. KeyError if not read.
        """
        for topic_partition in topic_partitions:
            self._states[topic_partition].is_paused = True

    def resume(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Undo :meth:`pause`."""
        topic_partitions = list(topic_partitions)
        for topic_partition in topic_partitions:
            self._states[topic_partition].is_paused = False
        # Both: there may be room to fetch into, and chunks from before the pause to take.
        self._wake_leaders_of(topic_partitions)
        self._arrived.notify()

    def position(self, topic_partition: TopicPartition) -> int | None:
        """The next offset that :meth:`take` will hand out; None while nobody knows it."""
        state = self._states.get(topic_partition)
        return None if state is None else state.position

    def is_current(self, chunk: Chunk) -> bool:
        """Whether its partition is still read, and nobody moved in it since."""
        state = self._states.get(chunk.topic_partition)
        return state is not None and state.seek_id == chunk.seek_id

    def past_markers(
        self, topic_partition: TopicPartition, read: CommittedOffset
    ) -> CommittedOffset:
        """Where to read on after ``read``, behind what nobody is ever handed out there.

        The markers of transactions, and what they aborted, are no records: a group that read all
        there is would otherwise lag behind by one marker for ever.
        """
        state = self._states.get(topic_partition)
        if state is None or state.position is None or state.taken_offset != read.offset:
            return read
        if state.position <= read.offset:
            return read
        return CommittedOffset(state.position, read.metadata, state.position_epoch)

    def wake(self) -> None:
        """Let every :meth:`take` that waits return what there is, or None."""
        self._wakes += 1
        self._arrived.notify()

    async def take(
        self,
        topic_partitions: Collection[TopicPartition] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Chunk | None:
        """The next chunk, of these partitions if named; None after ``timeout_s``, or a wake.

        Several takers may wait at once. Raises what stopped a partition, once, after all that
        was read before: OffsetOutOfRange, DecodingFailed, or KafkaError with the broker's code.
        """
        loop = asyncio.get_running_loop()
        deadline = None if timeout_s is None else loop.time() + timeout_s
        wakes = self._wakes
        while True:
            chunk = self.take_ready(topic_partitions)
            if chunk is not None:
                return chunk
            left_s = None if deadline is None else deadline - loop.time()
            # Looked at once more at the end: a chunk may have come in the same turn of the loop.
            if not await self._arrived.wait(left_s) or wakes != self._wakes:
                return self.take_ready(topic_partitions)

    def take_ready(
        self, topic_partitions: Collection[TopicPartition] | None = None
    ) -> Chunk | None:
        """The next chunk that need not be waited for; raises as :meth:`take` does."""
        if self._failed or self._failure is not None:
            self._raise_failure(topic_partitions)
        # In the order in which they became ready; one with more left goes to the end, so that a
        # busy partition does not starve the others.
        for topic_partition in self._ready:
            state = self._states[topic_partition]
            if state.is_paused or (
                topic_partitions is not None and topic_partition not in topic_partitions
            ):
                continue
            del self._ready[topic_partition]
            chunk = state.take()
            if state.queue:
                self._ready[topic_partition] = None
            self._wake_leaders_of([topic_partition])  # there is room in its queue again
            return chunk
        return None

    async def wait_for_chunk(self, timeout_s: float | None) -> bool:
        """Return when something may have come, or changed; False once ``timeout_s`` is over."""
        return await self._arrived.wait(timeout_s)

    async def close(self) -> None:
        """Stop fetching; the cluster stays open, it is the caller's."""
        await self._tasks.close()

    async def __aenter__(self) -> Self:
        """Start."""
        self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        await self.close()

    def _raise_failure(self, topic_partitions: Collection[TopicPartition] | None) -> None:
        """Raise what stopped one of these, unless chunks from before it are still to be taken.

        Told once, since a caller that asks again wants to know of the other partitions; the
        stopped one stays stopped until it is sought.
        (``test_a_partition_that_refuses_for_good_is_reported_once_and_hinders_no_other``)
        """
        if self._failure is not None:
            raise RuntimeError("the fetcher failed") from self._failure
        for topic_partition in self._failed:
            state = self._states[topic_partition]
            if not state.queue and (
                topic_partitions is None or topic_partition in topic_partitions
            ):
                del self._failed[topic_partition]
                failure, state.failure = state.failure, None
                assert failure is not None, "failed without a failure"
                raise failure

    def _fail(self, error: BaseException) -> None:
        self._failure = error
        self._arrived.notify()

    # Routing: leaders and offsets that are not known.

    async def _route(self) -> None:
        """Find what is missing, when something is missing and once a second.

        While something stays missing it is asked for every ``refresh.leader.backoff.ms`` and no
        sooner, whoever sets the event: a partition without a leader would have us ask all the time.
        """
        backoff_s = max(self.config.refresh_leader_backoff_ms, 1) / 1000
        while True:
            # Cleared before looking: what changes meanwhile sets it again.
            self._needs_routing.clear()
            try:
                is_complete = await self._find_offsets()
                is_complete &= await self._find_leaders()
            except KafkaError as error:
                log.warning("could not find leaders reason=%s", error)
                is_complete = False
                if not may_succeed_later(error):
                    self._stop_all(error)
            if not is_complete:
                await asyncio.sleep(backoff_s)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LEADERS_AGE_S):
                    await self._needs_routing.wait()

    def _stop(self, state: TopicPartitionState, error: KafkaError) -> None:
        state.stop(error)
        self._failed[state.topic_partition] = None
        self._arrived.notify()

    def _stop_all(self, error: KafkaError) -> None:
        """Nothing can be asked of anybody: credentials or versions do not fit."""
        for state in self._states.values():
            if not state.is_stopped:
                self._stop(state, error)

    async def _find_offsets(self) -> bool:
        """Apply the reset policy to partitions without an offset; False when some still have none.

        A partition may be sought, or removed and added again, while leaders are asked: then what
        they answer is for an older position and is dropped.
        """
        asked = {
            topic_partition: (state, state.seek_id)
            for topic_partition, state in self._states.items()
            if state.fetch_offset is None and not state.is_stopped
        }
        if not asked:
            return True
        if self.config.reset == "none":
            for state, _ in asked.values():
                self._stop(state, OffsetOutOfRange(*state.topic_partition, None))
            return True
        time = EARLIEST if self.config.reset == "earliest" else LATEST
        found: dict[TopicPartition, int] = {}
        failures = await ask_leaders(
            self._cluster,
            dict.fromkeys(asked, time),
            found,
            read_committed=self.config.read_committed,
        )
        seek_ids = {topic_partition: seek_id for topic_partition, (_, seek_id) in asked.items()}
        for state in self._not_sought_since(seek_ids):
            topic_partition = state.topic_partition
            offset, error = found.get(topic_partition), failures.get(topic_partition)
            if offset is not None:
                log.info("reset position partition=%s-%d offset=%d", *topic_partition, offset)
                state.reset_to(offset)
            elif error is not None and may_succeed_later(error):
                self._cluster.forget_leaders([topic_partition])
            elif error is not None:
                self._stop(state, error)
        self._wake_leaders_of(asked)
        # Without all of them the caller asks again: some leaders failed, or are not known.
        return len(found) == len(asked)

    async def _find_leaders(self) -> bool:
        """See that somebody serves every leader; False when a partition has none.

        A topic that is refused for good stops its partitions; one that is not there yet may come
        (``test_a_topic_that_is_made_later_is_read_then``).
        """
        wanted = [
            topic_partition
            for topic_partition, state in self._states.items()
            if not state.is_stopped
        ]
        leaders = await self._cluster.leaders(wanted)
        self._group_by_leader()
        for leader in set(leaders.values()) - self._serving.keys():
            self._serving[leader] = self._tasks.spawn(self._serve(leader), f"fetch from {leader}")
            self._tasks.spawn(self._serve_express(leader), f"fetch at once from {leader}")
        for topic_partition in wanted:
            refusal = self._cluster.topology.topic_errors.get(topic_partition.topic)
            state = self._states.get(topic_partition)  # it may have been removed while we asked
            if (
                topic_partition not in leaders
                and refusal is not None
                and not refusal.retriable
                and state
            ):
                self._stop(state, KafkaError(refusal, topic_partition.topic))
        return len(leaders) == len(wanted)

    # Serving one leader.

    async def _serve(self, leader: int) -> None:
        """Fetch from one broker until it leads nothing that is read here.

        Partitions that become fetchable while the request waits are not added to it; they are for
        :meth:`_serve_express`, or for the next request here.
        """
        loop = asyncio.get_running_loop()
        try:
            while led := self._led_by(leader):
                now = loop.time()
                chosen = [
                    state for state in led if state.may_fetch(now, self.config.queued_chunks_max)
                ]
                if chosen:
                    self._polled.add(leader)
                    await self._fetch(leader, chosen, CHANNEL, self.config.max_wait_ms)
                    self._polled.discard(leader)
                else:
                    later = [state.retry_at - now for state in led if state.retry_at > now]
                    await self._changed[leader].wait(min(later, default=None))
        finally:
            self._polled.discard(leader)
            del self._serving[leader]
            self._changed[leader].notify()

    async def _serve_express(self, leader: int) -> None:
        """Fetch what has data, most likely, while the other request waits for some.

        Only what is eager: an idle partition asked for without waiting would be asked for again and
        again. Back-offs end while the other task is at the broker: so this one wakes up for them,
        too. Ends with :meth:`_serve`, whose end is told by ``_changed``.
        """
        loop = asyncio.get_running_loop()
        while leader in self._serving:
            now, most = loop.time(), self.config.queued_chunks_max
            eager = [state for state in self._led_by(leader) if state.is_eager]
            chosen = [state for state in eager if state.may_fetch(now, most)]
            if chosen and leader in self._polled:
                await self._fetch(leader, chosen, EXPRESS, 0)
            else:
                later = [state.retry_at - now for state in eager if state.retry_at > now]
                await self._changed[leader].wait(min(later, default=None))

    def _led_by(self, leader: int) -> list[TopicPartitionState]:
        """What is read from a leader now; one that nobody knows the leader of is in no request."""
        self._group_by_leader()
        return list(self._led.get(leader, {}).values())

    def _group_by_leader(self) -> None:
        """Bring ``_led`` up to date, and have the tasks of all leaders look again if it was not.

        Whoever comes first does so for all: a leader whose task waits since nothing of it can be
        fetched may just have been told to lead another partition.
        (``test_a_partition_that_moves_to_a_leader_with_nothing_to_fetch_is_read_there``)
        """
        topology = self._cluster.topology
        if self._led_version == topology.leaders_version:
            return
        self._led_version = topology.leaders_version
        self._led = defaultdict(dict)
        for topic_partition, state in self._states.items():
            leader = topology.leaders.get(topic_partition)
            if leader is not None:
                self._led[leader][topic_partition] = state
        for signal in self._changed.values():
            signal.notify()

    def _wake_leaders_of(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Have the tasks of those leaders alone look again.

        Each look costs as much as the leader has partitions here, and there is one for every chunk
        that is taken.
        """
        known = self._cluster.topology.leaders
        leaders = {known.get(topic_partition) for topic_partition in topic_partitions}
        for leader in self._changed.keys() & leaders:
            self._changed[leader].notify()

    async def _fetch(
        self, leader: int, chosen: Sequence[TopicPartitionState], channel: str, wait_ms: int
    ) -> None:
        """One request and its answer, which may take ``wait_ms`` and ``request.timeout.ms``.

        A partition is in one request at a time: two would bring the same records twice.
        """
        seek_ids = {state.topic_partition: state.seek_id for state in chosen}
        for state in chosen:
            state.is_fetched = True
        epoch_of = self._cluster.topology.leader_epoch
        request = fetch_request(chosen, self.config, epoch_of, wait_ms)
        bound_ms = self._cluster.config.request_timeout_ms + wait_ms
        try:
            connection = await self._cluster.connection_to(leader, channel)
            version = version_for(connection, fetch.FetchRequest)
            answer = await connection.request(request, version, bound_ms)
            if answer.error_code:
                raise KafkaError(answer.error_code)
        except KafkaError as error:
            log.info("fetch failed leader=%d reason=%s", leader, error)
            for state in self._not_sought_since(seek_ids):
                if may_succeed_later(error):
                    self._retry(state, Remedy.LOOK_AGAIN)
                else:
                    self._stop(state, error)
        else:
            self._accept(answer, seek_ids, version)
        finally:
            # One that was sought may be in another request already, and that has to mark its end.
            for state in self._not_sought_since(seek_ids):
                state.is_fetched = False
            # The one that was asked, and who leads them by now.
            self._changed[leader].notify()
            self._wake_leaders_of(seek_ids)
            self._arrived.notify()

    def _accept(
        self, answer: fetch.FetchResponse, seek_ids: Mapping[TopicPartition, int], version: int
    ) -> None:
        """Take in what came of each partition, and have those with records named last next time.

        A broker fills an answer in the order of the request, up to ``fetch.max.bytes``: a busy
        partition that stayed the first one would starve those behind it (KIP-74).
        """
        filled = sum(
            bool(partition.records) for topic in answer.responses for partition in topic.partitions
        )
        for topic in answer.responses:
            for partition in topic.partitions:
                topic_partition = TopicPartition(topic.topic, partition.partition_index)
                state = self._states.get(topic_partition)
                if state is None or state.seek_id != seek_ids.get(topic_partition):
                    continue
                if partition.error_code:
                    self._retry(state, state.refuse(partition.error_code, self.config))
                else:
                    # Asked again at once, some brokers would answer an empty one at once, too.
                    # What needs more room asks for it in the next request.
                    is_fine = state.accept(
                        partition,
                        self.config,
                        is_alone=not filled,
                        gives_a_batch=version >= _BATCH_SINCE,
                    )
                    if not is_fine:
                        self._retry(state, Remedy.WAIT)
                if state.queue:
                    self._ready.setdefault(topic_partition)
                if state.failure is not None:
                    self._failed[topic_partition] = None
                if partition.records:
                    self._name_last(topic_partition)

    def _name_last(self, topic_partition: TopicPartition) -> None:
        self._states[topic_partition] = self._states.pop(topic_partition)
        leader = self._cluster.topology.leaders.get(topic_partition, -1)
        led = self._led.get(leader, {})
        # It is not there if its leader changed: then all of this is made anew.
        if topic_partition in led:
            led[topic_partition] = led.pop(topic_partition)

    def _retry(self, state: TopicPartitionState, remedy: Remedy) -> None:
        """Do what an error asks for; ask again after ``refresh.leader.backoff.ms``, if at all."""
        # Also for GIVE_UP: that is said of an offset off the log, too, and the reset policy has to
        # find another one.
        if remedy is not Remedy.WAIT:
            self._needs_routing.set()
        if remedy is Remedy.GIVE_UP:
            return
        now = asyncio.get_running_loop().time()
        state.retry_at = now + self.config.refresh_leader_backoff_ms / 1000
        if remedy is Remedy.LOOK_AGAIN:
            self._cluster.forget_leaders([state.topic_partition])

    def _not_sought_since(
        self, seek_ids: Mapping[TopicPartition, int]
    ) -> list[TopicPartitionState]:
        """Those that nobody sought or removed since the request was sent."""
        states = (self._states.get(topic_partition) for topic_partition in seek_ids)
        return [
            state
            for state in states
            if state is not None and state.seek_id == seek_ids[state.topic_partition]
        ]
