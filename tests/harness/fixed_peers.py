"""Peers that all give one answer, where nodes exist in ZooKeeper only."""

from __future__ import annotations

from barnabas.broker.lifecycle.peer_compatibility import Answer, Peer, Peers, Verdict
from barnabas.client.zookeeper.interface import ZooKeeper


class FixedPeers(Peers):
    """Whoever is registered answers ``verdict``."""

    def __init__(self, zookeeper: ZooKeeper, node_id: int, verdict: Verdict) -> None:
        super().__init__(zookeeper, node_id, "cluster", listener="INTERNAL", secret=None)
        self.verdict = verdict

    async def ask(self, peer: Peer) -> Answer:
        return Answer(self.verdict, "as the test says")
