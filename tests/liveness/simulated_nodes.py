"""What simulation.py is made of: who leads, what goes wrong, what a node believes."""

from __future__ import annotations

from dataclasses import dataclass, field

from barnabas.broker.liveness.beacon_sender import BeaconSender
from barnabas.broker.liveness.controller_authority import ControllerAuthority
from barnabas.broker.liveness.failure_detector import FailureDetector
from barnabas.broker.liveness.lease import Lease, TimedLease
from barnabas.broker.liveness.voter import Voter
from barnabas.broker.liveness.voter_set import VoterSet


class StaleAnswer(AssertionError):  # noqa: N818 - says what happened
    """A node answered as leader after another had begun to lead."""


@dataclass(frozen=True, order=True)
class Leadership:
    """Who leads, as a controller tells it; greater is newer."""

    leader_epoch: int
    leader: int


@dataclass
class Faults:
    """What the world does to its nodes, and how often."""

    drift: float = 0.01
    loss: float = 0.1
    doubled: float = 0.05
    late: float = 0.05
    cuts: bool = True
    pauses: bool = True
    stalls: bool = False
    """ZooKeeper answers nobody for a while, or everybody late."""
    restarts: bool = False
    """Processes end and start again, some elsewhere while the old one lives on."""
    coups: float = 0.0
    """How often, of all looks at it, a controller is taken over for no reason."""
    whims_s: float = 2.0
    """For so long a controller wants the same voters."""


@dataclass(frozen=True)
class Rules:
    """What decides; tests put something broken in its place to see that it is missed."""

    voter: type[Voter] = Voter
    authority: type[ControllerAuthority] = ControllerAuthority


@dataclass
class SimulatedNode:
    """One node: what it believes, and its side of the beacons."""

    id: int
    rate: float
    offset: float
    beacon_sender: BeaconSender
    failure_detector: FailureDetector
    timed: TimedLease
    lease: Lease
    voter: Voter
    session: float = 3.0
    """Its own session timeout."""
    is_dead: bool = False
    is_lost_to_zookeeper: bool = False
    """Its machine reaches everybody but ZooKeeper, for ever."""
    voters_version: int = -1
    """Of the znode, as this controller knows it; -1 when it does not."""
    sending: VoterSet | None = None
    """A change of the voters whose outcome this controller does not know."""
    sent_at: float = 0.0
    known: Leadership = Leadership(0, 0)
    """As controller it has read or written this in ZooKeeper."""
    obeys: int = 0
    """The highest controller epoch that it was told anything in."""
    belief: Leadership = Leadership(0, 0)
    told_by: int = 0
    """Epoch of the controller that told it so first."""
    frozen_until: float = 0.0
    registered: int = 0
    """Broker epoch; 0 while the session is over."""
    heard_by_zookeeper: float = 0.0
    seen: dict[int, int] = field(default_factory=dict)
    """Registrations as this controller saw them last."""
    suspected: set[int] = field(default_factory=set)
    resending: set[int] = field(default_factory=set)
    moving: tuple[int, Leadership] | None = None
