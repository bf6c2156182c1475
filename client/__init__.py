"""The asyncio client library, which is also how nodes talk to each other and to ZooKeeper.

The names below are loaded when they are first used: nodes need few of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.protocol.settings import ConfigError

    from .accumulator import Delivery, RecordMetadata
    from .admin import Admin
    from .blocking import SyncConsumer, SyncProducer
    from .classic_blocking import SyncConsumerConnector
    from .classic_config import ClassicConfig
    from .classic_member import ClassicListener, ConsumerRebalanceFailed
    from .classic_stream import ConsumerTimeout, KafkaStream
    from .cluster import Cluster, Unreachable
    from .config import ClientConfig
    from .consumed import Chunk, ConsumedRecord
    from .consumer import Consumer
    from .consumer_batch import Batch
    from .consumer_config import ConsumerConfig
    from .descriptions import Committed, NewTopic
    from .encoders import Encoder
    from .errors import (
        AuthenticationFailed,
        CommitFailed,
        DecodingFailed,
        Disconnected,
        KafkaError,
        OffsetOutOfRange,
        QueueFull,
        RequestTimedOut,
        UnsupportedVersion,
    )
    from .fetch_config import FetchConfig
    from .fetcher import Fetcher
    from .group_consumer import RebalanceListener
    from .group_offsets import CommittedOffset, GroupOffsets
    from .high_level_consumer import ConsumerConnector
    from .partitioner import HashPartitioner, Murmur2Partitioner, Partitioner
    from .producer import Producer
    from .producer_config import ProducerConfig
    from .producer_queue import CallbackHandler, EventHandler, Item, Sending
    from .simple_consumer import EARLIEST_TIME, LATEST_TIME, Fetch, SimpleConsumer
    from .topic_filter import TopicFilter, blacklist, whitelist
    from .topology import Node, TopicPartition

_MODULES = {
    "accumulator": ("Delivery", "RecordMetadata"),
    "admin": ("Admin",),
    "blocking": ("SyncConsumer", "SyncProducer"),
    "classic_blocking": ("SyncConsumerConnector",),
    "classic_config": ("ClassicConfig",),
    "classic_member": ("ClassicListener", "ConsumerRebalanceFailed"),
    "classic_stream": ("ConsumerTimeout", "KafkaStream"),
    "cluster": ("Cluster", "Unreachable"),
    "config": ("ClientConfig", "ConfigError"),
    "consumed": ("Chunk", "ConsumedRecord"),
    "consumer": ("Consumer",),
    "consumer_batch": ("Batch",),
    "consumer_config": ("ConsumerConfig",),
    "descriptions": ("Committed", "NewTopic"),
    "encoders": ("Encoder",),
    "errors": (
        "AuthenticationFailed",
        "CommitFailed",
        "DecodingFailed",
        "Disconnected",
        "KafkaError",
        "OffsetOutOfRange",
        "QueueFull",
        "RequestTimedOut",
        "UnsupportedVersion",
    ),
    "fetch_config": ("FetchConfig",),
    "fetcher": ("Fetcher",),
    "group_consumer": ("RebalanceListener",),
    "group_offsets": ("CommittedOffset", "GroupOffsets"),
    "high_level_consumer": ("ConsumerConnector",),
    "partitioner": ("HashPartitioner", "Murmur2Partitioner", "Partitioner"),
    "producer": ("Producer",),
    "producer_config": ("ProducerConfig",),
    "producer_queue": ("CallbackHandler", "EventHandler", "Item", "Sending"),
    "simple_consumer": ("EARLIEST_TIME", "LATEST_TIME", "Fetch", "SimpleConsumer"),
    "topic_filter": ("TopicFilter", "blacklist", "whitelist"),
    "topology": ("Node", "TopicPartition"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "EARLIEST_TIME",
    "LATEST_TIME",
    "Admin",
    "AuthenticationFailed",
    "Batch",
    "CallbackHandler",
    "Chunk",
    "ClassicConfig",
    "ClassicListener",
    "ClientConfig",
    "Cluster",
    "CommitFailed",
    "Committed",
    "CommittedOffset",
    "ConfigError",
    "ConsumedRecord",
    "Consumer",
    "ConsumerConfig",
    "ConsumerConnector",
    "ConsumerRebalanceFailed",
    "ConsumerTimeout",
    "DecodingFailed",
    "Delivery",
    "Disconnected",
    "Encoder",
    "EventHandler",
    "Fetch",
    "FetchConfig",
    "Fetcher",
    "GroupOffsets",
    "HashPartitioner",
    "Item",
    "KafkaError",
    "KafkaStream",
    "Murmur2Partitioner",
    "NewTopic",
    "Node",
    "OffsetOutOfRange",
    "Partitioner",
    "Producer",
    "ProducerConfig",
    "QueueFull",
    "RebalanceListener",
    "RecordMetadata",
    "RequestTimedOut",
    "Sending",
    "SimpleConsumer",
    "SyncConsumer",
    "SyncConsumerConnector",
    "SyncProducer",
    "TopicFilter",
    "TopicPartition",
    "Unreachable",
    "UnsupportedVersion",
    "blacklist",
    "whitelist",
]


def __getattr__(name: str) -> Any:
    """Load the module that has ``name``."""
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{module}", __name__), name)
