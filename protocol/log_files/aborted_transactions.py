"""The entries of a transaction index file: the aborted transactions of one segment.

    | version int16 0 | producer id int64 | first offset int64 | last offset int64
    | last stable offset int64 |

The last offset is that of the marker, and increases; the first may lie in an earlier segment.
Source: docs/spec/log.md §2.5.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

ENTRY_BYTES: Final = 34
_ENTRY: Final = Struct(">hqqqq")
_VERSION: Final = 0


class BadTransactionIndex(ValueError):  # noqa: N818 - what the file is
    """A file that is no transaction index, or was damaged."""


class AbortedTransaction(NamedTuple):
    """A transaction of which consumers of committed records see nothing."""

    producer_id: int
    first_offset: int
    last_offset: int
    """Of the marker that ended it."""
    last_stable_offset: int
    """First offset of the earliest transaction still open then, else the one after the marker."""


def format_aborted(transactions: Iterable[AbortedTransaction]) -> bytes:
    """The bytes of a transaction index file."""
    return b"".join(_ENTRY.pack(_VERSION, *transaction) for transaction in transactions)


def parse_aborted(data: bytes) -> list[AbortedTransaction]:
    """The entries of a transaction index file; raises BadTransactionIndex."""
    if len(data) % ENTRY_BYTES:
        raise BadTransactionIndex(f"{len(data)} bytes")
    found, previous = [], -1
    for version, *fields in _ENTRY.iter_unpack(data):
        transaction = AbortedTransaction(*fields)
        if (
            version != _VERSION
            or transaction.last_offset <= previous
            or not _is_plausible(transaction)
        ):
            raise BadTransactionIndex(f"version {version} {transaction}")
        previous = transaction.last_offset
        found.append(transaction)
    return found


def _is_plausible(transaction: AbortedTransaction) -> bool:
    return (
        transaction.producer_id >= 0
        and 0 <= transaction.first_offset <= transaction.last_offset
        and 0 <= transaction.last_stable_offset <= transaction.last_offset + 1
    )
