"""Three times what nodes can do, of every kind of request: a small version of benchmarks/overload.

Error codes and losses are looked at, never times. T of the leases is long, for a busy machine.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from benchmarks import overload

SETTINGS = {**overload.REPLICATED, "beacon.timeout.ms": "5000"}
SECONDS = 0.5
CONNECTIONS = 300
NODES = 3


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[overload.System]:
    """Three nodes with beacons and metrics, records to fetch, offsets of 64 groups."""
    directory = tmp_path_factory.mktemp("overload")
    with (
        EmbeddedZooKeeper(directory / "zookeeper") as zookeeper,
        overload.barnabas(NODES, directory, zookeeper.hosts, SETTINGS) as running,
    ):
        running.prepare()
        overload.load(running, "produce", 0.2, 0.0)
        yield running


@pytest.mark.parametrize("kind", overload.SHAPES)
def test_overloaded_nodes_refuse_and_lose_nothing(system: overload.System, kind: str) -> None:
    shape = (CONNECTIONS, 1) if kind == "connections" else None
    found = overload.phase(system, kind, SECONDS, shape=shape)
    assert found.load["answers"] > 0
    assert not found.refused
    assert not found.lost
    assert (found.load["lost"], found.load["unanswered"]) == (0, 0)
    # ZooKeeper is asked for authority once in T where voters keep it up, and so not in each phase.
    assert found.duties.keys() >= {"loop", "beacon_echo"}
    assert found.is_fine
