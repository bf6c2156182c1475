"""What is particular to the log of one state topic: how it is folded, and into what.

A fold is what the records of one partition amount to up to an offset. Standby, load and snapshot
drive any fold alike: the groups of an offsets partition (replay.py) and the transactional ids of a
partition of ``__transaction_state``.
Source: docs/spec/coordinator.md §3.4 to §3.4.2; docs/spec/transactions.md §3.2, §10.1 and §10.2.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from typing import ClassVar, Generic, Protocol, TypeVar

from barnabas.protocol.records import batch

from .damaged_records import DamagedRecords
from .ports import Replica
from .terms import LeadershipTerm


class Fold(Protocol):
    """What the records so far amount to.

    A value that cannot be read raises CorruptRequest or CorruptRecords: then nothing of it may be
    served. To fold the same batch again, whole, changes nothing: a fold may be left in the middle
    of one and gone on with. What is deferred shows after :meth:`apply_deferred` only.
    """

    @property
    def count(self) -> int:
        """How many records were folded, for the log."""

    def defer_short_batches(
        self, data: bytes, position: int, floor: int, until: int
    ) -> tuple[int, int]:
        """Take short batches in a row from ``position``, all that end at offset ``until`` or below.

        Returns the position of the first that was not taken, and the offset that follows the last
        taken; with nothing taken, ``position`` and ``floor``.
        """

    def defer_batch(
        self, data: batch.Buffer, position: int, floor: int
    ) -> Generator[None, None, None]:
        """Take the batch at ``position``, without its records below offset ``floor``."""

    def apply_deferred(self) -> Generator[None, None, None]:
        """Apply what was taken; yields often."""


T = TypeVar("T", bound=LeadershipTerm)
F = TypeVar("F", bound=Fold)
C = TypeVar("C")


class Folding(ABC, Generic[T, F, C]):
    """How the log of one topic is folded, and what a term gets of it (``C``) when it is loaded.

    Without snapshots, and without a way around damaged records: what has those overrides it.
    """

    topic: ClassVar[str]
    contents_name: ClassVar[str]
    """What a load counts in the node's log, in the plural."""
    skips_damage: ClassVar[bool] = False
    """Whether a load may leave out damaged records, and note whom they concern."""

    @abstractmethod
    def empty(self) -> F:
        """The fold of no record."""

    @abstractmethod
    def contents(self, fold: F, term: T) -> Generator[None, None, C]:
        """What is to be served in ``term``; yields often. The fold is given up with it."""

    @abstractmethod
    def size(self, contents: C) -> int:
        """How many there are, for the log."""

    def saved_offset(self, replica: Replica) -> int:
        """Up to where a snapshot spares reading the log; -1 without one."""
        return -1

    def restored(self, replica: Replica) -> Generator[None, None, tuple[F, int] | None]:
        """The fold that a snapshot holds, and up to which offset; None without one. Yields."""
        return None
        yield

    def skip_damage(self, fold: F) -> None:
        """Damaged records are about to be left out of ``fold``; only where it skips damage."""
        raise NotImplementedError

    def loaded_past_damage(self, term: T, fold: F, damaged: DamagedRecords, contents: C) -> C:
        """``contents`` as they may be served without ``damaged``; only where it skips damage."""
        raise NotImplementedError
