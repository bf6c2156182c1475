"""Schedules that a draft of the second form lost: none overlaps, and each would without its rule.

Source: docs/spec/reliability.md §3.1 (d); docs/beacons.md, the table of schedules. Clocks agree
here; tests/liveness/test_voting_simulation.py lets them drift.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from barnabas.broker.liveness.controller_authority import ControllerAuthority
from barnabas.broker.liveness.voter import Voter
from barnabas.broker.liveness.voter_set import VoterSet
from barnabas.broker.settings.liveness_settings import BeaconTimes

from .broken_rules import BROKEN_RULES
from .simulated_nodes import Rules

TIMES = BeaconTimes()
T = TIMES.timeout
Z = 18.0
STEP = 0.05
OLD, NEW, LATER = 5, 6, 7


class Scene:
    """Five nodes, an old controller with epoch 5, and those that take over from it."""

    def __init__(self, parts: Rules, voters: Iterable[int], controller: int = 1) -> None:
        self.parts = parts
        self.now = 100.0
        self.overlaps = False
        self.epoch = OLD
        self.znode = VoterSet(frozenset(voters), Z)
        self.voters = {number: self.voter() for number in range(1, 6)}
        self._leases: dict[int, float] = {}
        self._controllers: list[tuple[int, ControllerAuthority]] = []
        self.now += 1
        self.old = self._elected(controller, OLD, Z)
        for _ in range(int(2 * Z / STEP)):
            self.round(self.old, {1, 2, 3})
            self.check(self.old)
            self.prove(1, 2, 3, 4, 5)
            self.step()
        assert self.old.is_settled
        assert not self.overlaps

    def voter(self) -> Voter:
        """A process that has registered just now and read the epoch."""
        voter = self.parts.voter(TIMES, lambda: self.now)
        voter.registered(1)
        voter.read(self.epoch, 1)
        voter.proved(self.now, Z, 1)
        return voter

    def prove(self, *numbers: int) -> None:
        """ZooKeeper answers writes of these nodes."""
        for number in numbers:
            self.voters[number].proved(self.now, Z, 1)

    def take_over(self, number: int, session: float = Z) -> ControllerAuthority:
        """One multi of this node replaces the controller."""
        self.epoch += 1
        return self._elected(number, self.epoch, session)

    def _elected(self, number: int, epoch: int, session: float) -> ControllerAuthority:
        role = self.parts.authority(number, TIMES, lambda: self.now)
        role.begin(epoch, self.znode, session)
        self._controllers.append((number, role))
        self._watch()
        return role

    def check(self, role: ControllerAuthority) -> None:
        """ZooKeeper is asked whether the role is still this one's."""
        if role.epoch == self.epoch:
            role.checked(self.now)
        self._watch()

    def round(self, role: ControllerAuthority, reached: Iterable[int]) -> None:
        """Beacons leave; those that are reached acknowledge if they may."""
        number = next(number for number, each in self._controllers if each is role)
        role.round_sent(self.now, self.voters[number].acknowledge(role.epoch))
        for voter in reached:
            self.vote(role, voter, self.voters[voter])
        self._watch()

    def vote(self, role: ControllerAuthority, number: int, voter: Voter) -> None:
        """One process, perhaps not the one that has the id now, hears a beacon."""
        is_final = voter.acknowledge(role.epoch)
        if is_final is not None:
            role.acknowledged(number, self.now, is_final=is_final)
        self._watch()

    def step(self, seconds: float = STEP) -> None:
        """Time passes."""
        self.now += seconds
        self._watch()

    def change(self, role: ControllerAuthority, voters: Iterable[int]) -> VoterSet:
        """The controller wants another set, and sends it as soon as it may."""
        wanted = VoterSet(frozenset(voters), Z)
        role.intend(wanted)
        for _ in range(20):
            if role.may_send(wanted):
                self.znode = wanted
                break
            self.step()
        return wanted

    def _watch(self) -> None:
        """A lease of each controller's own node lasts as long as what it may grant to others."""
        for _, role in self._controllers:
            lease = min(role.end_at, self.now + T)
            self._leases[role.epoch] = max(self._leases.get(role.epoch, 0.0), lease)
        newest = max((role.epoch for _, role in self._controllers if role.settle()), default=0)
        self.overlaps |= any(
            end > self.now for epoch, end in self._leases.items() if epoch < newest
        )


def leave_nothing_out(scene: Scene) -> None:
    """A successor that nobody follows, at once."""
    scene.take_over(3)


def follow_both(scene: Scene) -> None:
    """Schedule 1: after the new epoch, the old controller's beacon reaches the voter."""
    scene.step(T)
    new = scene.take_over(3)
    scene.round(new, {2})
    for _ in range(20):
        scene.step()
        scene.round(new, {2})
        scene.round(scene.old, {2})


def switch_at_once(scene: Scene) -> None:
    """An acknowledgement of the old epoch is followed by one of the new."""
    scene.round(scene.old, {2})
    new = scene.take_over(3)
    scene.round(new, {2})


def restart_inside_the_promise(scene: Scene) -> None:
    """Schedule 2: and what the former life has promised is not known to the next."""
    for _ in range(int(1.2 * T / STEP)):
        scene.step()
        scene.check(scene.old)
        scene.round(scene.old, {2})
    new = scene.take_over(3)
    scene.voters[2] = scene.voter()
    scene.step()
    scene.round(new, {2})


def restart_after_the_new_epoch(scene: Scene) -> None:
    """Schedule 2 again: the old beacon comes before anything was read from ZooKeeper."""
    scene.step(T)
    new = scene.take_over(3)
    scene.round(new, {2})
    scene.voters[2] = unread = scene.parts.voter(TIMES, lambda: scene.now)
    unread.registered(2)
    unread.proved(scene.now, Z, 2)
    scene.round(scene.old, {2})


