"""Control batches: the markers that end a transaction, which no application ever sees.

    key  version int16 0 | type int16: 0 abort, 1 commit
    value  version int16 0 | coordinator epoch int32

Source: docs/spec/log.md §1.6.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final

from .corrupt_records import CorruptRecords

_KEY: Final = Struct(">hh")
_VALUE: Final = Struct(">hi")


class Marker(IntEnum):
    """How a transaction ended."""

    ABORT = 0
    COMMIT = 1


def parse_marker(key: bytes | None) -> Marker | None:
    """None for a type this cluster does not know, whose record is to be skipped.

    A newer version begins like version 0. Raises CorruptRecords when there is no type.
    """
    if key is None or len(key) < _KEY.size:
        raise CorruptRecords("a control record without a type")
    kind = _KEY.unpack_from(key)[1]
    return Marker(kind) if kind in (Marker.ABORT, Marker.COMMIT) else None


def coordinator_epoch(value: bytes | None) -> int:
    """The epoch of the transaction coordinator that wrote the marker."""
    if value is None or len(value) < _VALUE.size:
        raise CorruptRecords("a marker without a coordinator epoch")
    return int(_VALUE.unpack_from(value)[1])


def encode_marker(marker: Marker, epoch: int) -> tuple[bytes, bytes]:
    """Key and value of the only record of a control batch."""
    return _KEY.pack(0, marker), _VALUE.pack(0, epoch)
