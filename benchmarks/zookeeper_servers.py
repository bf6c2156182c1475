"""ZooKeeper as it is run for others: one server or three, stalled, restarted, killed.

Source: ZooKeeper's administrator's guide, clustered setup; docs/spec/reliability.md §4.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper, four_letter_word
from barnabas.console.development.ports import LOOPBACK, free_ports

TICK_MS: Final = 1_000
"""Sessions last from two ticks to twenty: Kafka's 18 s fit."""


class EnsembleServer(EmbeddedZooKeeper):
    """One of several servers; it serves as soon as most of them run."""

    def __init__(self, number: int, port: int, tick_ms: int, members: Sequence[str]) -> None:
        """``number`` counts from 1; ``members`` are the lines that all of them share."""
        super().__init__(tick_ms=tick_ms, port=port)
        self._number = number
        self._members = members

    def _launch(self, *, with_log: bool = False) -> None:
        (self._directory() / "myid").write_text(f"{self._number}\n")
        super()._launch(with_log=with_log)

    def _configuration(self) -> str:
        return super()._configuration() + "\n".join(("initLimit=10", "syncLimit=5", *self._members))


class ZooKeepers:
    """The servers of one ZooKeeper, in a ``with``; blocking.

    ``data`` is where a single server keeps its files, fsynced; without it they are temporary.
    """

    def __init__(self, count: int = 1, tick_ms: int = TICK_MS, data: Path | None = None) -> None:
        assert count == 1 or data is None, "several servers keep their files by themselves"
        self.servers: Sequence[EmbeddedZooKeeper]
        if count == 1:
            self.servers = [EmbeddedZooKeeper(data, tick_ms)]
            return
        clients, peers, votes = (free_ports(count) for _ in range(3))
        members = [
            f"server.{number}={LOOPBACK}:{peer}:{vote}"
            for number, (peer, vote) in enumerate(zip(peers, votes, strict=True), 1)
        ]
        self.servers = [
            EnsembleServer(number, port, tick_ms, members) for number, port in enumerate(clients, 1)
        ]

    @property
    def hosts(self) -> str:
        """The connection string."""
        return ",".join(server.hosts for server in self.servers)

    def __enter__(self) -> Self:
        """Start all; return when all serve."""
        try:
            for server in self.servers:
                server.spawn()
            for server in self.servers:
                server.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop all."""
        self.stop()

    def stop(self) -> None:
        """End all of them."""
        for server in self.servers:
            server.stop()

    def pause(self) -> None:
        """Freeze all: they keep their connections and answer nothing."""
        for server in self.servers:
            server.pause()

    def resume(self) -> None:
        """Let all go on."""
        for server in self.servers:
            server.resume()

    def restart(self) -> None:
        """Stop each in order and start it again, one after the other; return when it serves."""
        for server in self.servers:
            server.restart()

    def one(self, *, leads: bool) -> EmbeddedZooKeeper | None:
        """The leader of several servers, or the first that follows; None while it is not known."""
        mode = "leader" if leads else "follower"
        return next((server for server in self.servers if _mode(server) == mode), None)


def _mode(server: EmbeddedZooKeeper) -> str:
    said = four_letter_word(server.port, b"srvr")
    return said.partition("Mode: ")[2].partition("\n")[0]
