"""Metrics of leases, votes and a controller's authority: the terms are docs/beacons.md's.

Source: docs/beacons.md points 1, 11 and 12.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.broker.controller.controller import Controller
from barnabas.broker.liveness.controller_authority import ControllerAuthority
from barnabas.broker.liveness.liveness import Liveness
from barnabas.broker.liveness.voter_set import NEVER

from .exposition import family, single
from .process_families import rows


def liveness_families(liveness: Liveness, controller: Controller) -> Iterator[str]:
    """The lease of every node, the votes of those that send beacons, the controller's authority."""
    holds = int(liveness.lease.holds())
    meaning = "1 while this node may answer for what it coordinates."
    yield from single("barnabas_lease_held", "gauge", meaning, holds)
    if liveness.beacons is None:
        return
    voter = liveness.beacons.voter
    yield from family(
        "barnabas_votes_total",
        "counter",
        "Rounds of controllers that this node acknowledged, and those that it had to refuse.",
        [({"outcome": "given"}, voter.given), ({"outcome": "refused"}, voter.refused)],
    )
    yield from single(
        "barnabas_session_proofs_failed_total",
        "counter",
        "Writes by which this node did not succeed to prove its session.",
        liveness.failed_proofs,
    )
    role = liveness.beacons.failure_detector.controller_authority
    if role.epoch:
        yield from _authority(role, liveness.beacons.failure_detector.clock(), controller)


def _authority(role: ControllerAuthority, now: float, controller: Controller) -> Iterator[str]:
    """Only of the controller."""
    voters = role.voters
    left = max(0.0, role.end_at - now)
    yield from rows(
        "barnabas_authority",
        ("seconds", "gauge", "How long the controller is sure of its role; 0: not now.", left),
        ("settled", "gauge", "1 when all that predecessors granted is over.", int(role.settle())),
        ("voters", "gauge", "Nodes that decide; 0: ZooKeeper alone.", len(voters.voters)),
        ("voters_version", "gauge", "Version of /barnabas/voters.", controller.voters_version),
        ("losses_total", "counter", "How often authority ended by itself.", controller.losses),
    )
    sent = role.majority_sent
    if sent != NEVER:
        yield from single(
            "barnabas_authority_majority_age_seconds",
            "gauge",
            "How long ago the newest round was sent that a majority has acknowledged.",
            now - sent,
        )
