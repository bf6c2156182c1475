"""The transaction index of one segment: the aborted transactions whose markers it holds.

    entry:  | version int16 0 | producer id int64 | first offset int64 | last offset int64
            | last stable offset int64 |

The last offset is that of the marker, and increases; the first may lie in an earlier segment. The
last stable offset is what it was once this transaction was over. A file is there only when there
is an entry; like the other indexes it is written by the flush. Source: docs/spec/log.md §2.5, §6.5.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.broker.storage.files import Files, StorageError
from barnabas.protocol.log_files.aborted_transactions import (
    ENTRY_BYTES,
    AbortedTransaction,
    BadTransactionIndex,
    format_aborted,
    parse_aborted,
)

if TYPE_CHECKING:
    from .segment import Segment

__all__ = [
    "SUFFIX",
    "AbortedTransaction",
    "BadTransactionIndex",
    "TransactionIndex",
    "aborted_transactions",
    "format_aborted",
    "parse_aborted",
]

SUFFIX: Final = ".txnindex"
_FIELDS: Final = 4


def aborted_transactions(
    segments: Iterable[Segment], start: int, end: int
) -> Iterator[AbortedTransaction]:
    """The aborted transactions that reach into [``start``, ``end``), in order of their markers.

    ``segments`` ascending, from the one that holds ``start`` to the last of the log: a marker may
    come long after ``end``. Raises BadTransactionIndex and StorageError.
    """
    for segment in segments:
        for transaction in segment.indexes.transactions.since(start):
            if transaction.first_offset < end:
                yield transaction
            if transaction.last_stable_offset >= end:
                return


class TransactionIndex:
    """The entries of one segment in memory; loaded when first needed."""

    __slots__ = ("_fields", "_files", "_has_surplus", "_path", "_saved")

    def __init__(self, files: Files, path: Path, *, is_empty: bool) -> None:
        self._files = files
        self._path = path
        self._fields: array[int] | None = array("q") if is_empty else None
        self._saved = 0
        """How many entries the file is known to hold."""
        self._has_surplus = False
        """The file holds something behind them."""

    def __len__(self) -> int:
        return len(self._loaded()) // _FIELDS

    def __iter__(self) -> Iterator[AbortedTransaction]:
        return self._from(0)

    def add(self, transaction: AbortedTransaction) -> None:
        """Append an entry, whose marker lies behind all others."""
        fields = self._loaded()
        assert not fields or transaction.last_offset > self._at(len(self) - 1).last_offset
        fields.extend(transaction)

    def since(self, offset: int) -> Iterator[AbortedTransaction]:
        """The entries whose marker is at ``offset`` or behind it."""
        return self._from(self._number_of(offset))

    def truncate(self, offset: int) -> None:
        """Drop the entries whose marker is at ``offset`` or behind it."""
        keep = self._number_of(offset)
        if keep < len(self):
            del self._loaded()[keep * _FIELDS :]
            self._has_surplus = self._has_surplus or keep < self._saved
            self._saved = min(self._saved, keep)

    def load(self) -> None:
        """Read the file now. Raises StorageError, and BadTransactionIndex: nothing is kept then."""
        self._fields = array("q")
        try:
            data = self._files.read_whole(self._path)
        except StorageError as error:
            if not error.is_missing:
                raise
            return
        self._has_surplus = True
        for transaction in parse_aborted(data):
            self._fields.extend(transaction)
        self._saved, self._has_surplus = len(self), False

    def mark_missing(self) -> None:
        """There is no file: nothing was aborted here so far."""
        self._fields = array("q")

    def unsaved(self) -> tuple[int, bytes] | None:
        """Bytes of the file to keep and what must follow them; None when it holds all."""
        if self._fields is None or (self._saved == len(self) and not self._has_surplus):
            return None
        return self._saved * ENTRY_BYTES, format_aborted(self._from(self._saved))

    def mark_saved(self, count: int) -> None:
        """The file holds ``count`` entries, the first ones, and nothing else."""
        self._saved, self._has_surplus = count, False

    def _loaded(self) -> array[int]:
        if self._fields is None:
            self.load()
        assert self._fields is not None
        return self._fields

    def _from(self, number: int) -> Iterator[AbortedTransaction]:
        return (self._at(index) for index in range(number, len(self)))

    def _at(self, number: int) -> AbortedTransaction:
        return AbortedTransaction(*self._loaded()[number * _FIELDS : (number + 1) * _FIELDS])

    def _number_of(self, offset: int) -> int:
        """Of the first entry whose marker is at ``offset`` or behind it."""
        return bisect_left(
            range(len(self)), offset, key=lambda number: self._at(number).last_offset
        )
