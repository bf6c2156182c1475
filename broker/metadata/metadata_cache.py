"""What this node was told about the cluster: nodes, topics and leaders, as immutable snapshots.

Source: docs/spec/cluster.md §2.14. Fed by the controller's UpdateMetadata alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from barnabas.protocol.messages import update_metadata

NO_TOPIC_ID: Final = bytes(16)
_DELETED: Final = -2
_NO_LEADER: Final = -1
WHOLE: Final = 2
"""The type of an UpdateMetadata that tells everything: what it does not name is gone."""


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A live node."""

    id: int
    endpoints: Mapping[str, tuple[str, int]]
    """Host and port by upper-case listener name."""
    rack: str | None


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """A partition as the controller last told of it."""

    leader: int
    """-1 when there is none."""
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    offline: tuple[int, ...]
    """Replicas whose node is gone or whose disk failed."""
    controller_epoch: int
    zk_version: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The cluster at one moment; never changed, so it may be kept and iterated at leisure."""

    controller_id: int | None = None
    brokers: Mapping[int, BrokerInfo] = field(default_factory=dict)
    topics: Mapping[str, Mapping[int, PartitionInfo]] = field(default_factory=dict)
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)
    """Ids of the topics that have one."""
    names: Mapping[bytes, str] = field(default_factory=dict)
    """The other way round."""

    def partition(self, topic: str, index: int) -> PartitionInfo | None:
        """One partition; None when it is unknown here."""
        return self.topics.get(topic, {}).get(index)

    def has_nodes(self, listener: str) -> bool:
        """Whether any live node can be named to a peer of that listener."""
        return any(listener in broker.endpoints for broker in self.brokers.values())

    def endpoint(self, node: int, listener: str) -> tuple[str, int] | None:
        """Where a node is reached on a listener; None when it is dead or lacks the listener."""
        broker = self.brokers.get(node)
        return None if broker is None else broker.endpoints.get(listener)

    def leader(self, topic: str, index: int) -> int | None:
        """The leader if there is one and its node is live."""
        found = self.partition(topic, index)
        return None if found is None or found.leader not in self.brokers else found.leader


class MetadataCache:
    """Holds the latest snapshot; readers take :attr:`snapshot` once and work on that."""

    def __init__(self) -> None:
        self.snapshot = Snapshot()
        self.controller_epoch = 0
        """The largest epoch of a controller that spoke to this node, by any request."""
        self.version = 0
        """Grows with each snapshot."""
        self.is_whole = False
        """Whether a controller has told everything, not only which nodes there are."""
        self.are_consumer_groups_offered = False
        """Whether every node knows groups of the new protocol (KIP-848), as a controller says."""
        self.on_change: list[Callable[[], None]] = []
        """Called after each new snapshot."""
        self.on_whole: list[Callable[[], None]] = []
        """Called after each snapshot that a controller called the whole."""

    def update(self, request: update_metadata.UpdateMetadataRequest) -> None:
        """Take in what changed: live nodes are replaced, partitions merged, -2 removes.

        A topic that has another id by now was deleted and made anew behind this node's back: those
        who listen see it gone before they see the new one.
        """
        self.is_whole = self.is_whole or request.type == WHOLE or bool(request.topic_states)
        self.are_consumer_groups_offered = request.offers_consumer_groups
        topics = dict(self.snapshot.topics)
        topic_ids = dict(self.snapshot.topic_ids)
        outdated = [state.topic_name for state in request.topic_states if self._is_another(state)]
        for topic in outdated:
            del topics[topic], topic_ids[topic]
        if outdated:
            self._publish(request, dict(topics), dict(topic_ids))
        if request.type == WHOLE:
            topics, topic_ids = {}, {}
        for state in request.topic_states:
            partitions = _merged(topics.get(state.topic_name, {}), state.partition_states)
            if partitions:
                topics[state.topic_name] = partitions
                _note_id(topic_ids, state.topic_name, state.topic_id)
            else:
                topics.pop(state.topic_name, None)
                topic_ids.pop(state.topic_name, None)
        self._publish(request, topics, topic_ids)
        if request.type == WHOLE:
            for told in list(self.on_whole):
                told()

    def _is_another(self, state: update_metadata.TopicState) -> bool:
        known = self.snapshot.topic_ids.get(state.topic_name, NO_TOPIC_ID)
        return NO_TOPIC_ID not in (known, state.topic_id) and known != state.topic_id

    def _publish(
        self,
        request: update_metadata.UpdateMetadataRequest,
        topics: Mapping[str, Mapping[int, PartitionInfo]],
        topic_ids: Mapping[str, bytes],
    ) -> None:
        self.snapshot = Snapshot(
            controller_id=request.controller_id if request.controller_id >= 0 else None,
            brokers={broker.id: _broker(broker) for broker in request.live_brokers},
            topics=topics,
            topic_ids=topic_ids,
            names={topic_id: name for name, topic_id in topic_ids.items()},
        )
        self.controller_epoch = max(self.controller_epoch, request.controller_epoch)
        self.version += 1
        for told in list(self.on_change):
            told()

    async def wait_until_informed(self, timeout_s: float) -> bool:
        """True once everything is told; False when no controller spoke for so long.

        One of Kafka's does not say that there is no topic: when it named nodes and nothing else
        for so long, that is all there is.
        """
        if await self.wait_until(lambda _: self.is_whole, timeout_s):
            return True
        self.is_whole = self.snapshot.controller_id is not None
        return self.is_whole

    async def wait_until(self, holds: Callable[[Snapshot], bool], timeout_s: float) -> bool:
        """True once ``holds`` is true of the snapshot; False when that took too long."""
        changed = asyncio.Event()
        self.on_change.append(changed.set)
        try:
            async with asyncio.timeout(timeout_s):
                while not holds(self.snapshot):
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            return holds(self.snapshot)
        finally:
            self.on_change.remove(changed.set)
        return True


def _merged(
    known: Mapping[int, PartitionInfo], states: Iterable[update_metadata.PartitionState]
) -> dict[int, PartitionInfo]:
    partitions = dict(known)
    for state in states:
        if state.leader == _DELETED:
            partitions.pop(state.partition_index, None)
        else:
            partitions[state.partition_index] = _partition(state)
    return partitions


def _partition(state: update_metadata.PartitionState) -> PartitionInfo:
    return PartitionInfo(
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=tuple(state.isr),
        replicas=tuple(state.replicas),
        offline=tuple(state.offline_replicas),
        controller_epoch=state.controller_epoch,
        zk_version=state.zk_version,
    )


def _broker(broker: update_metadata.Broker) -> BrokerInfo:
    endpoints = {item.listener: (item.host, item.port) for item in broker.endpoints}
    return BrokerInfo(broker.id, endpoints, broker.rack)


def _note_id(topic_ids: dict[str, bytes], topic: str, topic_id: bytes) -> None:
    """A controller that tells no ids (a Kafka peer among the nodes) takes them from all."""
    if topic_id == NO_TOPIC_ID:
        topic_ids.pop(topic, None)
    else:
        topic_ids[topic] = topic_id
