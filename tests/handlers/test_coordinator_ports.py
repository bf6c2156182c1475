"""What the coordinators hear of their node's topics."""

from __future__ import annotations

from barnabas.broker.coordination.coordinator_ports import CoordinatorTopics
from barnabas.broker.metadata.metadata_cache import WHOLE, MetadataCache
from barnabas.coordinator.ports import OFFSETS_TOPIC, TRANSACTION_TOPIC
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import update_metadata


def test_the_offsets_topic_is_only_missing_once_a_controller_told_everything() -> None:
    cache = MetadataCache()
    topics = CoordinatorTopics(
        1, cache, lambda topic: None, topic=OFFSETS_TOPIC, counts={OFFSETS_TOPIC: lambda: None}
    )
    assert not topics.lacks_offsets_topic(), "unknown is not none"
    alive = [update_metadata.Broker(id=1)]
    cache.update(update_metadata.UpdateMetadataRequest(live_brokers=alive))
    assert not topics.lacks_offsets_topic(), "nothing was said of topics"
    assert topics.missing_partition_error() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    cache.update(update_metadata.UpdateMetadataRequest(type=WHOLE, live_brokers=alive))
    assert topics.lacks_offsets_topic()
    assert topics.missing_partition_error() is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    state = update_metadata.PartitionState(leader=1, replicas=[1], isr=[1])
    made = update_metadata.TopicState(topic_name="__consumer_offsets", partition_states=[state])
    cache.update(update_metadata.UpdateMetadataRequest(topic_states=[made], live_brokers=alive))
    assert not topics.lacks_offsets_topic(), "its partitions are not counted yet, but it is there"


def test_the_transaction_log_is_only_missing_once_a_controller_told_everything() -> None:
    cache = MetadataCache()
    topics = CoordinatorTopics(1, cache, lambda topic: None, topic=TRANSACTION_TOPIC, counts={})
    assert not topics.lacks_transaction_topic(), "unknown is not none"
    alive = [update_metadata.Broker(id=1)]
    cache.update(update_metadata.UpdateMetadataRequest(type=WHOLE, live_brokers=alive))
    assert topics.lacks_transaction_topic()
    state = update_metadata.PartitionState(leader=1, replicas=[1], isr=[1])
    made = update_metadata.TopicState(topic_name=TRANSACTION_TOPIC, partition_states=[state])
    cache.update(update_metadata.UpdateMetadataRequest(topic_states=[made], live_brokers=alive))
    assert not topics.lacks_transaction_topic()
