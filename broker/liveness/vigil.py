"""The controller's side: its own authority, whom it echoes, and whose silence it may act on.

Source: reliability.md section 3.1 (b) to (e); docs/beacons.md has the argument. Pure: beacons,
times and the outcome of checks come in, echoes go out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from barnabas.protocol.beacon import Beacon, Echo

from .lease import TimedLease
from .pulse import MICROSECONDS, Authority
from .settings import BeaconTimes


@dataclass(slots=True)
class Heard:
    """The last beacon of one node."""

    broker_epoch: int
    incarnation: int
    sequence: int
    at: float
    """When it was received."""


@dataclass(slots=True)
class Vigil:
    """What a node does with beacons while it is controller; it listens all the time.

    A node is echoed only after :meth:`admit`: it has acknowledged a whole state of this
    controller, so nothing it may answer with is out of date.
    """

    cluster_id: str
    node_id: int
    times: BeaconTimes
    clock: Callable[[], float]
    send: Callable[[int, Echo], None]
    own_lease: TimedLease
    epoch: int = 0
    """Of this controller, 0 while it is none."""
    _authority_end: float = -math.inf
    _since: float = -math.inf
    _heard: dict[int, Heard] = field(default_factory=dict)
    _admitted: dict[int, int] = field(default_factory=dict)
    """Who is echoed, with the broker epoch it was admitted under."""
    _granted: dict[int, float] = field(default_factory=dict)
    """When each node was last echoed: its lease is over T later at the latest."""

    def begin(self, epoch: int) -> None:
        """This node was elected: whatever its predecessor granted lasts T from now at most."""
        self.epoch = epoch
        self._since = self.clock()
        self._authority_end = -math.inf
        self._admitted.clear()
        self._granted.clear()

    def end(self) -> None:
        """This node is controller no longer."""
        self.epoch = 0
        self._authority_end = -math.inf
        self._admitted.clear()

    def checked(self, sent: float) -> None:
        """ZooKeeper confirmed the role in answer to a check that was sent at ``sent``."""
        if not self.epoch:
            return
        self._authority_end = max(self._authority_end, sent + self.times.timeout)
        if self._admitted.get(self.node_id) is not None:
            self.own_lease.extend(self._authority_end - self.times.margin)
            if self._is_settled():
                self.own_lease.settle(self.epoch)

    def authority(self) -> Authority:
        """What this node's own beacons say of its role."""
        left = self._authority_end - self.clock()
        if not self.epoch or left <= 0:
            return Authority(epoch=self.epoch)
        return Authority(self.epoch, int(left * MICROSECONDS))

    def admit(self, node_id: int, broker_epoch: int) -> None:
        """The node has acknowledged the whole state; from now on it may answer."""
        self._admitted[node_id] = broker_epoch

    def shut_out(self, node_id: int) -> None:
        """Something this node leads is being moved, or it is suspected: echo it no more."""
        self._admitted.pop(node_id, None)

    def is_admitted(self, node_id: int) -> bool:
        """The node is echoed."""
        return node_id in self._admitted

    def take(self, beacon: Beacon) -> bool:
        """Note that a node lives, and let it answer for a while; False for a stale datagram."""
        known = self._heard.get(beacon.node_id)
        if known is not None and beacon.incarnation == known.incarnation:
            if beacon.sequence <= known.sequence:
                return False
        elif known is not None and beacon.broker_epoch < known.broker_epoch:
            return False
        at = -math.inf if beacon.is_leaving else self.clock()
        self._heard[beacon.node_id] = Heard(
            beacon.broker_epoch, beacon.incarnation, beacon.sequence, at
        )
        if beacon.is_leaving:
            self.shut_out(beacon.node_id)
            self._granted[beacon.node_id] = -math.inf
        elif self._admitted.get(beacon.node_id) == beacon.broker_epoch:
            self._echo(beacon)
        return True

    def silent(self, nodes: Mapping[int, int]) -> list[int]:
        """Of these nodes, by broker epoch, those that fell silent T ago: their leases are over.

        None without authority: who cannot be sure of being controller judges nobody. A node of
        which no beacon was heard since it was registered is judged by its session alone. Ask
        after all datagrams that have come were taken.
        """
        now = self.clock()
        if self._authority_end <= now or now - self._since < self.times.timeout:
            return []
        return [node for node, epoch in nodes.items() if self._fell_silent(node, epoch, now)]

    def _fell_silent(self, node_id: int, broker_epoch: int, now: float) -> bool:
        heard = self._heard.get(node_id)
        if heard is None or heard.broker_epoch != broker_epoch:
            return False
        return now - heard.at >= self.times.timeout

    def may_answer(self, node_id: int) -> bool:
        """Whether a lease of this node may still last, whoever granted it."""
        return self.clock() < self.over_at(node_id)

    def over_at(self, node_id: int) -> float:
        """When a lease of this node is surely over if it is not echoed again."""
        if node_id == self.node_id:
            return self.own_lease.end
        granted = self._granted.get(node_id, self._since)
        if math.isinf(granted):
            return granted
        return max(granted, self._since) + self.times.timeout

    def is_heard(self, node_id: int, broker_epoch: int) -> bool:
        """A beacon of this registration came within T."""
        heard = self._heard.get(node_id)
        if heard is None or heard.broker_epoch != broker_epoch:
            return False
        return self.clock() - heard.at < self.times.timeout

    def _is_settled(self) -> bool:
        """Leases that predecessors granted are over, by any clock."""
        return self.clock() - self._since > self.times.timeout

    def _echo(self, beacon: Beacon) -> None:
        validity = self._authority_end - self.clock()
        if not self.epoch or validity <= 0:
            return
        echo = Echo(
            cluster_id=self.cluster_id,
            controller_id=self.node_id,
            controller_epoch=self.epoch,
            node_id=beacon.node_id,
            incarnation=beacon.incarnation,
            sent_us=beacon.sent_us,
            validity_us=int(validity * MICROSECONDS),
            is_settled=self._is_settled(),
        )
        self._granted[beacon.node_id] = self.clock()
        self.send(beacon.node_id, echo)
