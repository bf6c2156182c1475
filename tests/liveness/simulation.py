"""A small world that tries to break the argument of docs/beacons.md: one leadership, some nodes.

Clocks drift, datagrams are lost, late and doubled, links are cut, nodes freeze, sessions expire,
and controllers take over from each other. The shipped BeaconSender, FailureDetector and TimedLease
decide; what a controller does with their word is modelled here in a few lines.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable

from barnabas.broker.liveness.beacon_sender import BeaconSender
from barnabas.broker.liveness.failure_detector import FailureDetector
from barnabas.broker.liveness.lease import Lease, TimedLease, UnlimitedLease
from barnabas.broker.settings.liveness_settings import BeaconTimes
from barnabas.protocol.beacon import Acknowledgement, Echo, Message

from .simulated_nodes import Faults, Leadership, Rules, SimulatedNode, StaleAnswer

SESSION_S = 3.0


class LivenessSimulation:
    """``run`` plays a number of seconds; every answer of a node is judged on the spot."""

    def __init__(
        self,
        seed: int,
        faults: Faults,
        *,
        count: int = 4,
        with_leases: bool = True,
        parts: Rules | None = None,
    ) -> None:
        self.parts = parts or Rules()
        self.with_leases = with_leases
        self.random = random.Random(seed)
        self.faults = faults
        self.times = BeaconTimes()
        self.now = 0.0
        self.answers = 0
        self.newest_answered = Leadership(0, 0)
        self.moves = 0
        self.takeovers = 0
        self.state = Leadership(1, 1)
        self.controller = (0, 0)
        self.zxid = itertools.count(1)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._cut: set[frozenset[int]] = set()
        self.stalled_until = 0.0
        """ZooKeeper does nothing before."""
        self.nodes = {number: self._node(number) for number in range(1, count + 1)}
        for node in self.nodes.values():
            self._start(node)
            node.belief = self.state
        if faults.cuts:
            self._at(1.0, self._cut_something)
        if faults.pauses:
            self._at(1.5, self._freeze_something)
        self._at(0.5, self._sessions)
        self._at(2.0, self._move_something)

    def run(self, seconds: float) -> None:
        """Play; raises StaleAnswer."""
        while self._events and self._events[0][0] <= seconds:
            self.now, _, event = heapq.heappop(self._events)
            event()

    # -- the world ----------------------------------------------------------------------------

    def _start(self, node: SimulatedNode) -> None:
        self._register(node)
        self._repeat(node, self.times.interval / 2, self._beat_if_due)
        self._repeat(node, self.times.check_every, self._check)
        self._repeat(node, 0.02, self._answer)

    def _node(self, number: int) -> SimulatedNode:
        rate = 1 + self.random.uniform(-self.faults.drift, self.faults.drift)
        offset = self.random.uniform(0, 1e5)

        def clock() -> float:
            return offset + rate * self.now

        timed = TimedLease(clock)
        beacon_sender = BeaconSender(
            "c",
            number,
            self.times,
            clock,
            timed,
            lambda receiver, beacon: self._datagram(number, receiver, beacon),
            lambda: self.random.getrandbits(60),
        )
        failure_detector = FailureDetector(
            "c",
            number,
            self.times,
            clock,
            lambda receiver, echo: self._datagram(number, receiver, echo),
            timed,
            self.parts.authority(number, self.times, clock),
            lambda: beacon_sender.incarnation_now,
        )
        lease: Lease = timed if self.with_leases else UnlimitedLease()
        voter = self.parts.voter(self.times, clock)
        return SimulatedNode(
            number, rate, offset, beacon_sender, failure_detector, timed, lease, voter, SESSION_S
        )

    def _at(self, delay: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + delay, next(self._order), event))

    def _on(self, node: SimulatedNode, delay: float, event: Callable[[], None]) -> None:
        """Something happens to a node, or as soon as it goes on."""

        def happen() -> None:
            if node.is_dead:
                return
            if node.frozen_until > self.now:
                self._at(node.frozen_until - self.now, happen)
            else:
                event()

        self._at(delay, happen)

    def _repeat(
        self, node: SimulatedNode, every: float, act: Callable[[SimulatedNode], None]
    ) -> None:
        def once() -> None:
            act(node)
            self._on(node, every * self.random.uniform(0.9, 1.2), once)

        self._on(node, every * self.random.random(), once)

    def _is_cut(self, one: int, other: int) -> bool:
        return frozenset((one, other)) in self._cut

    def _delay(self) -> float:
        return self.random.uniform(0.0002, 0.004)

    def _cut_something(self) -> None:
        """Cut a pair, a node from all others, or a node from ZooKeeper (0); heal it later."""
        victim = self.random.choice(list(self.nodes))
        kind = self.random.random()
        others = [0] if kind < 0.3 else [number for number in self.nodes if number != victim]
        if kind > 0.8:
            others.append(0)
        elif kind > 0.5 and others:
            others = [self.random.choice(others)]
        links = {frozenset((victim, other)) for other in others}
        self._cut |= links
        self._at(self.random.uniform(0.1, 6.0), lambda: self._cut.difference_update(links))
        self._at(self.random.uniform(1.0, 6.0), self._cut_something)

    def _freeze_something(self) -> None:
        node = self.random.choice(list(self.nodes.values()))
        node.frozen_until = self.now + self.random.uniform(0.05, 10 * self.times.timeout)
        self._at(self.random.uniform(1.0, 6.0), self._freeze_something)

    def _datagram(self, sender: int, receiver: int, message: Message) -> None:
        copies = 2 if self.random.random() < self.faults.doubled else 1
        for _ in range(copies):
            if self._is_cut(sender, receiver) or self.random.random() < self.faults.loss:
                continue
            is_late = self.random.random() < self.faults.late
            delay = self.random.uniform(0.05, 1.5) if is_late else self._delay()
            for node in self._processes(receiver):
                self._on(node, delay, lambda node=node: self._received(node, message))  # type: ignore[misc]

    def _processes(self, number: int) -> list[SimulatedNode]:
        """All that have this node's id now."""
        return [self.nodes[number]]

    def _received(self, node: SimulatedNode, message: Message) -> None:
        if isinstance(message, Echo):
            node.beacon_sender.receive_echo(message)
        elif isinstance(message, Acknowledgement):
            node.failure_detector.receive_acknowledgement(message)
        elif node.failure_detector.take(message):
            is_round = node.beacon_sender.receive_beacon(message)
            if is_round and not node.failure_detector.epoch:
                self._beat(node)  # in step with the controller

    # -- ZooKeeper ----------------------------------------------------------------------------

    def _ask(
        self, node: SimulatedNode, change: Callable[[], bool], on_answer: Callable[[bool], None]
    ) -> None:
        """One atomic operation; the answer may be lost, the operation may not arrive."""
        session, sent = node.registered, node.failure_detector.clock()

        def arrive() -> None:
            if self.now < self.stalled_until:
                self._at(self.stalled_until - self.now + self._delay(), arrive)
                return
            if self._is_cut_off(node):
                return
            is_alive = bool(session) and node.registered == session
            if is_alive:
                node.heard_by_zookeeper = self.now
            done = is_alive and change()
            if not self._is_cut_off(node):
                self._on(node, self._zookeeper_delay(), lambda: answered(is_alive, done))

        def answered(is_alive: bool, done: bool) -> None:
            if is_alive:
                node.voter.proved(sent, node.session, session)
            on_answer(done)

        self._at(self._zookeeper_delay(), arrive)

    def _is_cut_off(self, node: SimulatedNode) -> bool:
        """From ZooKeeper."""
        return node.is_lost_to_zookeeper or self._is_cut(node.id, 0)

    def _zookeeper_delay(self) -> float:
        return self._delay()

    def _register(self, node: SimulatedNode) -> None:
        node.timed.drop()
        node.failure_detector.end()
        node.registered = next(self.zxid)
        node.heard_by_zookeeper = self.now
        node.beacon_sender.begin_incarnation(node.registered)
        node.voter.registered(node.registered)

    def _sessions(self) -> None:
        """Expire the sessions of silent nodes, and let those come back that can."""
        self._at(0.1, self._sessions)
        if self.now < self.stalled_until:
            return
        for node in list(self.nodes.values()):
            is_silent = self.now - node.heard_by_zookeeper > node.session
            if node.registered and is_silent:
                node.registered = 0
                if self.controller[0] == node.id:
                    self.controller = (0, self.controller[1])
            elif not (node.registered or self._is_cut_off(node) or self._is_idle(node)):
                self._register(node)

    def _is_idle(self, node: SimulatedNode) -> bool:
        return node.is_dead or node.frozen_until > self.now

    # -- what nodes do ------------------------------------------------------------------------

    def _beat(self, node: SimulatedNode) -> None:
        others = [number for number in self.nodes if number != node.id]
        node.beacon_sender.send_beacons(others, node.failure_detector.authority_claim())

    def _beat_if_due(self, node: SimulatedNode) -> None:
        is_controller = bool(node.failure_detector.epoch)
        if node.beacon_sender.due_in(is_controller=is_controller) < self.times.interval / 4:
            self._beat(node)

    def _answer(self, node: SimulatedNode) -> None:
        if node.belief.leader != node.id or not node.lease.holds():
            return
        if not node.lease.is_settled(node.told_by):
            return
        self.answers += 1
        if node.belief < self.newest_answered:
            raise StaleAnswer(f"{node.id} answers as of {node.belief} after {self.newest_answered}")
        self.newest_answered = node.belief

    def _check(self, node: SimulatedNode) -> None:
        """A controller makes sure of its role and judges; the others mind its silence."""
        epoch = node.failure_detector.epoch
        if not epoch:
            if self.controller[0] == 0 or node.beacon_sender.is_controller_silent():
                self._campaign(node)
            else:
                self._ask(node, lambda: True, lambda done: None)
            return
        sent = node.failure_detector.clock()
        found: list[Leadership] = []

        def change() -> bool:
            found.append(self.state)
            return self.controller == (node.id, epoch)

        def on_answer(done: bool) -> None:
            if done and node.failure_detector.epoch == epoch:
                node.known = max(node.known, *found)
            self._checked(node, epoch, sent, done)

        self._ask(node, change, on_answer)

    def _campaign(self, node: SimulatedNode) -> None:
        seen = self.controller
        elected = (node.id, seen[1] + 1)

        def change() -> bool:
            if self.controller != seen:
                return False
            self.controller = elected
            self.takeovers += 1
            node.known = self.state
            return True

        def on_answer(done: bool) -> None:
            node.beacon_sender.expect_controller()
            if done and self.controller == elected:
                node.failure_detector.begin(elected[1])
                self._take_over(node)

        self._ask(node, change, on_answer)

    def _take_over(self, node: SimulatedNode) -> None:
        node.suspected.clear()
        node.moving = None
        node.seen = {other.id: other.registered for other in self.nodes.values()}
        self._tell_everybody(node, node.known)

    def _checked(self, node: SimulatedNode, epoch: int, sent: float, done: bool) -> None:
        if not done or node.failure_detector.epoch != epoch:
            node.failure_detector.end()
            return
        failure_detector = node.failure_detector
        failure_detector.checked(sent)
        node.beacon_sender.expect_controller()
        registered = self._seen_by(node)
        live = {number: known for number, known in registered.items() if known}
        live.pop(node.id, None)
        for number in failure_detector.silent(live):
            node.suspected.add(number)
            failure_detector.stop_echoing(number)
        for number in list(node.suspected):
            if live.get(number) and failure_detector.is_heard(number, live[number]):
                node.suspected.discard(number)
        for number in live:
            if number not in node.suspected and not failure_detector.is_admitted(number):
                self._tell(node, number, node.known)
        if not failure_detector.is_admitted(node.id):
            self._tell(node, node.id, node.known)
        self._judge_leader(node, live)

    def _seen_by(self, node: SimulatedNode) -> dict[int, int]:
        """Registrations; one that was replaced counts as gone until its old lease is over.

        The process that held it may live on elsewhere, and not know of the one that took its id.
        """
        view = {}
        for number, other in self.nodes.items():
            known = node.seen.get(number, other.registered)
            if known and known != other.registered:
                node.failure_detector.stop_echoing(number)
            if known and known != other.registered and self._may_answer(node, number, known):
                view[number] = 0
            else:
                view[number] = node.seen[number] = other.registered
                if not other.registered:
                    node.failure_detector.stop_echoing(number)
        return view

    @staticmethod
    def _may_answer(node: SimulatedNode, number: int, known: int) -> bool:
        failure_detector = node.failure_detector
        return not failure_detector.has_left(number, known) and failure_detector.may_hold_lease(
            number
        )

    def _judge_leader(self, node: SimulatedNode, live: dict[int, int]) -> None:
        leader = node.known.leader
        if node.moving is not None or leader == node.id:
            return
        is_gone = leader not in live
        if is_gone and node.failure_detector.may_hold_lease(leader):
            return
        if not is_gone and leader not in node.suspected:
            return
        candidates = [node.id, *(number for number in live if number not in node.suspected)]
        self._elect(node, self.random.choice([one for one in candidates if one != leader]))

    def _elect(self, node: SimulatedNode, leader: int) -> None:
        epoch, before = node.failure_detector.epoch, node.known
        after = Leadership(before.leader_epoch + 1, leader)

        def change() -> bool:
            if self.controller != (node.id, epoch) or self.state != before:
                return False
            self.state = after
            self.moves += 1
            return True

        def on_answer(done: bool) -> None:
            if done and node.failure_detector.epoch == epoch:
                node.known = after
                self._tell_everybody(node, after)

        self._ask(node, change, on_answer)

    # -- controller to nodes ------------------------------------------------------------------

    def _tell_everybody(self, node: SimulatedNode, state: Leadership) -> None:
        for number in self.nodes:
            if number not in node.suspected:
                self._tell(node, number, state)

    def _tell(self, node: SimulatedNode, receiver: int, state: Leadership) -> None:
        """The state, over a connection that a cut delays; the answer admits the receiver."""
        if receiver in node.resending or _is_held(node, receiver, state):
            return
        node.resending.add(receiver)
        epoch, other = node.failure_detector.epoch, self.nodes[receiver]
        broker_epoch = node.seen.get(receiver, 0)

        def deliver() -> None:
            if self._is_cut(node.id, receiver) or other.registered != broker_epoch:
                node.resending.discard(receiver)
                return
            if epoch < other.obeys:
                node.resending.discard(receiver)
                return
            other.obeys = epoch
            if state > other.belief:
                other.belief, other.told_by = state, epoch
            self._on(node, self._delay(), acknowledged)

        def acknowledged() -> None:
            self._acknowledged(node, receiver, state, epoch, broker_epoch)

        self._on(other, self._delay(), deliver)

    def _acknowledged(
        self, node: SimulatedNode, receiver: int, state: Leadership, epoch: int, broker_epoch: int
    ) -> None:
        node.resending.discard(receiver)
        is_current = node.failure_detector.epoch == epoch
        is_current &= self.nodes[receiver].registered == broker_epoch
        if not is_current or receiver in node.suspected:
            return
        if node.moving is not None and node.moving[0] == receiver and state < node.moving[1]:
            return
        if state < node.known:
            self._tell(node, receiver, node.known)
            return
        node.failure_detector.admit(receiver, broker_epoch)
        if node.moving is not None and node.moving[0] == receiver and node.moving[1] <= state:
            node.moving = None
            self._tell_everybody(node, node.known)

    def _move_something(self) -> None:
        """A planned move: the old leader is told first, the new one on its word or after T."""
        node = self.nodes.get(self.controller[0])
        self._at(self.random.uniform(1.0, 4.0), self._move_something)
        if (
            node is None
            or not node.failure_detector.epoch
            or node.moving
            or node.frozen_until > self.now
        ):
            return
        old = node.known.leader
        choices = [number for number in self.nodes if number not in node.suspected | {old}]
        if not choices or self.controller != (node.id, node.failure_detector.epoch):
            return
        epoch, before = node.failure_detector.epoch, node.known
        after = Leadership(before.leader_epoch + 1, self.random.choice(choices))
        node.moving = (old, after)
        node.failure_detector.stop_echoing(old)

        def change() -> bool:
            if self.controller != (node.id, epoch) or self.state != before:
                return False
            self.state = after
            self.moves += 1
            return True

        def on_answer(done: bool) -> None:
            if not done or node.failure_detector.epoch != epoch:
                node.moving = None
                return
            node.known = after
            node.resending.discard(old)
            self._tell(node, old, after)
            self._wait_for(node, old, after)

        self._ask(node, change, on_answer)

    def _wait_for(self, node: SimulatedNode, old: int, after: Leadership) -> None:
        """Without an answer the new leader is told once the old one's lease is surely over."""
        if node.moving != (old, after):
            return
        if node.failure_detector.epoch and node.failure_detector.may_hold_lease(old):
            self._on(node, 0.05, lambda: self._wait_for(node, old, after))
            return
        node.moving = None
        if node.failure_detector.epoch:
            self._tell_everybody(node, node.known)


def _is_held(node: SimulatedNode, receiver: int, state: Leadership) -> bool:
    """The receiver is not to hear yet that it leads: the old leader has not answered."""
    if node.moving is None:
        return False
    after = node.moving[1]
    return receiver == after.leader and state >= after
