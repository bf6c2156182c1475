"""DescribeProducers: who writes to a partition, and whose transaction holds its readers back.

Source: docs/spec/protocol.md §2; KIP-664; Kafka 3.9 ReplicaManager.activeProducerState.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping

from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.storage.producers.producer_state import ProducerStateEntry
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Refused
from barnabas.protocol.messages import describe_producers as messages
from barnabas.protocol.names import check_topic

from .call import Answer, Call, Handler
from .cooperative import Turn, in_turns


class DescribeProducersHandler:
    """Answers for every replica that is hosted here: a follower knows what its leader does."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    def handlers(self) -> Mapping[int, Handler]:
        """What to register with the dispatcher."""
        return {ApiKey.DESCRIBE_PRODUCERS: self.describe_producers}

    def describe_producers(self, call: Call) -> Answer:
        """The producers that each partition remembers, in no order."""
        return in_turns(self._answer(call.request))

    def _answer(
        self, request: messages.DescribeProducersRequest
    ) -> Generator[None, None, messages.DescribeProducersResponse]:
        topics, turn = [], Turn()
        known: dict[tuple[str, int], messages.PartitionResult] = {}
        for topic in request.topics:
            partitions: list[messages.PartitionResult] = []
            topics.append(messages.TopicResult(name=topic.name, partitions=partitions))
            for index in topic.partition_indexes:
                result = known.get((topic.name, index))
                if result is None:
                    result = yield from self._look_up(topic.name, index, turn)
                    known[topic.name, index] = result
                elif result.active_producers:
                    continue  # there may be very many: told once, however often it is named
                partitions.append(result)
                if turn.is_over():
                    yield
        return messages.DescribeProducersResponse(topics=topics)

    def _look_up(
        self, topic: str, index: int, turn: Turn
    ) -> Generator[None, None, messages.PartitionResult]:
        try:
            check_topic(topic)
            partition = self._replicas.get(topic, index) or self._replicas.led(topic, index)
        except Refused as refusal:
            return messages.PartitionResult(
                partition_index=index,
                error_code=refusal.code,
                error_message=refusal.message or None,
                active_producers=[],
            )
        producers = []
        for producer in list(partition.log.producers):
            producers.append(_described(*producer))
            if turn.is_over():
                yield
        return messages.PartitionResult(partition_index=index, active_producers=producers)


def _described(producer_id: int, producer: ProducerStateEntry) -> messages.Producer:
    return messages.Producer(
        producer_id=producer_id,
        producer_epoch=producer.epoch,
        last_sequence=producer.batches[-1].last_sequence if producer.batches else -1,
        last_timestamp=producer.timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=producer.transaction_start,
    )
