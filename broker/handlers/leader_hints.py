"""Who leads, and where it listens: told along with the code that another node is to be asked.

So a client need not ask for metadata first. Source: KIP-951; Kafka 3.9 KafkaApis.getCurrentLeader.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from barnabas.broker.metadata.metadata_cache import MetadataCache
from barnabas.broker.replication.replica_manager import ReplicaManager


@dataclass(frozen=True, slots=True)
class Address:
    """Where clients find a node."""

    host: str
    port: int
    rack: str | None


class LeaderHints:
    """By the replica here, which hears of changes first, else by what the node was told."""

    def __init__(self, cache: MetadataCache, replicas: ReplicaManager) -> None:
        self._cache = cache
        self._replicas = replicas

    def leader(self, topic: str, index: int) -> tuple[int, int]:
        """Node and leader epoch; -1 and -1 when nothing is known."""
        hosted = self._replicas.get(topic, index)
        if hosted is not None:
            return hosted.leader_id, hosted.leader_epoch
        cached = self._cache.snapshot.partition(topic, index)
        return (-1, -1) if cached is None else (cached.leader, cached.leader_epoch)

    def fill_current_leaders(
        self, wrong: Iterable[tuple[str, int, Any]], listener: str, messages: Any
    ) -> list[Any]:
        """Fill in the leader of each result: topic, partition, and what is answered of it.

        ``messages`` is the module of the API, whose classes are used. Gives the endpoints of these
        leaders on ``listener``, each once.
        """
        nodes = {}
        for topic, index, result in wrong:
            leader, epoch = self.leader(topic, index)
            result.current_leader = messages.CurrentLeader(leader_id=leader, leader_epoch=epoch)
            found = self.address(leader, listener)
            if found is not None:
                nodes[leader] = messages.NodeEndpoint(
                    node_id=leader, host=found.host, port=found.port, rack=found.rack
                )
        return list(nodes.values())

    def address(self, node: int, listener: str) -> Address | None:
        """None for a node that is dead, or lacks the listener."""
        snapshot = self._cache.snapshot
        endpoint = snapshot.endpoint(node, listener)
        return None if endpoint is None else Address(*endpoint, snapshot.brokers[node].rack)
