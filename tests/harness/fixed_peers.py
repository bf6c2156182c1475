"""Peers that all give one answer, where nodes exist in ZooKeeper only."""

from __future__ import annotations

from barnabas.broker.lifecycle.peer_compatibility import (
    PeerAnswer,
    Peers,
    PeerVerdict,
    RegisteredPeer,
)
from barnabas.client.zookeeper.interface import ZooKeeper


class FixedPeers(Peers):
    """Whoever is registered answers ``verdict``."""

    def __init__(self, zookeeper: ZooKeeper, node_id: int, verdict: PeerVerdict) -> None:
        super().__init__(zookeeper, node_id, "cluster", listener="INTERNAL", login=None)
        self.verdict = verdict

    async def ask(self, peer: RegisteredPeer) -> PeerAnswer:
        return PeerAnswer(self.verdict, "as the test says")
