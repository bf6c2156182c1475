"""What the small world of world.py is made of: who leads, what goes wrong, what a node believes."""

from __future__ import annotations

from dataclasses import dataclass, field

from barnabas.broker.liveness.lease import Lease, TimedLease
from barnabas.broker.liveness.pulse import Pulse
from barnabas.broker.liveness.vigil import Vigil


class StaleAnswer(AssertionError):  # noqa: N818 - says what happened
    """A node answered as leader after another had begun to lead."""


@dataclass(frozen=True, order=True)
class State:
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


@dataclass
class Node:
    """One node: what it believes, and its side of the beacons."""

    id: int
    rate: float
    offset: float
    pulse: Pulse
    vigil: Vigil
    timed: TimedLease
    lease: Lease
    belief: State = State(0, 0)
    told_by: int = 0
    """Epoch of the controller that told it so first."""
    frozen_until: float = 0.0
    registered: int = 0
    """Broker epoch; 0 while the session is over."""
    heard_by_zookeeper: float = 0.0
    suspected: set[int] = field(default_factory=set)
    resending: set[int] = field(default_factory=set)
    moving: tuple[int, State] | None = None
