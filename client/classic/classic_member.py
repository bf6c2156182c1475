"""One member of a classic group: rebalances, owned partitions, consumed offsets.

Source: docs/spec/coordinator.md §6.2 to §6.4, §6.7 and §6.10. A rebalance here touches only
partitions that change hands; those that stay are read on, which no other member can tell from the
outside.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Final, Protocol

from barnabas.client.errors import KafkaError, OffsetOutOfRange
from barnabas.client.topology import TopicPartition
from barnabas.client.zookeeper.interface import SessionState, ZooKeeper, ZooKeeperError
from barnabas.client.zookeeper.znode_watches import WatchedReads
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.zookeeper import znodes
from barnabas.protocol.zookeeper.znodes import ConsumerRegistration

from .classic_config import ClassicConfig
from .fetcher_manager import ConsumerFetcherManager
from .group_view import GroupView, view_group
from .kafka_stream import KafkaStream, StreamPosition
from .offset_stores import Failures, OffsetStore
from .partition_assignment import STRATEGIES, Owners
from .partition_ownership import ClaimRefused, ConsumerAlreadyRegistered, PartitionOwnership

log = logging.getLogger(__name__)

_PASSING: Final = (ConsumerAlreadyRegistered, ClaimRefused, KafkaError, ValueError, ZooKeeperError)
"""What makes one attempt fail, and not the next one perhaps."""


class ConsumerRebalanceFailed(Exception):  # noqa: N818 - named as Kafka names it
    """No attempt of a rebalance succeeded: this member does not own what it should."""


class ClassicListener:
    """Told of rebalances, from within: must not block. Derive from it what you need."""

    def before_releasing_partitions(self, released: Collection[TopicPartition]) -> None:
        """These are about to be given up; their offsets were committed if that is automatic."""

    def before_starting_fetchers(self, consumer_id: str, owners: Owners) -> None:
        """The whole group's partitions and their threads; ours are about to be read."""


class StreamFinder(Protocol):
    """Which stream a partition feeds."""

    def __call__(self, topic: str, thread_id: str) -> KafkaStream:
        """The stream of a thread for a topic."""
        ...