def change_just_before(scene: Scene) -> None:
    """Schedule 3: what the old set granted is older than the new members' promises."""
    scene.round(scene.old, {2, 3})
    wanted = scene.change(scene.old, {1, 4, 5})
    if scene.znode == wanted:
        scene.old.confirmed(wanted)
        scene.step()
    new = scene.take_over(4)
    for _ in range(3):
        scene.round(new, {4, 5})
        scene.step()


def land_late(scene: Scene) -> None:
    """Schedule 4: the answer to a change is lost, and the old controller wants the old set."""
    before = scene.znode
    scene.round(scene.old, {2, 3, 4, 5})
    sent = scene.change(scene.old, {1, 4, 5})
    scene.old.intend(before)
    for _ in range(int(2 * T / STEP)):
        scene.step()
        scene.round(scene.old, {2, 3})
        scene.check(scene.old)
    assert scene.znode == sent
    new = scene.take_over(4)
    for _ in range(20):
        scene.round(new, {4, 5})
        scene.round(scene.old, {2, 3})
        scene.step()


def change_unsettled(scene: Scene) -> None:
    """Schedule 5: a part of the set follows the old controller, who is two terms away."""
    scene.check(scene.old)
    unsettled = scene.take_over(3)
    for _ in range(20):
        scene.round(scene.old, {2})
        scene.round(unsettled, {4, 5})
        scene.check(unsettled)
        scene.step()
    wanted = scene.change(unsettled, {3, 4, 5})
    if scene.znode == wanted:
        unsettled.confirmed(wanted)
    scene.round(scene.old, {2})
    scene.step(T + STEP)
    later = scene.take_over(4)
    for _ in range(20):
        scene.round(later, {4, 5})
        scene.round(scene.old, {2})
        scene.step()


def lose_one_of_two(scene: Scene) -> None:
    """Schedule 6: the old controller hears no voter and has its authority from ZooKeeper alone."""
    scene.step(T)
    scene.check(scene.old)
    new = scene.take_over(2)
    for _ in range(20):
        scene.round(new, ())
        scene.step()


def wait_for_another_session(scene: Scene) -> None:
    """Schedule 7: the successor's own session timeout is a third of the predecessor's."""
    new = scene.take_over(3, session=Z / 3)
    for _ in range(int(Z / STEP)):
        scene.round(scene.old, {2})
        scene.round(new, ())
        scene.step()
        scene.prove(1, 2)


def rule_from_outside(scene: Scene) -> None:
    """Schedule 8: the old controller, 1, is not listed in 2, 3 and 4; 3 follows it."""
    scene.step(T)
    scene.check(scene.old)
    new = scene.take_over(4)
    for _ in range(20):
        scene.round(new, {2})
        scene.round(scene.old, {3})
        scene.step()


def start_elsewhere(scene: Scene) -> None:
    """Schedule 9: another process has a voter's id, and the old one hears the old controller."""
    former = scene.voters[2]
    for _ in range(int(Z / STEP)):
        scene.step()
        scene.check(scene.old)
        scene.prove(1, 3, 4, 5)
        scene.round(scene.old, {3})
        scene.vote(scene.old, 2, former)
    new = scene.take_over(3)
    scene.voters[2] = scene.voter()
    for _ in range(20):
        scene.step()
        scene.round(new, {2})
        scene.round(scene.old, ())
        scene.vote(scene.old, 2, former)


def live_without_zookeeper(scene: Scene) -> None:
    """The old controller and its majority never hear of the successor, nor of ZooKeeper."""
    new = scene.take_over(3)
    for _ in range(int(1.2 * Z / STEP)):
        scene.round(scene.old, {2})
        scene.round(new, ())
        scene.step()
        scene.prove(1, 2)


Schedule = Callable[[Scene], None]
SCHEDULES: dict[str, tuple[Schedule, str, tuple[int, ...]]] = {
    "a successor begins at once": (leave_nothing_out, "no release", (1, 2, 3)),
    "old beacon after the new epoch": (follow_both, "lower epochs", (1, 2, 3)),
    "acknowledged just before": (switch_at_once, "no promise", (1, 2, 3)),
    "restarted inside the promise": (restart_inside_the_promise, "promises forgotten", (1, 2, 3)),
    "restarted after it": (restart_after_the_new_epoch, "promises forgotten", (1, 2, 3)),
    "changed just before": (change_just_before, "no joint majority", (1, 2, 3)),
    "change that lands late": (land_late, "unknown outcome forgotten", (1, 2, 3)),
    "changed while unsettled": (change_unsettled, "unsettled changes", (1, 2, 3)),
    "two voters, one dead": (lose_one_of_two, "no T with two voters", (1, 2)),
    "other session timeouts": (wait_for_another_session, "own session timeouts", (1, 2, 3)),
    "controller not listed": (rule_from_outside, "unlisted controller counts", (2, 3, 4)),
    "started elsewhere": (start_elsewhere, "votes without a session", (1, 2, 3)),
    "without ZooKeeper": (live_without_zookeeper, "no session bound", (1, 2, 3)),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_no_successor_is_settled_while_its_predecessor_may_grant(name: str) -> None:
    play, _, voters = SCHEDULES[name]
    scene = Scene(Rules(), voters)
    play(scene)
    assert not scene.overlaps


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_schedule_overlaps_where_its_rule_is_left_out(name: str) -> None:
    play, rule, voters = SCHEDULES[name]
    scene = Scene(BROKEN_RULES[rule], voters)
    play(scene)
    assert scene.overlaps


def test_every_rule_has_a_schedule_that_needs_it() -> None:
    assert {rule for _, rule, _ in SCHEDULES.values()} == BROKEN_RULES.keys()
