"""Longer bounds on what a development cluster waits for while it starts and stops.

The bounds of the console are those of somebody who sits before it. On two cores at a load of forty
the JVM of ZooKeeper alone may need more than its 30 s, though nothing is wrong.
"""

from __future__ import annotations

from types import ModuleType
from typing import Final

from barnabas.console.development import (
    cluster_operations,
    embedded_zookeeper,
    node,
    readiness_probe,
)

_BOUNDS: Final[tuple[tuple[ModuleType, str, float], ...]] = (
    (embedded_zookeeper, "_START_S", 240.0),
    (embedded_zookeeper, "_STOP_S", 20.0),
    (node, "_START_S", 240.0),
    (node, "_STOP_S", 120.0),
    (readiness_probe, "_COMPLETE_S", 240.0),
    (cluster_operations, "_WAIT_S", 120.0),
)


def be_patient() -> None:
    """For all clusters that this process starts from now on."""
    for module, name, seconds in _BOUNDS:
        assert isinstance(getattr(module, name), float), f"{module.__name__}.{name}"
        setattr(module, name, seconds)
