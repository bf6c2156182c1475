"""What transactional copy jobs and readers of committed records did, as a checker needs it; pure.

A job reads records of source partitions, writes each into a target partition and commits its
group's offsets, all in one transaction. A record carries where it comes from first (its origin) and
which transaction wrote it last (its writer), so that nothing has to be guessed: a target partition
is a list to which transactions append, as in Elle's list-append workload, and a group's offset of a
source partition is the length of the list of what was copied.
Source: docs/spec/reliability.md §1.1; Kingsbury and Alvaro, Elle (VLDB 2020).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

Partition = tuple[str, int]
"""Topic and number."""


class Outcome(Enum):
    """What a client knows of its transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    """Whoever ran it was killed, or was never told."""


class Row(NamedTuple):
    """A record in a partition."""

    offset: int
    origin: str
    """Unique among all that was ever put into the first topic; a copy keeps it."""
    writer: str
    """The name of the transaction; empty for what was written without one."""


class Copied(NamedTuple):
    """One record that a transaction read and wrote again."""

    source: Partition
    row: Row
    """As it was read."""
    target: Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """One transaction of a job. Times are seconds of one clock."""

    name: str
    """Unique; the writer of its rows."""
    producer: str
    """The transactional id."""
    instance: int
    """Counts the producers with this id in the order of their starts.

    Not that of their epochs: one that was frozen while it began may ask again behind a later one.
    """
    asked: float
    """When this instance asked for its epoch, which fences whoever had begun; or earlier."""
    initialised: float
    """When this instance was told that it may begin."""
    ending: float
    """When it asked for the end."""
    outcome: Outcome
    copies: Sequence[Copied] = ()
    positions: Mapping[Partition, int] = field(default_factory=dict)
    """Where its group told it to begin; source partitions that it went on with are not in it."""
    offsets: Mapping[Partition, int] = field(default_factory=dict)
    """What it sent as its group's offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A reader of committed records got from ``start`` to ``end`` of a partition."""

    reader: str
    partition: Partition
    start: int
    end: int
    rows: Sequence[Row]
    last_stable: int | None = None
    """The last stable offset that it was told, if it was."""
    high_watermark: int = 0
    """What it was told then or later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetReading:
    """Somebody was told a group's stable offset of a source partition."""

    reader: str
    partition: Partition
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalLog:
    """One partition when everything is at rest."""

    committed: Sequence[Row]
    everything: Sequence[Row]
    """With what was aborted; without markers."""
    last_stable: int
    end: int


@dataclass(slots=True)
class History:
    """All of it."""

    transactions: list[Transaction] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    offset_readings: list[OffsetReading] = field(default_factory=list)
    logs: dict[Partition, FinalLog] = field(default_factory=dict)
    """Of sources and targets."""
    offsets: dict[Partition, int] = field(default_factory=dict)
    """The group's offset of each source partition, at the end; left out where there is none."""
