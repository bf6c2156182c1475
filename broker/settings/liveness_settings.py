"""How often nodes say that they live, how long silence may last, and whether leases bind.

Source: docs/spec/reliability.md §3.1; docs/spec/cluster.md §5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from barnabas.protocol.settings import setting

DRIFT: Final = 0.1
"""Share of a time taken off a lease: clocks may drift against each other by less than this."""

PROOFS_PER_SESSION: Final = 18
"""How often a session timeout the session is proved; a stall may last 0.9 of it, less this."""
PROOF_INTERVAL_S_MIN: Final = 0.5
"""But no more often, where sessions are short: each proof is a write."""
PROOFS_PER_SESSION_MIN: Final = 6
"""Proofs a session timeout, however short."""


def proof_interval_s(session_s: float) -> float:
    """From sending one proof to sending the next, while ZooKeeper answers sooner than that."""
    return min(
        max(session_s / PROOFS_PER_SESSION, PROOF_INTERVAL_S_MIN),
        session_s / PROOFS_PER_SESSION_MIN,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LivenessSettings:
    """What a node does to be known as living, and until when it answers unheard."""

    beacon_enable: bool | None = setting(
        "beacon.enable", None, "datagrams between nodes; unset: where there is a cluster.secret"
    )
    beacon_interval_ms: int = setting("beacon.interval.ms", 50, "between two beacons", least=5)
    beacon_timeout_ms: int = setting(
        "beacon.timeout.ms", 500, "a node silent for so long is replaced", least=50
    )
    offsets_read_lease_ms: int | None = setting(
        "offsets.read.lease.ms",
        None,
        "0: offsets are answered without a lease, as Kafka does; they may be stale",
        least=0,
        most=0,
    )

    @property
    def times(self) -> BeaconTimes:
        """The same in seconds."""
        return BeaconTimes(self.beacon_interval_ms / 1000, self.beacon_timeout_ms / 1000)


@dataclass(frozen=True, slots=True)
class BeaconTimes:
    """Seconds. ``timeout`` is the T of the argument in docs/beacons.md."""

    interval: float = 0.05
    timeout: float = 0.5

    @property
    def margin(self) -> float:
        """What a node takes off its lease so that it ends before anybody acts on its silence."""
        return self.timeout * DRIFT + self.interval

    @property
    def check_every(self) -> float:
        """How often the controller makes sure of its authority in ZooKeeper."""
        return self.timeout / 8
