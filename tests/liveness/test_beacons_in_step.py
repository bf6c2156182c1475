"""Beacons in step with the controller's rounds: when they are sent, to whom, in which datagrams.

Source: docs/beacons.md, "In step".
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from barnabas.broker.liveness.beacon_sender import (
    IN_STEP_INTERVALS,
    AuthorityClaim,
    BeaconSender,
    stride,
)
from barnabas.broker.liveness.controller_authority import ControllerAuthority
from barnabas.broker.liveness.failure_detector import FailureDetector
from barnabas.broker.liveness.lease import TimedLease
from barnabas.broker.settings.liveness_settings import BeaconTimes
from barnabas.protocol.beacon import (
    TAKES_ACKNOWLEDGEMENTS,
    TAKES_BUNDLES,
    Acknowledgement,
    Beacon,
    Echo,
    Message,
)
from tests.harness.seeds import seeds
from tests.liveness.test_beacon_transport import BeaconingNodes, clock, until

TIMES = BeaconTimes()
INTERVAL, T = TIMES.interval, TIMES.timeout
NODE, CONTROLLER, OTHER = 1, 2, 3


@dataclass
class Sender:
    """One node's beacons, and whom each of them went to."""

    now: float = 100.0
    sent: list[int] = field(default_factory=list)
    sequence: int = 0

    def __post_init__(self) -> None:
        self.beacon_sender = BeaconSender(
            "c",
            NODE,
            TIMES,
            lambda: self.now,
            TimedLease(lambda: self.now),
            lambda receiver, _: self.sent.append(receiver),
            lambda: 7,
        )
        self.beacon_sender.begin_incarnation(10)

    def hear_round(self, epoch: int = 5, node: int = CONTROLLER) -> bool:
        """The controller's next round arrives; whether it is to be answered with beacons."""
        self.sequence += 1
        incarnation = TAKES_ACKNOWLEDGEMENTS | 1
        beacon = Beacon("c", node, 11, incarnation, self.sequence, 0, False, epoch, 400_000)
        return self.beacon_sender.receive_beacon(beacon)

    def send(self, claim: AuthorityClaim | None = None) -> list[int]:
        """Beacons of one round; who was sent one."""
        self.sent.clear()
        self.beacon_sender.send_beacons([CONTROLLER, OTHER], claim or AuthorityClaim())
        return list(self.sent)

    def due_in(self) -> float:
        return self.beacon_sender.due_in(is_controller=False)


@pytest.fixture
def sender() -> Sender:
    return Sender()


def test_each_round_of_the_controller_is_answered(sender: Sender) -> None:
    for _ in range(5):
        assert sender.hear_round()
        sender.send()
        sender.now += INTERVAL


def test_rounds_that_waited_while_the_node_was_paused_are_answered_once(sender: Sender) -> None:
    assert sender.hear_round()
    sender.send()
    sender.now += 10 * INTERVAL
    assert [sender.hear_round() and bool(sender.send()) for _ in range(10)] == [True] + 9 * [False]


def test_a_beacon_of_a_deposed_controller_or_of_another_node_is_not_answered(
    sender: Sender,
) -> None:
    assert sender.hear_round(epoch=6)
    sender.send()
    sender.now += INTERVAL
    assert not sender.hear_round(epoch=5, node=OTHER)
    assert not sender.hear_round(epoch=0, node=OTHER)


def test_a_node_in_step_sends_by_itself_when_a_round_does_not_come(sender: Sender) -> None:
    sender.send()
    assert sender.due_in() == pytest.approx(INTERVAL), "no controller was heard"
    sender.hear_round()
    sender.send()
    assert sender.due_in() == pytest.approx(1.5 * INTERVAL)
    sender.now += 1.5 * INTERVAL
    sender.send()
    sender.now += INTERVAL / 10
    assert sender.due_in() == pytest.approx(INTERVAL * 0.9), "the controller is missed"


def test_a_controller_keeps_its_own_time(sender: Sender) -> None:
    sender.hear_round()
    sender.send(AuthorityClaim(6, 1))
    assert sender.beacon_sender.due_in(is_controller=True) == pytest.approx(INTERVAL)


def test_nodes_that_are_not_controller_are_told_every_third_part_of_t(sender: Sender) -> None:
    receivers = []
    for _ in range(12):
        sender.hear_round()
        receivers.append(sender.send())
        sender.now += INTERVAL
    assert stride(TIMES) * INTERVAL <= T / 3
    assert receivers == 4 * [[CONTROLLER], [CONTROLLER], [CONTROLLER, OTHER]]


def test_all_are_told_as_long_as_no_controller_is_heard(sender: Sender) -> None:
    assert sender.send() == [CONTROLLER, OTHER]
    sender.hear_round()
    assert sender.send() == [CONTROLLER]
    sender.now += 2.1 * INTERVAL
    assert [sender.send() for _ in range(3)] == 3 * [[CONTROLLER, OTHER]]


def test_all_are_told_once_another_controller_was_elected(sender: Sender) -> None:
    sender.hear_round()
    assert sender.send() == [CONTROLLER]
    sender.beacon_sender.expect_controller()
    assert sender.send() == [CONTROLLER, OTHER]
    sender.hear_round(epoch=6, node=OTHER)
    sender.send()
    assert sender.send() == [OTHER]


