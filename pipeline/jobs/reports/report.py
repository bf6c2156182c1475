"""What a job found: figures, tables and plots, as JSON for programs and a page for people.

Source: docs/spec/pipeline.md §4 (``--report``, exit codes, deterministic order).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

CLEAN: Final = 0
FINDINGS: Final = 1
USAGE: Final = 2
FAILED: Final = 3
INTERRUPTED: Final = 130
"""How a job ends: the exit codes of every face that is a process."""

Cell = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under headings; ``total`` counts those that were not kept as well."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    total: int


class Point(NamedTuple):
    """A value at a time, ms since 1970; None breaks the line."""

    time_ms: int
    value: float | None


@dataclass(frozen=True, slots=True)
class Lines:
    """Values over time, one line a name."""

    title: str
    unit: str
    series: Mapping[str, Sequence[Point]]


class TimelineSpan(NamedTuple):
    """What was said of a stretch of time, from its first millisecond to before its last."""

    start_ms: int
    end_ms: int
    label: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """One bar of spans a name."""

    title: str
    rows: Mapping[str, Sequence[TimelineSpan]]


@dataclass(frozen=True, slots=True)
class Bars:
    """One value a name, the largest first."""

    title: str
    unit: str
    values: Mapping[str, float]


Chart = Lines | Timeline | Bars


@dataclass(slots=True, kw_only=True)
class Report:
    """The outcome of one run. A job fills it; who called it writes it."""

    job: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    started_ms: int = 0
    seconds: float = 0.0
    figures: dict[str, Cell] = field(default_factory=dict)
    """Counts and sums, in the order in which they are to be read."""
    findings: int = 0
    """What somebody should look at; anything but 0 makes the exit code 1."""
    notes: list[str] = field(default_factory=list)
    """What the reader must know to read the rest rightly."""
    tables: list[Table] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 when all is well, 1 when there is something to look at."""
        return FINDINGS if self.findings else CLEAN


def as_json(report: Report) -> dict[str, Any]:
    """The whole report for programs; a chart carries its kind."""
    found = asdict(report)
    found["charts"] = [
        {"kind": type(chart).__name__.lower(), **asdict(chart)} for chart in report.charts
    ]
    return found


def write_json(report: Report, path: Path) -> None:
    """Write it under its name at once, or not at all."""
    replace_file(path, json.dumps(as_json(report), indent=1, default=str) + "\n")


def replace_file(path: Path, text: str) -> None:
    """Write durably beside ``path`` and rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    handle = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
