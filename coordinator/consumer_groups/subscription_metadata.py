"""A hash of the topics that a group subscribes to: another hash, another assignment (KIP-1101).

It is stored with the group, so that a coordinator that takes over knows whether topics have
changed since. It covers id, name and number of partitions; leaders, replicas and racks come and go
without a reason to move partitions. Kafka's hash has racks in it, and is never compared with ours.
Source: docs/spec/consumer-groups.md §6, C62.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from .assignor import SubscribedTopic, by_name

NO_TOPICS: Final = 0

_VERSION: Final = b"\1"
_SIZE: Final = 8


@lru_cache(maxsize=1 << 16)
def topic_hash(topic: SubscribedTopic) -> bytes:
    """Of one topic, kept for the next group or member that subscribes to it."""
    name = topic.name.encode()
    length, count = len(name).to_bytes(2, "big"), topic.partitions.to_bytes(4, "big")
    return blake2b(_VERSION + topic.topic_id + length + name + count, digest_size=_SIZE).digest()


def metadata_hash(topics: Iterable[SubscribedTopic]) -> int:
    """Of all topics of a group, as the int64 that its record has; 0 without any."""
    parts = [topic_hash(topic) for topic in by_name(topics)]
    if not parts:
        return NO_TOPICS
    digest = blake2b(_VERSION + b"".join(parts), digest_size=_SIZE).digest()
    return int.from_bytes(digest, "big", signed=True)