def test_all_are_told_by_a_controller_and_by_a_node_that_leaves(sender: Sender) -> None:
    sender.hear_round()
    assert [sender.send(AuthorityClaim(6, 1)) for _ in range(3)] == 3 * [[CONTROLLER, OTHER]]
    sender.sent.clear()
    sender.beacon_sender.leave([CONTROLLER, OTHER])
    assert sender.sent == [CONTROLLER, OTHER]


def test_the_time_for_which_a_controller_cannot_fall_silent_ends_when_it_does(
    sender: Sender,
) -> None:
    sender.hear_round()
    assert sender.beacon_sender.silent_in() == pytest.approx(T)
    sender.now += sender.beacon_sender.silent_in() - 0.001
    assert not sender.beacon_sender.is_controller_silent()
    sender.now += 0.002
    assert sender.beacon_sender.is_controller_silent()
    assert sender.beacon_sender.silent_in() == 0


@pytest.mark.parametrize("seed", seeds(range(20)))
def test_no_controller_falls_silent_while_it_is_said_that_none_can(
    sender: Sender, seed: int
) -> None:
    rng, beacon_sender, epoch = random.Random(seed), sender.beacon_sender, 5
    not_before = sender.now + beacon_sender.silent_in()
    for _ in range(200):
        is_pause = rng.random() < 0.1
        sender.now += rng.uniform(0, 1.5 * T) if is_pause else rng.expovariate(1 / INTERVAL)
        assert sender.now >= not_before or not beacon_sender.is_controller_silent()
        if sender.now >= not_before:
            not_before = sender.now + beacon_sender.silent_in()
        what = rng.random()
        if what < 0.8:
            sender.hear_round(epoch)
            sender.send()
            assert sender.due_in() < IN_STEP_INTERVALS * INTERVAL + 1e-9
        elif what < 0.9:
            epoch += 1
            beacon_sender.expect_controller()
        else:
            beacon_sender.begin_incarnation(10)


@pytest.mark.parametrize(("is_controller", "missed"), [(True, 6), (False, 1)])
def test_beacons_are_missed_that_should_have_come(is_controller: bool, missed: int) -> None:
    detector = FailureDetector(
        "c",
        CONTROLLER,
        TIMES,
        lambda: 100.0,
        lambda *_: None,
        TimedLease(lambda: 100.0),
        ControllerAuthority(CONTROLLER, TIMES, lambda: 100.0),
        lambda: 7,
    )
    if is_controller:
        detector.begin(1)
    for sequence in (3, 4, 6, 12):  # of 9 and 12 a node that is no controller is told
        detector.take(Beacon("c", NODE, 11, 5, sequence, 0))
    assert detector.heard()[NODE][1] == missed


# -- over sockets --------------------------------------------------------------------------------


def recorded(nodes: BeaconingNodes, number: int) -> list[list[Message]]:
    """The datagrams that a node takes from now on, each as its messages."""
    found: list[list[Message]] = []
    codec = nodes.beacons[number]._codec
    decode_all = codec.decode_all

    def recording(datagram: bytes) -> list[Message]:
        messages = list(decode_all(datagram))
        found.append(messages)
        return messages

    codec.decode_all = recording  # type: ignore[method-assign]
    return found


def entitle(nodes: BeaconingNodes) -> None:
    """Let all of them vote, as if ZooKeeper had answered them."""
    for beacons in nodes.beacons:
        beacons.voter.registered(1)
        beacons.voter.read(0, 1)
        beacons.voter.proved(clock(), 60.0, 1)


def kinds(datagrams: list[list[Message]]) -> set[tuple[type[Message], ...]]:
    return {tuple(map(type, messages)) for messages in datagrams}


async def test_what_answers_a_round_comes_in_one_datagram() -> None:
    nodes = BeaconingNodes(3)
    entitle(nodes)
    async with nodes.running():
        nodes.beacons[0].failure_detector.begin(1)
        nodes.beacons[0].failure_detector.admit(1, 11)
        await until(lambda: nodes.beacons[0].failure_detector.is_heard(1, 11))
        await until(lambda: nodes.beacons[1].beacon_sender._controller == 0)
        datagrams, at_node = recorded(nodes, 0), recorded(nodes, 1)

        def is_answered() -> bool:
            # As often as a controller does: it is sure of itself for T, and echoes nobody else.
            nodes.beacons[0].failure_detector.checked(clock())
            is_one = (Acknowledgement, Beacon) in kinds(datagrams)
            return is_one and {(Beacon,), (Echo,)} <= kinds(at_node)

        await until(is_answered)
    assert kinds(at_node) == {(Beacon,), (Echo,)}


async def test_a_node_that_reads_no_bundles_is_sent_single_messages() -> None:
    nodes = BeaconingNodes(2)
    entitle(nodes)
    older = nodes.beacons[0].beacon_sender
    older.incarnation = lambda: TAKES_ACKNOWLEDGEMENTS | 5
    async with nodes.running():
        assert not older.incarnation_now & TAKES_BUNDLES
        nodes.beacons[0].failure_detector.begin(1)
        datagrams = recorded(nodes, 0)
        await until(lambda: {(Acknowledgement,), (Beacon,)} <= kinds(datagrams))
    assert kinds(datagrams) == {(Acknowledgement,), (Beacon,)}
