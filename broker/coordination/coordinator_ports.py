"""What the coordinators ask of their node: topics, a clock, offsets of classic consumers.

Source: docs/spec/coordinator.md §1.6; docs/spec/cluster.md §1.7 and §4.1; docs/spec/transactions.md
§1.1 and §2.8.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence

from barnabas.broker.metadata.metadata_cache import MetadataCache
from barnabas.client.zookeeper.interface import NodeExists, NoNode, ZooKeeper, ZooKeeperError
from barnabas.coordinator.ports import OFFSETS_TOPIC, TRANSACTION_TOPIC
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.names import path_segment, topic_problem
from barnabas.protocol.zookeeper import znodes

log = logging.getLogger(__name__)


def wall_clock_ms() -> int:
    """Milliseconds since 1970, for what is written into records and znodes."""
    return time.time_ns() // 1_000_000


class CoordinatorTopics:
    """The ports ``Topics``, ``TransactionTopics`` and ``TransactionLookup`` over the metadata.

    Of one state topic: questions after a partition are after that topic's.
    """

    def __init__(
        self,
        node_id: int,
        cache: MetadataCache,
        create: Callable[[str], object],
        *,
        topic: str,
        counts: Mapping[str, Callable[[], int | None]],
        may_answer: Callable[[], bool] = lambda: True,
        ordered: Callable[[int], tuple[int, int] | None] = lambda partition: None,
    ) -> None:
        """``counts`` counts the partitions of state topics; None until one is found.

        ``may_answer`` says whether this node's lease holds. ``ordered`` gives leader (-1 for none)
        and leader epoch of a partition of ``topic`` as the last LeaderAndIsr to this node says,
        None where it has no replica.
        """
        self._ordered = ordered
        self._may_answer = may_answer
        self._topic = topic
        self._counts = counts
        self._node_id = node_id
        self._cache = cache
        self._create = create

    def partition_count(self, topic: str) -> int | None:
        """How many partitions a topic has; None when no such topic is known.

        Of a state topic a node may have heard less than there is: its znode counts.
        """
        if topic in self._counts and topic in self._cache.snapshot.topics:
            return self._counts[topic]()
        partitions = self._cache.snapshot.topics.get(topic)
        return None if partitions is None else len(partitions)

    def missing_partition_error(self) -> ErrorCode:
        """COORDINATOR_LOAD_IN_PROGRESS until a controller has told of the topics."""
        if self._cache.is_whole:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def coordinator_endpoint(self, partition: int, listener: str) -> tuple[int, str, int] | None:
        """Id, host and port of the leader of a partition on ``listener``.

        A node without its lease names anybody but itself: others may lead by now. Of what it was
        ordered and what it was told the later counts: in a planned move the order comes first, and
        the old coordinator would name itself after it has resigned.
        """
        snapshot = self._cache.snapshot
        leader = snapshot.leader(self._topic, partition)
        ordered, cached = self._ordered(partition), snapshot.partition(self._topic, partition)
        if ordered is not None and cached is not None and ordered[1] >= cached.leader_epoch:
            leader = ordered[0]
        if leader == self._node_id and not self._may_answer():
            return None
        endpoint = None if leader is None else snapshot.endpoint(leader, listener)
        return None if leader is None or endpoint is None else (leader, *endpoint)

    def may_lead(self, partition: int) -> bool:
        """Whether nobody else is known to lead a partition that has a replica here.

        Of a partition below the count of the znode nothing may have been heard yet: the first
        request of a new topic comes as soon as one other node knows its leader.
        """
        found = self._cache.snapshot.partition(self._topic, partition)
        if found is None:
            return True
        others = self._cache.snapshot.brokers.keys() - {self._node_id}
        return self._node_id in found.replicas and found.leader not in others

    def lacks_offsets_topic(self) -> bool:
        """Whether a controller told everything, and of no ``__consumer_offsets``."""
        return self._cache.is_whole and OFFSETS_TOPIC not in self._cache.snapshot.topics

    def lacks_transaction_topic(self) -> bool:
        """Whether a controller told everything, and of no ``__transaction_state``."""
        return self._cache.is_whole and TRANSACTION_TOPIC not in self._cache.snapshot.topics

    def create_offsets_topic(self) -> None:
        """Have ``__consumer_offsets`` created; whoever asks again does no harm."""
        self._create(OFFSETS_TOPIC)

    def create_transaction_topic(self) -> None:
        """Have ``__transaction_state`` created; whoever asks again does no harm."""
        self._create(TRANSACTION_TOPIC)


class ZooKeeperOffsetsPort:
    """The port ``ZooKeeperOffsets``: decimal text, the last writer wins."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper

    async def commit(
        self, group: str, offsets: Mapping[tuple[str, int], int]
    ) -> Mapping[tuple[str, int], ErrorCode]:
        """Write each offset, creating parents; one code for each partition."""
        return {
            partition: await self._commit(group, partition, offset)
            for partition, offset in offsets.items()
        }

    async def fetch(
        self, group: str, partitions: Sequence[tuple[str, int]]
    ) -> Mapping[tuple[str, int], int | ErrorCode]:
        """The stored number of each partition, or why there is none."""
        return {partition: await self._fetch(group, partition) for partition in partitions}

    async def _commit(self, group: str, partition: tuple[str, int], offset: int) -> ErrorCode:
        code = _judge(group, partition)
        if code:
            return code
        path = znodes.consumer_offset_path(group, *partition)
        data = str(offset).encode()
        try:
            try:
                await self._zookeeper.set(path, data)
            except NoNode:
                await self._create(path, data)
        except ZooKeeperError as error:
            log.warning("could not write an offset path=%s: %r", path, error)
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NONE

    async def _create(self, path: str, data: bytes) -> None:
        try:
            await self._zookeeper.create(path, data, parents=True)
        except NodeExists:
            await self._zookeeper.set(path, data)

    async def _fetch(self, group: str, partition: tuple[str, int]) -> int | ErrorCode:
        code = _judge(group, partition)
        if code:
            return code
        try:
            data, _stat = await self._zookeeper.get(znodes.consumer_offset_path(group, *partition))
            return int(data)
        except (NoNode, ValueError):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        except ZooKeeperError as error:
            log.warning("could not read an offset group=%s: %r", group, error)
            return ErrorCode.COORDINATOR_NOT_AVAILABLE


def _judge(group: str, partition: tuple[str, int]) -> ErrorCode:
    """Both become part of a path: nothing that leaves its place may get there."""
    topic, index = partition
    try:
        path_segment(group, ErrorCode.INVALID_GROUP_ID)
    except Refused as refusal:
        return refusal.code
    if topic_problem(topic) is not None or index < 0:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE
