"""Start and stop of development clusters, bounded for a machine full of other tests.

A developer who waits in front of a terminal is told after half a minute that ZooKeeper or a node
does not come up. Beside other tests a JVM or a node may well take longer, and nothing is wrong.
"""

from __future__ import annotations

from types import ModuleType
from typing import Final

from barnabas.console.development import embedded_zookeeper, node, readiness_probe

START_S: Final = 240.0
STOP_S: Final = 120.0
_BOUNDS: Final[tuple[tuple[ModuleType, str, float], ...]] = (
    (embedded_zookeeper, "_START_S", START_S),
    (node, "_START_S", START_S),
    (node, "_STOP_S", STOP_S),
    (readiness_probe, "_COMPLETE_S", START_S),
)


def be_patient() -> None:
    """Have this process wait so long for what it starts and stops."""
    for module, name, bound_s in _BOUNDS:
        assert hasattr(module, name), f"{module.__name__} has no {name} any more"
        setattr(module, name, bound_s)
