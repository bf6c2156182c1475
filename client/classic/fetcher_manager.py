"""Fetches for the streams of a classic consumer, and resets offsets that are out of range.

Source: docs/spec/coordinator.md §6.4 (step 9), §6.6 and §6.7 (reset).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from random import Random

from barnabas.client.cluster import Cluster
from barnabas.client.consumer.consumed_records import Chunk
from barnabas.client.consumer.fetch_config import FetchConfig
from barnabas.client.consumer.fetcher import Fetcher
from barnabas.client.consumer.list_offsets import EARLIEST, LATEST, offsets_for
from barnabas.client.errors import OffsetOutOfRange
from barnabas.client.topology import TopicPartition

from .classic_config import ClassicConfig
from .kafka_stream import StreamPosition

log = logging.getLogger(__name__)

_TIMES = {"earliest": EARLIEST, "latest": LATEST}


class ConsumerFetcherManager:
    """Reads from the brokers that ZooKeeper names; begins with the first partition."""

    def __init__(self, config: ClassicConfig, random: Random) -> None:
        self._config = config
        self._random = random
        self._cluster: Cluster | None = None
        self._fetcher: Fetcher | None = None

    def set_brokers(self, brokers: Sequence[str]) -> None:
        """Where brokers are now, as ``host:port``."""
        assert brokers, "nobody to ask"
        if self._cluster is not None:
            self._cluster.set_bootstrap(brokers)
            return
        config = self._config
        self._cluster = Cluster(
            brokers,
            config.security.client_config(
                client_id=config.client_id or config.group_id,
                request_timeout_ms=config.socket_timeout_ms,
                retry_backoff_ms=min(100, config.refresh_leader_backoff_ms),
                retry_backoff_ms_max=config.refresh_leader_backoff_ms,
            ),
            random=self._random,
        )
        self._fetcher = Fetcher(
            self._cluster,
            FetchConfig(
                max_wait_ms=config.fetch_wait_max_ms,
                min_bytes=config.fetch_min_bytes,
                partition_max_bytes=config.fetch_message_max_bytes,
                queued_chunks_max=config.queued_max_message_chunks,
                refresh_leader_backoff_ms=config.refresh_leader_backoff_ms,
                reset="none",  # a reset is for the stream to see, in its order
            ),
        )
        self._fetcher.start()

    async def reset_offsets(
        self, topic_partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Where to begin without an offset; nothing when ``auto.offset.reset`` is none.

        Raises KafkaError when the leaders cannot be asked.
        """
        topic_partitions = list(topic_partitions)
        if not topic_partitions or self._config.reset not in _TIMES:
            return {}
        assert self._cluster is not None, "no broker was met"
        time = _TIMES[self._config.reset]
        return await offsets_for(self._cluster, dict.fromkeys(topic_partitions, time))

    def add(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Fetch from there."""
        assert self._fetcher is not None, "no broker was met"
        self._fetcher.add(offsets)

    def remove(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Fetch no more; what is ready is dropped."""
        if self._fetcher is not None:
            self._fetcher.remove(topic_partitions)

    async def take(
        self, topic_partitions: Collection[TopicPartition], *, timeout_s: float | None
    ) -> Chunk | None:
        """The next chunk of these; None when time is up or :meth:`wake` was called."""
        assert self._fetcher is not None, "no broker was met"
        return await self._fetcher.take(topic_partitions, timeout_s=timeout_s)

    def wake(self) -> None:
        """Have every take that waits return."""
        if self._fetcher is not None:
            self._fetcher.wake()

    async def reset(self, position: StreamPosition, error: OffsetOutOfRange) -> None:
        """Go on where ``auto.offset.reset`` says; raises ``error`` when it says nothing."""
        found = await self.reset_offsets([position.topic_partition])
        if not found:
            raise error
        offset = found[position.topic_partition]
        if position.is_ours:
            log.warning(
                "reset position partition=%s-%d offset=%d: %s",
                *position.topic_partition,
                offset,
                error,
            )
            position.consumed = offset
            self.add({position.topic_partition: offset})

    async def close(self) -> None:
        """Stop, and close the connections."""
        try:
            if self._fetcher is not None:
                await self._fetcher.close()
        finally:
            if self._cluster is not None:
                await self._cluster.close()
