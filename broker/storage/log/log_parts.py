"""What a log is given, what it asks of its keeper and what it answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from barnabas.broker.storage.files import StorageError
from barnabas.broker.storage.leader_epochs import LeaderEpochs
from barnabas.broker.storage.producers.producer_snapshots import ProducerSnapshots
from barnabas.broker.storage.producers.producer_state import Producers
from barnabas.broker.storage.segment.segment import Segment

if TYPE_CHECKING:
    from .stored_log import StoredLog


@dataclass(slots=True)
class Appended:
    """What became of a batch."""

    base_offset: int
    last_offset: int
    timestamp: int
    """The broker's time when the topic stamps with it, else -1."""
    is_duplicate: bool
    """The batch had been appended before, at these offsets: nothing was written."""
    log_start_offset: int


class LogOwner(Protocol):
    """What a log asks of whoever keeps it; all calls come on the loop."""

    def schedule_flush(self, log: StoredLog) -> None:
        """Have ``flush`` called soon; often said again before that has happened."""

    def repair(self, log: StoredLog, segment: Segment) -> None:
        """Make the indexes of a segment again; often said again before that has happened."""

    def listed_recovery_point(self, log: StoredLog) -> int:
        """The greatest recovery point of this log that a start may find written down."""

    def inspect(self, log: StoredLog) -> None:
        """Have suspect segments looked at soon: a reader met damage."""

    def storage_failed(self, log: StoredLog, error: StorageError) -> None:
        """The log's directory cannot be trusted any more: take it offline."""

    def discard(self, paths: Iterable[Path], delay_ms: int) -> None:
        """Unlink files that were renamed to ``.deleted``, after a while."""


@dataclass(slots=True, kw_only=True)
class LogParts:
    """A log as loading found it on disk."""

    segments: Sequence[Segment]
    """Ascending, at least one."""
    start_offset: int
    end_offset: int
    recovery_point: int
    epochs: LeaderEpochs
    producers: Producers
    snapshots: ProducerSnapshots
