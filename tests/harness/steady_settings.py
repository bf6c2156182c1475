"""Settings of clusters that no test harms, so that nothing moves in them by itself.

A machine that is busy with other tests may keep a process from running for a second or two. By
default such a node is replaced after half a second of silence, and its session with ZooKeeper ends
after three: what it led and coordinated moves, as it must, and a test that asked in the middle of
it hears of that. Source: docs/beacons.md; docs/operations.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

STEADY: Final[Mapping[str, str]] = {
    "beacon.timeout.ms": "5000",
    "zookeeper.session.timeout.ms": "10000",
}
"""The longest session that the embedded ZooKeeper grants, twenty of its ticks."""
