"""OffsetForLeaderEpoch: where an epoch of leadership ended, for readers that check their own log.

Source: docs/spec/cluster.md §3.5 (the lookup) and §3.10 (codes).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping

from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.messages import offset_for_leader_epoch as messages

from .call import Answer, Call, Handler
from .cooperative import Turn, in_turns
from .stale_leaders import StaleLeaders


class OffsetForLeaderEpochHandler:
    """Answers from the epoch cache of each leader's log."""

    def __init__(self, replicas: ReplicaManager, stale_leaders: StaleLeaders) -> None:
        self._replicas = replicas
        self._stale_leaders = stale_leaders

    def handlers(self) -> Mapping[int, Handler]:
        """What to register with the dispatcher."""
        return {ApiKey.OFFSET_FOR_LEADER_EPOCH: self.offset_for_leader_epoch}

    def offset_for_leader_epoch(self, call: Call) -> Answer:
        """One answer for each partition; -1 and -1 where the epoch is not known."""
        return in_turns(self._answer(call.request, is_consumers=not call.peer.is_internal))

    def _answer(
        self, request: messages.OffsetForLeaderEpochRequest, is_consumers: bool
    ) -> Generator[None, None, messages.OffsetForLeaderEpochResponse]:
        topics, turn = [], Turn()
        for topic in request.topics:
            partitions: list[messages.PartitionResult] = []
            topics.append(messages.TopicResult(topic=topic.topic, partitions=partitions))
            for one in topic.partitions:
                partitions.append(self._look_up(topic.topic, one, is_consumers))
                if turn.is_over():
                    yield
        return messages.OffsetForLeaderEpochResponse(topics=topics)

    def _look_up(
        self, topic: str, asked: messages.Partition, is_consumers: bool
    ) -> messages.PartitionResult:
        try:
            partition = self._replicas.led(topic, asked.partition)
            # Memory still knows the epochs, but the log that they speak of can be read no more.
            if partition.log.is_offline:
                raise Refused(ErrorCode.KAFKA_STORAGE_ERROR)
            partition.check_epoch(asked.current_leader_epoch)
            epoch, end = partition.log.epoch_end_offset(asked.leader_epoch)
            if (
                epoch < asked.leader_epoch
                and is_consumers
                and self._stale_leaders.may_include(partition)
            ):
                raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        except Refused as refusal:
            return messages.PartitionResult(partition=asked.partition, error_code=refusal.code)
        return messages.PartitionResult(
            partition=asked.partition, leader_epoch=epoch, end_offset=end
        )
