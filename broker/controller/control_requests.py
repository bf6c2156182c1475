"""Builds LeaderAndIsr, UpdateMetadata and StopReplica from the controller's context.

Source: docs/spec/cluster.md §2.4 and §2.15.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from barnabas.broker.metadata.metadata_cache import WHOLE
from barnabas.protocol.codec.compiler import encoding_in
from barnabas.protocol.codec.encoded import EncodedElement, EncodedElements
from barnabas.protocol.messages import leader_and_isr, stop_replica, update_metadata
from barnabas.protocol.zookeeper.broker_registration import CONSUMER_GROUPS_FEATURE

from .context import ControllerContext, Partition
from .leader_election import DELETED

LEADER_AND_ISR_VERSION: Final = 5
UPDATE_METADATA_VERSION: Final = 7
"""The first versions that carry topic ids: among nodes of ours every topic has one."""
WHOLE_METADATA_VERSION: Final = 8
"""The first that can say that it tells everything."""
PEER_LEADER_AND_ISR_VERSION: Final = 4
"""That of 2.7-IV1, for all nodes while a Kafka peer is among them: later answers name ids alone."""
PEER_UPDATE_METADATA_VERSION: Final = 6
"""That of 2.7-IV1, for Kafka peers; ours are told no ids then: ids for all or for none."""
STOP_REPLICA_VERSION: Final = 3

INCREMENTAL: Final = 1
DELETION_EPOCH: Final = -2
"""The leader epoch in StopReplica of a topic that is being deleted: overrides every other."""
NO_EPOCH: Final = -1
NO_TOPIC_ID: Final = bytes(16)


class SharedMetadata:
    """Topics and live brokers that many nodes are told of: made once, encoded once a version.

    Made for each node, a change of one partition cost a controller of a hundred nodes 10,000
    brokers as objects and as bytes.
    """

    def __init__(
        self,
        topic_states: Sequence[update_metadata.TopicState],
        live_brokers: Sequence[update_metadata.Broker],
        *,
        offers_consumer_groups: bool,
    ) -> None:
        self.offers_consumer_groups = offers_consumer_groups
        self._topic_states = topic_states
        self._live_brokers = live_brokers
        self._encoded: dict[int, tuple[Sequence[Any], Sequence[Any]]] = {}

    def encoded(
        self, version: int
    ) -> tuple[Sequence[update_metadata.TopicState], Sequence[update_metadata.Broker]]:
        """Both for a request of this version."""
        if version not in self._encoded:
            self._encoded[version] = (
                _encoded(update_metadata.TopicState, self._topic_states, version),
                _encoded(update_metadata.Broker, self._live_brokers, version),
            )
        return self._encoded[version]


def _encoded(element: type, found: Sequence[Any], version: int) -> EncodedElements[Any]:
    how = encoding_in(update_metadata.UpdateMetadataRequest, element, version)
    elements: EncodedElements[Any] = EncodedElements(
        how, [EncodedElement(how.write(one)) for one in found]
    )
    elements.join()
    return elements


@dataclass(frozen=True, slots=True)
class ControlRequestBuilder:
    """Makes the requests of one controller term."""

    context: ControllerContext
    controller_id: int
    controller_epoch: int
    internal_listener: str

    def leaders_for(
        self, node: int, partitions: Mapping[Partition, bool]
    ) -> tuple[leader_and_isr.LeaderAndIsrRequest, int]:
        """Leaders of the partitions for one of their replicas; the values say which are new."""
        leaders = {self.context.leaders[partition].leader for partition in partitions}
        ids = self._topic_ids()
        request = leader_and_isr.LeaderAndIsrRequest(
            controller_id=self.controller_id,
            controller_epoch=self.controller_epoch,
            broker_epoch=self.context.nodes[node].epoch,
            type=INCREMENTAL,
            topic_states=[
                leader_and_isr.TopicState(
                    topic_name=topic,
                    topic_id=ids.get(topic, NO_TOPIC_ID),
                    partition_states=[
                        self._leader_state(partition, is_new=partitions[partition])
                        for partition in group
                    ],
                )
                for topic, group in _by_topic(partitions).items()
            ],
            live_leaders=self._live_leaders(leaders),
        )
        old = PEER_LEADER_AND_ISR_VERSION
        return request, old if self._has_kafka_peer() else LEADER_AND_ISR_VERSION

    def shared_metadata(self, partitions: Iterable[Partition]) -> SharedMetadata:
        """The partitions as UpdateMetadata tells them, and all registered nodes, for every node."""
        ids = self._topic_ids()
        states = [
            update_metadata.TopicState(
                topic_name=topic,
                topic_id=ids.get(topic, NO_TOPIC_ID),
                partition_states=[
                    self._metadata_state(partition)
                    for partition in group
                    if partition in self.context.leaders
                ],
            )
            for topic, group in _by_topic(partitions).items()
        ]
        nodes = sorted(self.context.nodes)
        return SharedMetadata(
            states,
            [self._live_broker(node) for node in nodes],
            offers_consumer_groups=self._offers_consumer_groups(),
        )

    def metadata_for(
        self, node: int, shared: SharedMetadata, *, is_whole: bool = False
    ) -> tuple[update_metadata.UpdateMetadataRequest, int]:
        """Changed partitions and all registered nodes, for one node.

        ``is_whole``: there are no other topics; a node that missed their deletion forgets them.
        """
        version = WHOLE_METADATA_VERSION if is_whole else UPDATE_METADATA_VERSION
        if self.context.nodes[node].is_kafka_peer:
            version = PEER_UPDATE_METADATA_VERSION
        states, brokers = shared.encoded(version)
        request = update_metadata.UpdateMetadataRequest(
            type=WHOLE if is_whole else INCREMENTAL,
            controller_id=self.controller_id,
            controller_epoch=self.controller_epoch,
            broker_epoch=self.context.nodes[node].epoch,
            topic_states=states,
            offers_consumer_groups=shared.offers_consumer_groups,
            live_brokers=brokers,
        )
        return request, version

    def stops_for(
        self, node: int, partitions: Mapping[Partition, bool]
    ) -> tuple[stop_replica.StopReplicaRequest, int]:
        """Replicas for one node to stop; the values say whose logs to delete."""
        request = stop_replica.StopReplicaRequest(
            controller_id=self.controller_id,
            controller_epoch=self.controller_epoch,
            broker_epoch=self.context.nodes[node].epoch,
            topic_states=[
                stop_replica.TopicState(
                    topic_name=topic,
                    partition_states=[
                        stop_replica.PartitionState(
                            partition_index=partition[1],
                            leader_epoch=self._stop_epoch(partition),
                            delete_partition=partitions[partition],
                        )
                        for partition in group
                    ],
                )
                for topic, group in _by_topic(partitions).items()
            ],
        )
        return request, STOP_REPLICA_VERSION

    def _leader_state(self, partition: Partition, *, is_new: bool) -> leader_and_isr.PartitionState:
        state = self.context.leaders[partition]
        reassignment = self.context.reassignments.get(partition)
        return leader_and_isr.PartitionState(
            partition_index=partition[1],
            controller_epoch=state.controller_epoch,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=list(state.isr),
            partition_epoch=state.zk_version,
            replicas=self.context.assigned(partition),
            adding_replicas=reassignment.adding if reassignment else [],
            removing_replicas=reassignment.removing if reassignment else [],
            is_new=is_new,
        )

    def _metadata_state(self, partition: Partition) -> update_metadata.PartitionState:
        state = self.context.leaders[partition]
        is_deleted = partition[0] in self.context.deleting
        return update_metadata.PartitionState(
            partition_index=partition[1],
            controller_epoch=state.controller_epoch,
            leader=DELETED if is_deleted else state.leader,
            leader_epoch=state.leader_epoch,
            isr=list(state.isr),
            zk_version=state.zk_version,
            replicas=self.context.assigned(partition),
            offline_replicas=self.context.offline_replicas(partition),
        )

    def _stop_epoch(self, partition: Partition) -> int:
        if partition[0] in self.context.deleting:
            return DELETION_EPOCH
        state = self.context.leaders.get(partition)
        return NO_EPOCH if state is None else state.leader_epoch

    def _live_leaders(self, leaders: Collection[int]) -> list[leader_and_isr.LiveLeader]:
        found = []
        for node in sorted(self.context.nodes.keys() & leaders):
            address = self.context.address(node, self.internal_listener)
            if address is not None:
                host, port = address
                found.append(leader_and_isr.LiveLeader(broker_id=node, host_name=host, port=port))
        return found

    def _live_broker(self, node: int) -> update_metadata.Broker:
        registration = self.context.nodes[node].registration
        return update_metadata.Broker(
            id=node,
            endpoints=[
                update_metadata.Endpoint(
                    port=port,
                    host=host,
                    listener=listener,
                    security_protocol=_PROTOCOL_IDS[registration.protocol(listener)],
                )
                for listener, (host, port) in registration.endpoints.items()
            ],
            rack=registration.rack,
        )

    def _topic_ids(self) -> Mapping[str, bytes]:
        """Those that may be told; none while a Kafka peer is there, which is asked once for all."""
        return {} if self._has_kafka_peer() else self.context.topic_ids

    def _offers_consumer_groups(self) -> bool:
        """Whether every node says that it knows them (docs/spec/consumer-groups.md §1, C3)."""
        return all(
            not node.is_kafka_peer and CONSUMER_GROUPS_FEATURE in node.registration.features
            for node in self.context.nodes.values()
        )

    def _has_kafka_peer(self) -> bool:
        return any(node.is_kafka_peer for node in self.context.nodes.values())


_PROTOCOL_IDS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


def _by_topic(partitions: Iterable[Partition]) -> dict[str, list[Partition]]:
    topics: dict[str, list[Partition]] = {}
    for partition in sorted(partitions):
        topics.setdefault(partition[0], []).append(partition)
    return topics
