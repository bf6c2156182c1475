"""ConsumerConnector: Kafka 0.8's high-level consumer, which balances through ZooKeeper.

Source: docs/spec/coordinator.md §6; the documentation of Kafka 0.8's consumer, "high-level".
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from random import Random
from types import TracebackType
from typing import Self

from barnabas.client.background import BackgroundTasks
from barnabas.client.errors import KafkaError
from barnabas.client.topology import TopicPartition
from barnabas.client.zookeeper.interface import ZooKeeper, ZooKeeperError
from barnabas.client.zookeeper.znode_watches import WatchedReads
from barnabas.protocol.names import topic_problem
from barnabas.protocol.zookeeper.znodes import ConsumerRegistration

from .classic_config import ClassicConfig
from .classic_member import ClassicListener, ClassicMember, ConsumerRebalanceFailed, StreamFinder
from .fetcher_manager import ConsumerFetcherManager
from .group_view import STATIC, live_brokers
from .kafka_stream import KafkaStream
from .offset_manager import OffsetManager
from .offset_stores import DualCommitStore, KafkaOffsetStore, OffsetStore, ZooKeeperOffsetStore
from .topic_filter import TopicFilter

log = logging.getLogger(__name__)


class ConsumerConnector:
    """One consumer of a classic group. Use it in ``async with``, or create it and shut it down.

    ``config`` may be a mapping of Kafka's names. Streams are created once, all in one call:
    partitions then change hands once.
    """

    def __init__(
        self,
        config: ClassicConfig | Mapping[str, object],
        *,
        listener: ClassicListener | None = None,
        zookeeper: ZooKeeper | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        random: Random | None = None,
    ) -> None:
        config = config if isinstance(config, ClassicConfig) else ClassicConfig.of(config)
        self.config = config
        self.consumer_id = f"{config.group_id}_{config.consumer_id or _generated_id(now_ms())}"
        """Our name in the group; its threads are ``<consumer_id>-0`` and so on."""
        self._listener = listener or ClassicListener()
        self._session = zookeeper
        self._now_ms = now_ms
        self._streams: list[KafkaStream] = []
        self._member: ClassicMember | None = None
        self._store: OffsetStore | None = None
        self._stores: dict[str, ZooKeeperOffsetStore | KafkaOffsetStore] = {}
        self._random = random or Random()  # noqa: S311 - spreads retries, keeps no secret
        self._fetchers = ConsumerFetcherManager(config, self._random)
        self._tasks = BackgroundTasks(self._fail)
        self._is_shut_down = False

    @classmethod
    async def create(
        cls,
        config: ClassicConfig | Mapping[str, object],
        *,
        listener: ClassicListener | None = None,
    ) -> ConsumerConnector:
        """Connect to ZooKeeper; raises ConnectionLost when it does not answer."""
        connector = cls(config, listener=listener)
        await connector.start()
        return connector

    async def start(self) -> None:
        """Connect to ZooKeeper; brokers are met when there is something to read."""
        if self._session is None:
            config = self.config
            self._session = await config.security.zookeeper.connect(
                config.zookeeper_connect,
                session_timeout_ms=config.zookeeper_session_timeout_ms,
                connection_timeout_ms=config.zookeeper_connection_timeout_ms
                or config.zookeeper_session_timeout_ms,
            )
        self._store = self._open_store(self._session)

    @property
    def owned(self) -> Mapping[TopicPartition, str]:
        """The partitions that are ours, and the thread that has each."""
        return {} if self._member is None else self._member.owned

    @property
    def problem(self) -> str | None:
        """Why we own less than we should; None while all is well. Tried again all the time."""
        return None if self._member is None else self._member.problem

    @property
    def rebalances(self) -> int:
        """How often partitions were given up or taken over."""
        return 0 if self._member is None else self._member.rebalances

    @property
    def writes(self) -> Mapping[str, int]:
        """How many offsets each store took: ``zookeeper`` and ``kafka``, those that are used."""
        return {name: store.writes for name, store in self._stores.items()}

    async def create_message_streams(
        self, topic_counts: Mapping[str, int]
    ) -> dict[str, list[KafkaStream]]:
        """So many streams of each topic; joins the group and returns when partitions are ours.

        Raises ValueError for names and counts that cannot be, ConsumerRebalanceFailed when other
        members did not let go in time, KafkaError and ZooKeeperError.
        """
        for topic, count in topic_counts.items():
            problem = topic_problem(topic)
            if problem is not None or count < 1:
                raise ValueError(f"{topic}: {problem or 'wants at least one stream'}")
        if not topic_counts:
            raise ValueError("no topic was named")
        streams = {
            topic: [self._stream(number) for number in range(count)]
            for topic, count in topic_counts.items()
        }
        found = {
            (topic, stream.thread_id): stream for topic in streams for stream in streams[topic]
        }
        await self._join(
            STATIC,
            topic_counts,
            [stream for of_topic in streams.values() for stream in of_topic],
            lambda topic, thread_id: found[topic, thread_id],
        )
        return streams

    async def create_message_streams_by_filter(
        self, topic_filter: TopicFilter, count: int = 1
    ) -> list[KafkaStream]:
        """Streams of all topics that pass, those included that are created later."""
        if count < 1:
            raise ValueError("wants at least one stream")
        streams = [self._stream(number) for number in range(count)]
        found = {stream.thread_id: stream for stream in streams}
        await self._join(
            topic_filter.kind,
            {topic_filter.regex: count},
            streams,
            lambda topic, thread_id: found[thread_id],
        )
        return streams

    async def commit_offsets(self, *streams: KafkaStream) -> None:
        """Commit all messages consumed so far; the one in hand of ``streams`` counts as consumed.

        ``streams`` are by default all of them: name those you speak for when others work on theirs
        at the same time. Raises KafkaError or ZooKeeperError when an offset was not stored.
        """
        if self._member is None:
            return
        for stream in streams or self._streams:
            stream.mark_consumed()
        config = self.config
        failures = await self._member.commit(
            retry_for_ms=config.offsets_commit_max_retries * config.offsets_channel_backoff_ms
        )
        for (topic, partition), code in failures.items():
            raise KafkaError(code, f"offset of {topic}-{partition} was not stored")

    async def shutdown(self) -> None:
        """Commit if that is automatic, end every stream, leave the group. Never raises.

        When it is cancelled, the rest is closed all the same: a session that lived on would keep
        our partitions from the other members.
        """
        if self._is_shut_down:
            return
        self._is_shut_down = True
        async with AsyncExitStack() as closing:  # the last one first
            if self._session is not None:
                closing.push_async_callback(self._session.close)
            if self._store is not None:
                closing.push_async_callback(self._store.close)
            closing.push_async_callback(self._fetchers.close)
            if self._member is not None:
                is_automatic = self.config.auto_commit_enable
                closing.push_async_callback(self._member.leave, commit=is_automatic)
            for stream in self._streams:
                closing.callback(stream.end)
            await self._tasks.close()

    async def __aenter__(self) -> Self:
        """Connect."""
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Shut down."""
        await self.shutdown()

    def _open_store(self, session: ZooKeeper) -> OffsetStore:
        config = self.config
        names = [config.offsets_storage]
        if config.is_dual:
            names += {"zookeeper", "kafka"} - {config.offsets_storage}
        for name in names:
            if name == "zookeeper":
                self._stores[name] = ZooKeeperOffsetStore(session, config.group_id)
            else:
                self._stores[name] = KafkaOffsetStore(self._offset_manager(session))
        first, *others = self._stores.values()
        return DualCommitStore(first, others[0]) if others else first

    def _offset_manager(self, session: ZooKeeper) -> OffsetManager:
        reads = WatchedReads(session, lambda: None)
        config = self.config

        async def brokers() -> list[str]:
            found = await live_brokers(reads, config.security, config.broker_listener_name)
            return [f"{host}:{port}" for host, port in found.values()]

        return OffsetManager(
            config.group_id,
            brokers,
            config.security.client_config(
                client_id=config.client_id or config.group_id,
                connect_timeout_ms=config.offsets_channel_socket_timeout_ms,
                request_timeout_ms=config.offsets_channel_socket_timeout_ms,
                retry_backoff_ms=min(100, config.offsets_channel_backoff_ms),
                retry_backoff_ms_max=config.offsets_channel_backoff_ms,
            ),
            self._random,
        )

    def _stream(self, number: int) -> KafkaStream:
        timeout_ms = self.config.consumer_timeout_ms
        return KafkaStream(
            f"{self.consumer_id}-{number}",
            None if timeout_ms < 0 else timeout_ms / 1000,
            self._fetchers.reset,
            self.config.refresh_leader_backoff_ms / 1000,
        )

    async def _join(
        self,
        pattern: str,
        subscription: Mapping[str, int],
        streams: list[KafkaStream],
        find_stream: StreamFinder,
    ) -> None:
        if self._member is not None:
            raise RuntimeError("streams are created once for each connector")
        if self._session is None or self._store is None or self._is_shut_down:
            raise RuntimeError("the connector is not running")
        registration = ConsumerRegistration(
            subscription=subscription, pattern=pattern, timestamp=self._now_ms()
        )
        self._streams = streams
        self._member = ClassicMember(
            self._session,
            self.config,
            self.consumer_id,
            registration,
            find_stream,
            self._store,
            self._fetchers,
            self._listener,
        )
        await self._member.rebalance()
        self._tasks.spawn(self._balance(self._member), "classic rebalance")
        if self.config.auto_commit_enable:
            self._tasks.spawn(self._commit_by_time(self._member), "classic auto commit")

    async def _balance(self, member: ClassicMember) -> None:
        """Rebalance whenever something changed; after a failure, also when nothing did."""
        config = self.config
        slow_s = max(config.backoff_s * config.rebalance_max_retries, 1.0)
        while True:
            await member.await_change(None if member.problem is None else slow_s)
            try:
                await member.rebalance()
            except ConsumerRebalanceFailed as error:
                log.error("owns less than it should consumer=%s: %s", self.consumer_id, error)

    async def _commit_by_time(self, member: ClassicMember) -> None:
        while True:
            await asyncio.sleep(self.config.auto_commit_interval_ms / 1000)
            try:
                failures = await member.commit()
            except (KafkaError, ZooKeeperError) as error:
                log.warning("could not commit consumer=%s: %s", self.consumer_id, error)
                continue
            for (topic, partition), code in failures.items():
                log.warning("could not commit %s-%d: %s", topic, partition, code.name)

    def _fail(self, error: BaseException) -> None:
        """A bug of ours ended a task: whoever iterates is told, rather than left waiting."""
        for stream in self._streams:
            failure = RuntimeError("the consumer's background work failed")
            failure.__cause__ = error
            stream.fail(failure)


def _generated_id(now_ms: int) -> str:
    return f"{socket.gethostname()}-{now_ms}-{uuid.uuid4().hex[:8]}"
