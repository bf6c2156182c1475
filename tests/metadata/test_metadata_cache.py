"""What a node makes of UpdateMetadata: snapshots, and what those who listen see of them."""

from __future__ import annotations

from barnabas.broker.metadata.metadata_cache import WHOLE, MetadataCache
from barnabas.protocol.messages.update_metadata import (
    PartitionState,
    TopicState,
    UpdateMetadataRequest,
)

OLD, NEW = b"o" * 16, b"n" * 16


def news(*, topic_id: bytes, partitions: int, of_type: int = 0) -> UpdateMetadataRequest:
    states = [PartitionState(partition_index=index, leader=1) for index in range(partitions)]
    topic = TopicState(topic_name="t", topic_id=topic_id, partition_states=states)
    return UpdateMetadataRequest(controller_id=1, type=of_type, topic_states=[topic])


def test_a_topic_under_another_id_has_no_partition_of_the_former_one() -> None:
    cache = MetadataCache()
    cache.update(news(topic_id=OLD, partitions=3))
    cache.update(news(topic_id=NEW, partitions=1))
    assert list(cache.snapshot.topics["t"]) == [0]
    assert cache.snapshot.names == {NEW: "t"}


def test_who_listens_sees_a_topic_gone_before_it_comes_under_another_id() -> None:
    cache = MetadataCache()
    cache.update(news(topic_id=OLD, partitions=1))
    seen: list[dict[str, bytes]] = []
    cache.on_change.append(lambda: seen.append(dict(cache.snapshot.topic_ids)))
    cache.update(news(topic_id=NEW, partitions=1, of_type=WHOLE))
    assert seen == [{}, {"t": NEW}]


def test_a_topic_that_got_its_id_later_stays_the_same() -> None:
    cache = MetadataCache()
    cache.update(news(topic_id=bytes(16), partitions=2))
    cache.update(news(topic_id=NEW, partitions=1))
    assert list(cache.snapshot.topics["t"]) == [0, 1]


def test_what_the_whole_cluster_does_not_name_is_gone() -> None:
    cache = MetadataCache()
    cache.update(news(topic_id=OLD, partitions=1))
    cache.update(UpdateMetadataRequest(controller_id=1))
    assert "t" in cache.snapshot.topics
    cache.update(UpdateMetadataRequest(controller_id=1, type=WHOLE))
    assert cache.snapshot.topics == {}


async def test_a_controller_of_kafka_that_names_no_topic_has_none() -> None:
    """Else a node that joins an empty cluster of Kafka would create no topic for its clients."""
    cache = MetadataCache()
    assert not await cache.wait_until_informed(0)
    assert not cache.is_whole
    cache.update(UpdateMetadataRequest(controller_id=1, live_brokers=[]))
    assert not cache.is_whole
    assert await cache.wait_until_informed(0)
    assert cache.is_whole
