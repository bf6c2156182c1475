"""The asyncio client library, which is also how nodes talk to each other and to ZooKeeper.

The names below are loaded when they are first used: nodes need few of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.protocol.settings import ConfigError

    from .admin.admin import Admin
    from .admin.descriptions import Committed, NewTopic
    from .blocking import SyncConsumer, SyncProducer
    from .classic.blocking_connector import SyncConsumerConnector
    from .classic.classic_config import ClassicConfig
    from .classic.classic_member import ClassicListener, ConsumerRebalanceFailed
    from .classic.consumer_connector import ConsumerConnector
    from .classic.kafka_stream import ConsumerTimeout, KafkaStream
    from .classic.topic_filter import TopicFilter, blacklist, whitelist
    from .client_config import ClientConfig
    from .cluster import Cluster, Unreachable
    from .consumer.consumed_records import Chunk, ConsumedRecord
    from .consumer.consumer import Consumer
    from .consumer.consumer_batch import Batch
    from .consumer.consumer_config import ConsumerConfig
    from .consumer.fetch_config import FetchConfig
    from .consumer.fetcher import Fetcher
    from .consumer.group_offsets import GroupOffsets
    from .consumer.rebalance_listener import RebalanceListener
    from .consumer.simple_consumer import EARLIEST_TIME, LATEST_TIME, Fetch, SimpleConsumer
    from .errors import (
        AbortableTransactionError,
        AuthenticationFailed,
        CommitFailed,
        DecodingFailed,
        Disconnected,
        FatalTransactionError,
        KafkaError,
        OffsetOutOfRange,
        ProducerFenced,
        QueueFull,
        RequestTimedOut,
        TransactionAborted,
        UnsupportedVersion,
    )
    from .group_metadata import CommittedOffset, GroupMetadata
    from .producer.accumulator import Delivery, RecordMetadata
    from .producer.encoders import Encoder
    from .producer.partitioner import HashPartitioner, Murmur2Partitioner, Partitioner
    from .producer.producer import Producer
    from .producer.producer_config import ProducerConfig
    from .producer.producer_queue import CallbackHandler, EventHandler, Item, Sending
    from .producer.transaction import Transaction
    from .topology import Node, TopicPartition

_MODULES = {
    "producer.accumulator": ("Delivery", "RecordMetadata"),
    "admin.admin": ("Admin",),
    "blocking": ("SyncConsumer", "SyncProducer"),
    "classic.blocking_connector": ("SyncConsumerConnector",),
    "classic.classic_config": ("ClassicConfig",),
    "classic.classic_member": ("ClassicListener", "ConsumerRebalanceFailed"),
    "classic.kafka_stream": ("ConsumerTimeout", "KafkaStream"),
    "cluster": ("Cluster", "Unreachable"),
    "client_config": ("ClientConfig", "ConfigError"),
    "consumer.consumed_records": ("Chunk", "ConsumedRecord"),
    "consumer.consumer": ("Consumer",),
    "consumer.consumer_batch": ("Batch",),
    "consumer.consumer_config": ("ConsumerConfig",),
    "admin.descriptions": ("Committed", "NewTopic"),
    "producer.encoders": ("Encoder",),
    "errors": (
        "AbortableTransactionError",
        "AuthenticationFailed",
        "CommitFailed",
        "DecodingFailed",
        "Disconnected",
        "FatalTransactionError",
        "KafkaError",
        "OffsetOutOfRange",
        "ProducerFenced",
        "QueueFull",
        "RequestTimedOut",
        "TransactionAborted",
        "UnsupportedVersion",
    ),
    "consumer.fetch_config": ("FetchConfig",),
    "consumer.fetcher": ("Fetcher",),
    "consumer.group_offsets": ("GroupOffsets",),
    "consumer.rebalance_listener": ("RebalanceListener",),
    "group_metadata": ("CommittedOffset", "GroupMetadata"),
    "classic.consumer_connector": ("ConsumerConnector",),
    "producer.partitioner": ("HashPartitioner", "Murmur2Partitioner", "Partitioner"),
    "producer.producer": ("Producer",),
    "producer.transaction": ("Transaction",),
    "producer.producer_config": ("ProducerConfig",),
    "producer.producer_queue": ("CallbackHandler", "EventHandler", "Item", "Sending"),
    "consumer.simple_consumer": ("EARLIEST_TIME", "LATEST_TIME", "Fetch", "SimpleConsumer"),
    "classic.topic_filter": ("TopicFilter", "blacklist", "whitelist"),
    "topology": ("Node", "TopicPartition"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "EARLIEST_TIME",
    "LATEST_TIME",
    "AbortableTransactionError",
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
    "FatalTransactionError",
    "Fetch",
    "FetchConfig",
    "Fetcher",
    "GroupMetadata",
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
    "ProducerFenced",
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
    "Transaction",
    "TransactionAborted",
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
