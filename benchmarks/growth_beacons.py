"""What beacons cost a node of a cluster of so many: datagrams a second, and CPU in this process.

The shipped sender, failure detector, voter and codec of every node on one clock, without sockets:
all nodes answer each of the controller's rounds. What the kernel and the loop take for a datagram
comes on top.
"""

# ruff: noqa: SLF001 - the loop and the sockets of the transport are what is left out

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from barnabas.broker.liveness.beacon_transport import BeaconTransport
from barnabas.broker.liveness.lease import TimedLease
from barnabas.broker.liveness.voter_set import VoterSet
from barnabas.broker.settings.liveness_settings import BeaconTimes

CONTROLLER = 1
ROUNDS = 20
"""A second of beacons."""
COLUMNS = (
    "controller: datagrams in and out a second",
    "its CPU, ms a second",
    "another node: datagrams",
    "its CPU, ms a second",
)


class BeaconCluster:
    """Nodes whose datagrams are handed over in memory; node 1 is controller."""

    def __init__(self, count: int) -> None:
        self.now = 100.0
        self.cpu_ns: Counter[int] = Counter()
        self.datagrams: Counter[int] = Counter()
        ids = range(1, count + 1)
        self._nodes = {number: self._node(number, ids) for number in ids}
        for number, node in self._nodes.items():
            node.beacon_sender.begin_incarnation(number)
            node.is_sending = True
            node.voter.registered(number)
            node.voter.read(1, number)
            node.voter.proved(self.now, 1e6, number)
        controller = self._nodes[CONTROLLER].failure_detector
        controller.begin(1, VoterSet(frozenset(ids), 18.0), 18.0)
        for number in ids:
            controller.admit(number, number)

    def _node(self, number: int, ids: Sequence[int]) -> BeaconTransport:
        peers = {other: ("host", other) for other in ids if other != number}
        return BeaconTransport(
            node_id=number,
            cluster_id="Lv9hcL2-QbWMQS-CCnYD2Q",
            secret="s",
            times=BeaconTimes(),
            clock=lambda: self.now,
            rng=random.Random(number),
            peers=lambda: peers,
            lease=TimedLease(lambda: self.now),
        )

    def round(self) -> None:
        """The controller's beacons, what answers them, and its echoes."""
        controller = self._nodes[CONTROLLER]
        controller.failure_detector.checked(self.now)
        with self._counted(CONTROLLER):
            controller._beat()
        for _ in range(3):
            for number in self._nodes:
                self._deliver(number)
        self.now += BeaconTimes().interval

    def _deliver(self, sender: int) -> None:
        node = self._nodes[sender]
        outgoing, node._outgoing = node._outgoing, {}
        for receiver, messages in outgoing.items():
            with self._counted(sender):
                datagrams = list(node._datagrams(receiver, messages))
            self.datagrams[sender] += len(datagrams)
            self.datagrams[receiver] += len(datagrams)
            for datagram in datagrams:
                with self._counted(receiver):
                    self._take(self._nodes[receiver], datagram)

    def _take(self, node: BeaconTransport, datagram: bytes) -> None:
        node._take(datagram, ("host", 1))

    @contextmanager
    def _counted(self, node: int) -> Iterator[None]:
        began = time.thread_time_ns()
        yield
        self.cpu_ns[node] += time.thread_time_ns() - began


def costs(nodes: int) -> tuple[float, float, float, float]:
    """Of one second, as in COLUMNS."""
    cluster = BeaconCluster(nodes)
    for _ in range(ROUNDS):  # everybody knows everybody then
        cluster.round()
    cluster.cpu_ns.clear()
    cluster.datagrams.clear()
    for _ in range(ROUNDS):
        cluster.round()
    others = [number for number in range(1, nodes + 1) if number != CONTROLLER]
    return (
        cluster.datagrams[CONTROLLER],
        cluster.cpu_ns[CONTROLLER] / 1e6,
        sum(cluster.datagrams[number] for number in others) / len(others),
        sum(cluster.cpu_ns[number] for number in others) / len(others) / 1e6,
    )
