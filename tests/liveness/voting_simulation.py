"""The small world with voters: authority from a majority, and everything that could break it.

ZooKeeper stalls, processes end inside their promises and start again, some elsewhere while the old
one lives on; the set changes all the time. Points 11 to 16 of docs/beacons.md.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from barnabas.broker.liveness.voter_set import ZOOKEEPER_ALONE, VoterSet
from barnabas.protocol.beacon import Acknowledgement, Beacon, Message

from .simulated_nodes import Faults, Rules, SimulatedNode
from .simulation import LivenessSimulation

RESEND_S = 0.5


@dataclass(frozen=True)
class VotersZnode:
    """``/barnabas/voters``."""

    voters: VoterSet = ZOOKEEPER_ALONE
    epoch: int = 0
    version: int = 0


class VotingSimulation(LivenessSimulation):
    """All nodes know the second form, but for those in ``old``."""

    def __init__(
        self,
        seed: int,
        faults: Faults,
        *,
        count: int = 4,
        parts: Rules | None = None,
        first: VoterSet | None = None,
        old: frozenset[int] = frozenset(),
    ) -> None:
        self.znode = VotersZnode(first or ZOOKEEPER_ALONE)
        self.ghosts: dict[int, list[SimulatedNode]] = {}
        """Old processes that live on while another has their node's id."""
        self.old = old
        self.changes = 0
        self.restarts = 0
        self.is_slow = False
        super().__init__(seed, faults, count=count, parts=parts)
        if faults.stalls:
            self._at(1.7, self._stall_zookeeper)
        if faults.restarts:
            self._at(2.3, self._restart_something)

    # -- the world ----------------------------------------------------------------------------

    def _node(self, number: int) -> SimulatedNode:
        node = super()._node(number)
        node.session = self.random.uniform(1.5, 5.0)
        return node

    def _processes(self, number: int) -> list[SimulatedNode]:
        return [*super()._processes(number), *self.ghosts.get(number, [])]

    def _zookeeper_delay(self) -> float:
        return self.random.uniform(0.0, 1.0) if self.is_slow else self._delay()

    def _stall_zookeeper(self) -> None:
        """Nothing at all for a while, or everything late."""
        seconds = self.random.uniform(0.1, 3.5)
        if self.random.random() < 0.7:
            self.stalled_until = self.now + seconds
        else:
            self.is_slow = True
            self._at(seconds, self._hurry)
        self._at(seconds + self.random.uniform(0.5, 6.0), self._stall_zookeeper)

    def _hurry(self) -> None:
        self.is_slow = False

    def _restart_something(self) -> None:
        """A process ends, or loses ZooKeeper for ever; another takes its id."""
        old = self.random.choice(list(self.nodes.values()))
        if old.is_dead or old.is_lost_to_zookeeper:
            pass  # its successor is about to start
        elif self.random.random() < 0.6:
            old.is_dead = True
            self._at(self.random.uniform(0.0, 0.4), lambda: self._start_again(old, bury=True))
        else:
            old.is_lost_to_zookeeper = True
            self._at(0.1, lambda: self._start_again(old, bury=False))
        self._at(self.random.uniform(2.0, 6.0), self._restart_something)

    def _start_again(self, old: SimulatedNode, *, bury: bool) -> None:
        """Once the former registration is gone, by its session or because its process is dead."""
        number = old.id
        can_reach = not self._is_cut(number, 0) and self.now >= self.stalled_until
        if not can_reach or (old.registered and not bury):
            self._at(0.02, lambda: self._start_again(old, bury=bury))
            return
        if self.controller[0] == number:
            self.controller = (0, self.controller[1])
        old.registered = 0
        self.nodes[number] = new = self._node(number)
        self.restarts += 1
        for other in self.nodes.values():
            other.resending.discard(number)
        if not bury:
            self.ghosts.setdefault(number, []).append(old)
            self._at(6.0, lambda: self._bury(old))
        self._start(new)

    def _bury(self, old: SimulatedNode) -> None:
        old.is_dead = True
        self.ghosts[old.id].remove(old)

    # -- voters -------------------------------------------------------------------------------

    def _register(self, node: SimulatedNode) -> None:
        super()._register(node)
        self._read_epoch(node)

    def _read_epoch(self, node: SimulatedNode) -> None:
        session = node.registered
        found: list[int] = []

        def read() -> bool:
            found.append(self.controller[1])
            return True

        def on_answer(done: bool) -> None:
            if done:
                node.voter.read(found[0], session)
            elif node.registered == session:
                self._read_epoch(node)

        if not node.is_dead and node.registered == session:
            self._ask(node, read, on_answer)
            self._on(node, 1.0, lambda: self._read_again(node, session, found))

    def _read_again(self, node: SimulatedNode, session: int, found: list[int]) -> None:
        if not found and node.registered == session:
            self._read_epoch(node)

    def _beat(self, node: SimulatedNode) -> None:
        others = [number for number in self.nodes if number != node.id]
        sent = node.beacon_sender.send_beacons(others, node.failure_detector.authority_claim())
        if node.failure_detector.epoch:
            vote = (
                None if node.id in self.old else node.voter.acknowledge(node.failure_detector.epoch)
            )
            node.failure_detector.round_sent(sent, vote)

    def _received(self, node: SimulatedNode, message: Message) -> None:
        super()._received(node, message)
        if not isinstance(message, Beacon) or not message.controller_epoch:
            return
        if node.id in self.old or message.node_id in self.old:
            return
        is_final = node.voter.acknowledge(message.controller_epoch)
        if is_final is not None:
            ack = Acknowledgement(
                cluster_id="c",
                node_id=node.id,
                controller_id=message.node_id,
                controller_epoch=message.controller_epoch,
                incarnation=message.incarnation,
                sent_us=message.sent_us,
                is_final=is_final,
            )
            self._datagram(node.id, message.node_id, ack)

    def _check(self, node: SimulatedNode) -> None:
        if not node.failure_detector.epoch and self.random.random() < self.faults.coups:
            self._campaign(node)
        else:
            super()._check(node)

    def _campaign(self, node: SimulatedNode) -> None:
        seen, znode = self.controller, self.znode
        elected = (node.id, seen[1] + 1)
        is_marked = znode.epoch in {seen[1], 0}
        inherited = znode.voters if is_marked else ZOOKEEPER_ALONE
        is_old = node.id in self.old

        def change() -> bool:
            if self.controller != seen or (not is_old and self.znode.version != znode.version):
                return False
            self.controller = elected
            self.takeovers += 1
            node.known = self.state
            if not is_old:
                self.znode = VotersZnode(inherited, elected[1], znode.version + 1)
            return True

        def on_answer(done: bool) -> None:
            node.beacon_sender.expect_controller()
            if done and self.controller == elected:
                node.voters_version = znode.version + 1
                node.sending = None
                if is_old:
                    node.failure_detector.begin(elected[1])
                else:
                    node.failure_detector.begin(elected[1], inherited, node.session)
                self._take_over(node)

        self._ask(node, change, on_answer)

    def _checked(self, node: SimulatedNode, epoch: int, sent: float, done: bool) -> None:
        super()._checked(node, epoch, sent, done)
        if node.failure_detector.epoch and node.id not in self.old:
            self._keep_voters(node)

    def _keep_voters(self, node: SimulatedNode) -> None:
        """What the controller does with the set, each time that it looks."""
        role, epoch = node.failure_detector.controller_authority, node.failure_detector.epoch
        if node.sending is not None and self.now - node.sent_at < RESEND_S:
            return
        wanted = self._wanted(node)
        if wanted == role.voters and len(role.in_force) == 1:
            return
        role.intend(wanted)
        if node.voters_version < 0:
            self._read_version(node)
        elif role.may_send(wanted):
            node.sending, node.sent_at = wanted, self.now
            self._send_voters(node, epoch, wanted)

    def _wanted(self, node: SimulatedNode) -> VoterSet:
        """Who is registered, knows the form and was heard; now and then somebody is left out."""
        if any(number in self.old and self.nodes[number].registered for number in self.nodes):
            return ZOOKEEPER_ALONE
        since = node.failure_detector.clock() - self.times.timeout
        heard = {
            number
            for number, other in self.nodes.items()
            if other.registered
            and node.failure_detector.controller_authority.was_acknowledged_by(number, since)
        }
        heard = self._whim(node, heard)
        if not heard:
            return node.failure_detector.controller_authority.voters
        return VoterSet(frozenset(heard), node.session)

    def _whim(self, node: SimulatedNode, heard: set[int]) -> set[int]:
        """Mostly some of them only, or those that were not heard, so that sets share little."""
        whim = random.Random(f"{int(self.now / self.faults.whims_s)} {node.id}")
        kind = whim.random()
        if kind < 0.3 or not heard:
            return heard
        if kind < 0.6:
            known = {number for number, other in self.nodes.items() if other.registered}
            heard = known - heard or known
        return set(whim.sample(sorted(heard), whim.randint(1, len(heard)))) if heard else heard

    def _send_voters(self, node: SimulatedNode, epoch: int, wanted: VoterSet) -> None:
        version = node.voters_version

        def change() -> bool:
            if self.controller != (node.id, epoch) or self.znode.version != version:
                return False
            self.znode = replace(self.znode, voters=wanted, version=version + 1)
            self.changes += 1
            return True

        def on_answer(done: bool) -> None:
            if node.failure_detector.epoch != epoch:
                return
            node.sending = None
            node.voters_version = version + 1 if done else -1
            if done:
                node.failure_detector.controller_authority.confirmed(wanted)

        self._ask(node, change, on_answer)

    def _read_version(self, node: SimulatedNode) -> None:
        epoch = node.failure_detector.epoch
        found: list[int] = []

        def on_answer(done: bool) -> None:
            if done and node.failure_detector.epoch == epoch:
                node.voters_version = found[0]

        self._ask(node, lambda: _noted(found, self.znode.version), on_answer)


def _noted(found: list[int], value: int) -> bool:
    found.append(value)
    return True
