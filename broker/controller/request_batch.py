"""The control requests that one event causes, gathered and sent in the order that is safe.

Source: docs/spec/cluster.md §2.4. LeaderAndIsr, then UpdateMetadata, then StopReplica.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from barnabas.protocol.errors import ErrorCode

from .channel_manager import ControllerChannelManager, QueuedRequest
from .context import ControllerContext, Partition, Replica
from .control_requests import ControlRequestBuilder
from .leadership_handover import LeadershipHandovers

ROLE_KNOWN: Final = (ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH)
"""Answers of a replica that knows its role: it took it over, or had it, or a newer one, before."""


@dataclass(frozen=True, slots=True)
class ResponseCallbacks:
    """Who hears what the nodes answered; called on the loop, outside the event queue."""

    replicas_failed: Callable[[list[Replica]], None]
    """Replicas whose node answered KAFKA_STORAGE_ERROR to LeaderAndIsr."""
    replicas_deleted: Callable[[list[Replica], list[Replica]], None]
    """After a StopReplica with deletion: the replicas that are gone, and those that failed."""
    informed: Callable[[int, int], None]
    """A node, by id and broker epoch, has heard and answered all there is to know."""


@dataclass(slots=True)
class ControlRequestBatch:
    """What to tell whom; fill it while handling one event, then :meth:`send`.

    All nodes are those registered when it is sent: an event that changes them begins its batch
    afterwards.
    """

    context: ControllerContext
    orders: ControlRequestBuilder
    channels: ControllerChannelManager
    replies: ResponseCallbacks
    handovers: LeadershipHandovers
    _leaders: dict[int, dict[Partition, bool]] = field(default_factory=dict)
    _metadata: set[Partition] = field(default_factory=set)
    _metadata_for: set[int] = field(default_factory=set)
    _is_metadata_for_all: bool = False
    """Noted instead of a hundred nodes for each of 100,000 partitions."""
    _whole_for: set[int] = field(default_factory=set)
    _informed: set[int] = field(default_factory=set)
    _stops: dict[int, dict[Partition, bool]] = field(default_factory=dict)

    def lead(self, nodes: Iterable[int], partition: Partition, *, is_new: bool = False) -> None:
        """Tell the registered ones of ``nodes`` who leads, and everybody through metadata."""
        for node in nodes:
            if node in self.context.nodes:
                told = self._leaders.setdefault(node, {})
                told[partition] = told.get(partition, False) or is_new
        self.publish([partition])

    def publish(self, partitions: Iterable[Partition], nodes: Iterable[int] | None = None) -> None:
        """Tell ``nodes`` (all when None) of the partitions' leaders and of all live nodes."""
        self._metadata.update(partitions)
        if nodes is None:
            self._is_metadata_for_all = True
        else:
            self._metadata_for.update(nodes)

    def publish_all(self, nodes: Iterable[int] | None = None) -> None:
        """Tell ``nodes`` of every partition, and that there is no other topic.

        Not the latter while a topic's znode cannot be read: its offsets would be forgotten.
        """
        told = set(self.context.nodes if nodes is None else nodes)
        self.publish(self.context.leaders, told)
        if not self.context.unreadable:
            self._whole_for |= told

    def inform(self, nodes: Iterable[int] | None = None) -> None:
        """With the answer to this, ``nodes`` (all when None) have obeyed all that was sent.

        Only then may they answer for what they lead: one that was away leads, as far as it knows,
        what it led before.
        """
        told = set(self.context.nodes if nodes is None else nodes)
        self.publish([], told)
        self._informed |= told

    def stop(self, replica: Replica, *, delete: bool) -> None:
        """Have a node stop serving a replica, and delete its log if ``delete``."""
        topic, index, node = replica
        if node in self.context.nodes:
            stops = self._stops.setdefault(node, {})
            stops[topic, index] = stops.get((topic, index), False) or delete

    def send(self) -> None:
        """Queue everything, in order, and be empty again."""
        for node, told in self._leaders.items():
            self._send_leaders(node, told)
        if self._is_metadata_for_all:
            self._metadata_for.update(self.context.nodes)
        if self._metadata_for:
            self._send_metadata()
        for node, stops in self._stops.items():
            self._send_stops(node, stops)
        self._leaders, self._stops = {}, {}
        self._metadata, self._metadata_for, self._whole_for = set(), set(), set()
        self._informed, self._is_metadata_for_all = set(), False

    def _send_leaders(self, node: int, told: dict[Partition, bool]) -> None:
        known = {
            partition: is_new
            for partition, is_new in told.items()
            if partition in self.context.leaders and not self.handovers.is_held(node, partition)
        }
        if known:
            request, version = self.orders.leaders_for(node, known)
            epochs = {
                partition: self.context.leaders[partition].leader_epoch for partition in known
            }
            self.channels.send(
                node, QueuedRequest(request, version, self._leaders_answered(node, epochs))
            )

    def _send_metadata(self) -> None:
        shared = self.orders.shared_metadata(self._metadata)
        for node in sorted(self._metadata_for & self.context.nodes.keys()):
            is_whole = node in self._whole_for
            request, version = self.orders.metadata_for(node, shared, is_whole=is_whole)
            informed = self._informed_answer(node) if node in self._informed else None
            self.channels.send(node, QueuedRequest(request, version, informed))

    def _informed_answer(self, node: int) -> Callable[[Any], None]:
        epoch = self.context.nodes[node].epoch
        return lambda answer: self.replies.informed(node, epoch)

    def _send_stops(self, node: int, stops: dict[Partition, bool]) -> None:
        request, version = self.orders.stops_for(node, stops)
        deleted = [(*partition, node) for partition, delete in stops.items() if delete]
        self.channels.send(
            node, QueuedRequest(request, version, self._stops_answered(node, set(stops), deleted))
        )

    def _leaders_answered(
        self, node: int, epochs: Mapping[Partition, int]
    ) -> Callable[[Any], None]:
        """``epochs`` are those the order tells of: who has heard of an older one must wait."""
        # Of the topics that it tells of alone: there may be 10,000 others.
        ids = self.context.topic_ids
        names = {ids[topic]: topic for topic, _ in epochs if topic in ids}

        def answered(answer: Any) -> None:
            failed = []
            obeyed = []
            for topic, error in _errors(answer, names):
                replica = (topic, error.partition_index, node)
                if error.error_code in ROLE_KNOWN:
                    self.context.unacknowledged_replicas.discard(replica)
                    obeyed.append(replica[:2])
                elif error.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                    failed.append(replica)
                else:
                    self.context.unacknowledged_replicas.add(replica)
            self.handovers.obeyed(node, filter(self._is_newest(epochs), obeyed))
            if failed:
                self.replies.replicas_failed(failed)

        return answered

    def _is_newest(self, epochs: Mapping[Partition, int]) -> Callable[[Partition], bool]:
        def is_newest(partition: Partition) -> bool:
            state = self.context.leaders.get(partition)
            return state is not None and state.leader_epoch == epochs.get(partition)

        return is_newest

    def _stops_answered(
        self, node: int, stopped: set[Partition], deleted: list[Replica]
    ) -> Callable[[Any], None]:
        def answered(answer: Any) -> None:
            refused = {
                (error.topic_name, error.partition_index)
                for error in answer.partition_errors
                if error.error_code
            }
            if answer.error_code:
                refused = stopped
            # Who led until its replica was taken away gets no other order than this.
            self.handovers.obeyed(node, stopped - refused)
            if deleted:
                gone = [replica for replica in deleted if replica[:2] not in refused]
                left = [replica for replica in deleted if replica[:2] in refused]
                self.replies.replicas_deleted(gone, sorted(left))

        return answered


def _errors(answer: Any, names: dict[bytes, str]) -> Iterable[tuple[str, Any]]:
    """Each partition's error with its topic, whichever way the version of the answer names it."""
    for error in answer.partition_errors:
        yield error.topic_name, error
    for topic in answer.topics:
        for error in topic.partition_errors:
            yield names.get(topic.topic_id, ""), error
