"""Cluster metadata as brokers told it last: brokers, controller, leaders, leader epochs.

Source: docs/spec/protocol.md §2 (Metadata); KIP-320 (an older leader epoch never replaces a newer).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.metadata import MetadataResponse, Partition, TopicResult

from .errors import known_code

_NO_ID: Final = bytes(16)
"""What a broker tells that knows no ids, or does not tell them now."""


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


class Node(NamedTuple):
    """A broker and where its clients find it."""

    id: int
    host: str
    port: int


class Topology:
    """The cluster as the last Metadata answers told it; hints, until a broker refuses."""

    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}
        self.controller: int | None = None
        self.leaders: dict[TopicPartition, int] = {}
        self.leaders_version = 0
        """Another whenever ``leaders`` changed: what was computed of them is out of date."""
        self.counts: dict[str, int] = {}
        """How many partitions a topic has, leaderless ones included."""
        self.topic_names: dict[bytes, str] = {}
        """The name of each topic by its id, where brokers tell ids."""
        self.topic_errors: dict[str, ErrorCode] = {}
        """Topics that were asked for and answered with an error."""
        self._epochs: dict[TopicPartition, int] = {}
        self._ids: dict[str, bytes] = {}

    def learn(self, answer: MetadataResponse) -> None:
        """Take over an answer, except for leaders older than those we know."""
        self.learn_nodes(answer)
        self.learn_topics(answer.topics)

    def learn_nodes(self, answer: MetadataResponse) -> None:
        """Take over the brokers and the controller alone."""
        self.nodes = {
            broker.node_id: Node(broker.node_id, broker.host, broker.port)
            for broker in answer.brokers
        }
        self.controller = answer.controller_id if answer.controller_id >= 0 else None

    def learn_topics(self, topics: Iterable[TopicResult]) -> None:
        """Take over some topics of an answer; see :meth:`learn`."""
        for topic in topics:
            if topic.name is None:
                continue
            if topic.error_code:
                self.topic_errors[topic.name] = known_code(topic.error_code)
                self.counts.pop(topic.name, None)
            else:
                self.topic_errors.pop(topic.name, None)
                self.counts[topic.name] = len(topic.partitions)
                self._learn_id(topic.name, topic.topic_id)
                self._learn_leaders(topic.name, topic.partitions)

    def leader_epoch(self, topic_partition: TopicPartition) -> int:
        """The epoch of the leader as last told; -1 when no broker told one."""
        return self._epochs.get(topic_partition, -1)

    def available_partitions(self, topic: str) -> list[int]:
        """The partitions of ``topic`` that have a leader, in order; looks at each of them."""
        count = self.counts.get(topic, 0)
        return [number for number in range(count) if (topic, number) in self.leaders]

    def forget_leaders(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Drop who leads these: whatever is told next is believed, a topic made anew included."""
        for topic_partition in topic_partitions:
            if self.leaders.pop(topic_partition, None) is not None:
                self.leaders_version += 1

    def _learn_id(self, topic: str, topic_id: bytes) -> None:
        known = self._ids.get(topic)
        if topic_id in (_NO_ID, known):
            return
        # A topic that was deleted and made anew: whoever still holds the old id must not be led
        # to the new topic's records.
        if known is not None:
            del self.topic_names[known]
        self._ids[topic] = topic_id
        self.topic_names[topic_id] = topic

    def _learn_leaders(self, topic: str, partitions: Iterable[Partition]) -> None:
        leaders, epochs = self.leaders, self._epochs
        for partition in partitions:
            if partition.leader_id < 0:
                continue
            topic_partition = TopicPartition(topic, partition.partition_index)
            # A broker that has not heard of the last election names the leader before it: to
            # believe it would send us back and forth between the two (KIP-320).
            known = epochs.get(topic_partition, -1) if topic_partition in leaders else -1
            if not 0 <= partition.leader_epoch < known:
                # Not by what is told anew every few minutes and is as before.
                if leaders.get(topic_partition) != partition.leader_id:
                    leaders[topic_partition] = partition.leader_id
                    self.leaders_version += 1
                epochs[topic_partition] = partition.leader_epoch
