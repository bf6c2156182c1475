"""Rounds become medians and ratios; medians become a table and a JSON document."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median


@dataclass(frozen=True, slots=True)
class Cell:
    """One way of loading a server."""

    kind: str
    connections: int
    in_flight: int

    def __str__(self) -> str:
        pipeline = f" x {self.in_flight} in flight" if self.in_flight > 1 else ""
        plural = "" if self.connections == 1 else "s"
        return f"{self.kind}, {self.connections} connection{plural}{pipeline}"


@dataclass(frozen=True, slots=True)
class Rate:
    """Answers per second of the server's CPU, and per second of the clock."""

    per_cpu_second: float
    per_second: float


@dataclass(slots=True)
class Measured:
    """All rounds of one cell, by server."""

    cell: Cell
    rounds: dict[str, list[Rate]] = field(default_factory=dict)

    def add(self, server: str, rate: Rate) -> None:
        """Count one more round."""
        self.rounds.setdefault(server, []).append(rate)

    def per_cpu_second(self, server: str) -> float:
        """The median of a server's rounds."""
        return median(rate.per_cpu_second for rate in self.rounds[server])

    def per_second(self, server: str) -> float:
        """The median of a server's rounds by the clock."""
        return median(rate.per_second for rate in self.rounds[server])

    def ratio(self, server: str, rival: str) -> float | None:
        """The median of the ratios round by round; None without a rival."""
        if server not in self.rounds or rival not in self.rounds:
            return None
        pairs = zip(self.rounds[server], self.rounds[rival], strict=True)
        return median(ours.per_cpu_second / theirs.per_cpu_second for ours, theirs in pairs)


def machine() -> str:
    """The machine in one line: numbers without it mean nothing."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return (
        f"{model}, {os.cpu_count()} cores, Linux {platform.release()}, "
        f"Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}"
    )


def table(cells: Sequence[Measured], servers: Sequence[str]) -> str:
    """Markdown, one row a cell: rates in thousands per CPU second, by the clock in brackets."""
    head = ["cell", *(f"{server}, k per CPU second (per second)" for server in servers)]
    if len(servers) > 1:
        head.append(f"{servers[0]} : {servers[1]}")
    rows = [head, ["---"] * len(head)]
    for measured in cells:
        row = [str(measured.cell)]
        row += [
            f"{measured.per_cpu_second(server) / 1e3:.1f} ({measured.per_second(server) / 1e3:.1f})"
            for server in servers
        ]
        if len(servers) > 1:
            row.append(f"{measured.ratio(servers[0], servers[1]):.2f}")
        rows.append(row)
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def document(cells: Sequence[Measured], servers: Sequence[str]) -> list[dict[str, object]]:
    """The same as plain data, every round included."""
    found: list[dict[str, object]] = []
    for measured in cells:
        entry: dict[str, object] = {
            "kind": measured.cell.kind,
            "connections": measured.cell.connections,
            "in_flight": measured.cell.in_flight,
        }
        for server in servers:
            entry[server] = {
                "per_cpu_second": round(measured.per_cpu_second(server)),
                "per_second": round(measured.per_second(server)),
                "rounds": [round(rate.per_cpu_second) for rate in measured.rounds[server]],
            }
        if len(servers) > 1:
            entry["ratio"] = measured.ratio(servers[0], servers[1])
        found.append(entry)
    return found
