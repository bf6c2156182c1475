"""Several nodes of one system under measurement: started side by side, ended together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from benchmarks.server_process import ServerProcess, pin

REPLICATED: Final[Mapping[str, str]] = {
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.commit.timeout.ms": "30000",
    "zookeeper.session.timeout.ms": "30000",
}
"""What either system is given where commits are to be on three nodes.

The times are long, so that a busy machine ends neither a commit nor a session.
"""

Make = Callable[[Path, str, int, Mapping[str, str]], ServerProcess]
"""One node from its directory, ZooKeeper's address, its id and its settings."""


class Nodes:
    """A system of ``count`` nodes on one ZooKeeper; use it in a ``with``."""

    def __init__(self, name: str, make: Make, count: int, directory: Path, zookeeper: str) -> None:
        self.name = name
        settings = REPLICATED if count > 1 else {}
        self._nodes: Sequence[ServerProcess] = [
            make(directory / f"node-{number}", zookeeper, number, settings)
            for number in range(1, count + 1)
        ]
        self._running = ExitStack()

    def __enter__(self) -> Self:
        """Start all; they accept connections then."""
        with ExitStack() as started:
            for node in self._nodes:
                started.callback(node.stop)
                node.launch()
            for node in self._nodes:
                node.wait_until_listening()
            self._running = started.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Stop all, the last one first."""
        self._running.close()

    @property
    def port(self) -> int:
        """Where to ask for the rest."""
        return self._nodes[0].port

    @property
    def ports(self) -> list[int]:
        """Where each node listens."""
        return [node.port for node in self._nodes]

    @property
    def pids(self) -> list[int]:
        """The processes whose CPU time counts."""
        return [node.pid for node in self._nodes]

    def pin(self, cores: Iterable[int]) -> None:
        """Bind every thread of every node to ``cores``."""
        bound = set(cores)
        for pid in self.pids:
            pin(pid, bound)