class ClassicMember:
    """Takes its part of a group's partitions, and gives up what is others'.

    ``problem`` says why it owns less than it should; None while all is well.
    """

    def __init__(
        self,
        zookeeper: ZooKeeper,
        config: ClassicConfig,
        consumer_id: str,
        registration: ConsumerRegistration,
        find_stream: StreamFinder,
        store: OffsetStore,
        fetchers: ConsumerFetcherManager,
        listener: ClassicListener,
    ) -> None:
        self.problem: str | None = None
        self.rebalances = 0
        """How often partitions changed hands."""
        self._zookeeper = zookeeper
        self._config = config
        self._consumer_id = consumer_id
        self._registration = registration
        self._find_stream = find_stream
        self._store = store
        self._fetchers = fetchers
        self._listener = listener
        self._changed = asyncio.Event()
        self._reads = WatchedReads(zookeeper, self._changed.set)
        self._ownership = PartitionOwnership(zookeeper, config.group_id, consumer_id)
        self._positions: dict[TopicPartition, StreamPosition] = {}
        self._lock = asyncio.Lock()
        zookeeper.on_state.append(self._session_changed)

    @property
    def owned(self) -> Mapping[TopicPartition, str]:
        """The thread of each partition that is ours."""
        return dict(self._ownership.claimed)

    async def rebalance(self) -> None:
        """Own what the group's present state gives us.

        Tries for ``rebalance.max.retries`` times ``rebalance.backoff.ms``, at once when a former
        owner lets go. Raises ConsumerRebalanceFailed.
        """
        loop = asyncio.get_running_loop()
        backoff_s = self._config.backoff_s
        deadline = loop.time() + self._config.rebalance_max_retries * backoff_s
        while True:
            self._changed.clear()
            try:
                async with self._lock:
                    await self._attempt()
            except _PASSING as error:
                failure = error
            else:
                self.problem = None
                return
            log.info("rebalance attempt failed consumer=%s: %s", self._consumer_id, failure)
            left_s = deadline - loop.time()
            if left_s <= 0:
                self.problem = f"{type(failure).__name__}: {failure}"
                raise ConsumerRebalanceFailed(self.problem) from failure
            await self.await_change(min(backoff_s, left_s))

    async def await_change(self, timeout_s: float | None) -> None:
        """Return when something we read has changed, or ``timeout_s`` is over."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return

    async def commit(self, *, retry_for_ms: int = 0) -> Failures:
        """Store how far every partition of ours is consumed; why not, for those refused.

        UNKNOWN_MEMBER_ID says that a partition is another's by now, which we learn here.
        Raises KafkaError or ZooKeeperError when a store could not be asked.
        """
        async with self._lock:
            return await self._commit(list(self._positions), retry_for_ms)

    async def leave(self, *, commit: bool) -> None:
        """Give everything up; never raises. The end of the session tells the others."""
        try:
            async with self._lock:
                if commit:
                    await self._commit(list(self._positions), self._retry_for_ms)
        except (KafkaError, ZooKeeperError) as error:
            log.warning("could not commit at the end consumer=%s: %s", self._consumer_id, error)
        finally:  # also when we are cancelled
            self._zookeeper.on_state.remove(self._session_changed)
            self._forget_ownership()

    @property
    def _retry_for_ms(self) -> int:
        config = self._config
        return config.offsets_commit_max_retries * config.offsets_channel_backoff_ms

    async def _attempt(self) -> None:
        if not self._ownership.is_registered:
            await self._ownership.register(self._registration)
        config = self._config
        view = await view_group(
            self._reads,
            config.group_id,
            exclude_internal=config.exclude_internal_topics,
            security=config.security,
            listener=config.broker_listener_name,
        )
        if self._consumer_id not in view.members:
            self._ownership.forget_registration()
            raise ZooKeeperError("our registration is gone")
        if not view.brokers:
            return  # nobody to read from; whoever comes is watched for
        self._fetchers.set_brokers([f"{host}:{port}" for host, port in view.brokers.values()])
        owners = STRATEGIES[self._config.partition_assignment_strategy](
            view.partitions, view.threads
        )
        ours = self._owners_here(view, owners)
        held = self._ownership.claimed
        lost = [
            topic_partition
            for topic_partition, thread in held.items()
            if ours.get(topic_partition) != thread or not self._is_read(topic_partition)
        ]
        if lost:
            await self._release(lost)
        gained = {
            topic_partition: thread
            for topic_partition, thread in ours.items()
            if topic_partition not in held
        }
        if gained:
            await self._take_over(gained, owners)
        self.rebalances += bool(lost or gained)

    def _owners_here(self, view: GroupView, owners: Owners) -> Owners:
        count = max(view.members[self._consumer_id].values(), default=0)
        threads = {f"{self._consumer_id}-{number}" for number in range(count)}
        return {
            topic_partition: thread
            for topic_partition, thread in owners.items()
            if thread in threads
        }

    async def _release(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Stop reading, commit while they are still ours, then let go: the heir reads it so."""
        self._stop_reading(topic_partitions)
        if self._config.auto_commit_enable:
            try:
                await self._commit(topic_partitions, self._retry_for_ms)
            except (KafkaError, ZooKeeperError) as error:
                log.warning("gave up partitions without a commit: %s", error)
        self._listener.before_releasing_partitions(topic_partitions)
        try:
            await self._ownership.release(topic_partitions)
        finally:
            for topic_partition in set(topic_partitions) - self._ownership.claimed.keys():
                self._positions.pop(topic_partition, None)
        log.info(
            "gave up partitions consumer=%s count=%d", self._consumer_id, len(topic_partitions)
        )

    async def _take_over(self, gained: Owners, owners: Owners) -> None:
        """Claim first: what the former owner commits before it lets go must not be missed."""
        try:
            await self._ownership.claim(gained)
        except ClaimRefused as refusal:
            await self._watch_owner(refusal.topic_partition)
            raise
        try:
            offsets = await self._store.fetch(gained)
            missing = [
                topic_partition for topic_partition in gained if topic_partition not in offsets
            ]
            offsets |= await self._fetchers.reset_offsets(missing)
        except Exception:
            await self._ownership.release(gained)
            raise
        if not gained.keys() <= self._ownership.claimed.keys():
            raise ZooKeeperError("the session ended before the partitions could be read")
        self._listener.before_starting_fetchers(self._consumer_id, owners)
        self._read(gained, offsets)
        log.info("took over partitions consumer=%s count=%d", self._consumer_id, len(gained))

    def _read(self, gained: Owners, offsets: Mapping[TopicPartition, int]) -> None:
        self._fetchers.add(
            {
                topic_partition: offsets[topic_partition]
                for topic_partition in gained
                if topic_partition in offsets
            }
        )
        for topic_partition in gained:
            position = StreamPosition(topic_partition, offsets.get(topic_partition))
            self._positions[topic_partition] = position
            self._stream(topic_partition).add_partitions(self._fetchers, [position])
            if topic_partition not in offsets:
                self._stream(topic_partition).fail(OffsetOutOfRange(*topic_partition, None))

    async def _commit(
        self, topic_partitions: Iterable[TopicPartition], retry_for_ms: int
    ) -> Failures:
        ours = await self._ownership.still_ours(topic_partitions)
        lost = [
            topic_partition
            for topic_partition in topic_partitions
            if topic_partition in self._positions and topic_partition not in ours
        ]
        if lost:
            log.warning("partitions are others' consumer=%s count=%d", self._consumer_id, len(lost))
            self._stop_reading(lost)
            self._changed.set()
        positions = [
            self._positions[topic_partition]
            for topic_partition in ours
            if topic_partition in self._positions
        ]
        offsets = {
            position.topic_partition: position.consumed
            for position in positions
            if position.consumed is not None
        }
        failures = await self._store.commit(offsets, retry_for_ms=retry_for_ms)
        return failures | dict.fromkeys(lost, ErrorCode.UNKNOWN_MEMBER_ID)

    async def _watch_owner(self, topic_partition: TopicPartition) -> None:
        """Be woken when a partition that was refused is let go."""
        group = self._config.group_id
        path = znodes.consumer_owner_path(group, topic_partition.topic, topic_partition.partition)
        if await self._reads.data(path) is None:
            self._changed.set()

    def _is_read(self, topic_partition: TopicPartition) -> bool:
        """False for what an attempt that failed halfway left: claimed, and fed to no stream."""
        position = self._positions.get(topic_partition)
        return position is not None and position.is_ours

    def _stream(self, topic_partition: TopicPartition) -> KafkaStream:
        return self._find_stream(topic_partition.topic, self._ownership.claimed[topic_partition])

    def _stop_reading(self, topic_partitions: Collection[TopicPartition]) -> None:
        for topic_partition in topic_partitions:
            self._stream(topic_partition).remove_partitions([topic_partition])
        self._fetchers.remove(topic_partitions)

    def _forget_ownership(self) -> None:
        self._stop_reading(list(self._positions))
        self._positions.clear()

    def _session_changed(self, state: SessionState) -> None:
        """A new session owns nothing: stop at once, since others may have gone on already."""
        if state is SessionState.LOST:
            log.warning("lost the session with zookeeper consumer=%s", self._consumer_id)
            self._forget_ownership()
            self._ownership.forget()
        self._changed.set()
