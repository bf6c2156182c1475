"""Partitioners: by a hash of the key; sticky for records without one.

Source: docs/spec/coordinator.md §7.2; KIP-480 (why records without a key stay together for a
while).
"""

from __future__ import annotations

from functools import lru_cache
from random import Random
from typing import Any, Final, Protocol

from barnabas.client.topology import Topology
from barnabas.protocol.hashing import (
    hash_partition,
    java_bytes_hash,
    java_hash,
    java_long_hash,
    murmur2,
)

_KEYS_KEPT = 65_536
_INT32 = 1 << 31
_DRAWS: Final = 8
"""How often a partition is drawn before all are listed: with half available, once in 256 times."""


class Partitioner(Protocol):
    """Chooses by key; a class of the application's may be given to the producer."""

    def partition(self, key: Any, partitions: int) -> int:
        """The partition of ``key``, never None, among 0 to ``partitions`` - 1."""
        ...


class HashPartitioner:
    """``hash(key) % partitions`` with Java's hash of the key: what the documents describe.

    Keys may be bytes, text, whole numbers of 64 bits, or anything ``str`` says something about.
    """

    def partition(self, key: Any, partitions: int) -> int:
        """The partition of ``key``; equal keys of all processes come together."""
        return hash_partition(_hash(key), partitions)


class Murmur2Partitioner:
    """The partition that Java producers choose by default: the same keys, the same place."""

    def partition(self, key: Any, partitions: int) -> int:
        """The partition of a key of bytes, or of the UTF-8 of a text."""
        data = key.encode() if isinstance(key, str) else bytes(key)
        return (_murmur2(data) & 0x7FFFFFFF) % partitions


class StickyPartitioner:
    """Where records without a key go: one partition until its batch is gone, then another."""

    def __init__(self, topology: Topology, random: Random) -> None:
        self._topology = topology
        self._random = random
        self._chosen: dict[str, int] = {}
        self._unused: set[str] = set()

    def partition(self, topic: str) -> int:
        """A partition with a leader if there is one, else any."""
        chosen = self._chosen.get(topic)
        if chosen is None or (topic, chosen) not in self._topology.leaders:
            chosen = self._draw(topic)
            self._chosen[topic] = chosen
            self._unused.add(topic)
        return chosen

    def on_new_batch(self, topic: str) -> None:
        """The record just added began a batch: its first here, or the last one is gone."""
        if topic in self._unused:
            self._unused.remove(topic)
        else:
            self._chosen.pop(topic, None)

    def _draw(self, topic: str) -> int:
        """Each of the partitions with a leader is as likely as another.

        Most have one, so a draw or two finds it: to list them all for every batch would cost as
        much as the topic has partitions.
        """
        everyone = range(self._topology.counts[topic])
        for _ in range(_DRAWS):
            drawn = self._random.choice(everyone)
            if (topic, drawn) in self._topology.leaders:
                return drawn
        return self._random.choice(self._topology.available_partitions(topic) or everyone)


@lru_cache(maxsize=_KEYS_KEPT)
def _hash(key: Any) -> int:
    if isinstance(key, str):
        return java_hash(key)
    if isinstance(key, int):
        return key if -_INT32 <= key < _INT32 else java_long_hash(key)
    if isinstance(key, bytes | bytearray | memoryview):
        return java_bytes_hash(bytes(key))
    return java_hash(str(key))


_murmur2 = lru_cache(maxsize=_KEYS_KEPT)(murmur2)
