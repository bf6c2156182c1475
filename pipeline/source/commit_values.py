"""The values of offset commits read into columns, all of them at once.

What brokers write today without a note is read as numbers where it lies; any other value goes
through :func:`read_commit`, one by one. Source: docs/spec/coordinator.md §2;
docs/spec/pipeline.md §1.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from struct import error as struct_error
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from barnabas.protocol.errors import CorruptRequest
from barnabas.protocol.offsets_topic import parse_offset_value
from barnabas.protocol.records.columns import Numbers

_FRONT_3: Final = Struct(">hqih")
_LONG: Final = Struct(">q")
_VALUE_3: Final = 3
_NONE: Final = -1
_BYTES_3: Final = _FRONT_3.size + _LONG.size
"""Version, offset, epoch, a note of no length, commit time."""

Commit = tuple[int, int | None, str, int, int | None]
"""Offset, leader epoch, metadata, commit time, expiry; None for what was not given."""
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class CommitValues:
    """One entry a record. Numbers are -1 where nothing was given, and where ``is_gone``."""

    is_gone: Mask
    """There is no value: a tombstone."""
    offsets: Numbers
    epochs: Numbers
    stamps: Numbers
    expiries: Numbers
    notes: dict[int, str]
    """Those that are not empty."""
    problems: dict[int, CorruptRequest]
    """Records that cannot be read, and why."""


def read_values(values: pa.BinaryArray, is_commit: Mask) -> CommitValues:
    """Read the values at the places ``is_commit``; nobody asks for the others."""
    count = len(values)
    is_gone = np.asarray(values.is_null())
    offsets, epochs, stamps, expiries = np.full((4, count), _NONE, np.int64)
    found = CommitValues(is_gone, offsets, epochs, stamps, expiries, notes={}, problems={})
    _, marks, data = values.buffers()
    edges = np.frombuffer(marks, np.int32)[values.offset : values.offset + count + 1]
    raw = np.frombuffer(data or b"", np.uint8)
    asked = np.flatnonzero(is_commit & ~is_gone)
    starts, sizes = edges[:-1][asked].astype(np.int64), np.diff(edges)[asked]
    is_plain = sizes >= _BYTES_3
    front = _numbers(raw, starts[is_plain], ">i2", 0), _numbers(raw, starts[is_plain], ">i2", 14)
    is_plain[is_plain] = (front[0] == _VALUE_3) & (front[1] == 0)
    rows, at = asked[is_plain], starts[is_plain]
    found.offsets[rows] = _numbers(raw, at, ">i8", 2)
    found.epochs[rows] = _numbers(raw, at, ">i4", 10)
    found.stamps[rows] = _numbers(raw, at, ">i8", 16)
    _read_others(found, values, asked[~is_plain].tolist())
    return found


def _numbers(raw: NDArray[np.uint8], starts: Numbers, kind: str, skip: int) -> Numbers:
    width = np.dtype(kind).itemsize
    taken: NDArray[Any] = raw[starts[:, None] + np.arange(skip, skip + width)]
    return taken.view(kind).ravel().astype(np.int64)


def _read_others(found: CommitValues, values: pa.BinaryArray, rows: Sequence[int]) -> None:
    for row, value in zip(rows, values.take(pa.array(rows, pa.int64())).to_pylist(), strict=True):
        try:
            offset, epoch, note, stamp, expiry = read_commit(value)
        except CorruptRequest as problem:
            found.problems[row] = problem
            continue
        found.offsets[row], found.stamps[row] = offset, stamp
        found.epochs[row] = _NONE if epoch is None else epoch
        found.expiries[row] = _NONE if expiry is None else expiry
        if note:
            found.notes[row] = note


def read_commit(value: bytes) -> Commit:
    """A committed offset of any version; raises CorruptRequest."""
    try:
        version, offset, epoch, size = _FRONT_3.unpack_from(value)
        if version == _VALUE_3 and size >= 0:
            end = _FRONT_3.size + size
            note = value[_FRONT_3.size : end].decode() if size else ""
            (stamp,) = _LONG.unpack_from(value, end)
            return offset, None if epoch == _NONE else epoch, note, stamp, None
    except (struct_error, UnicodeDecodeError):
        pass  # the decoder below says what is wrong, or knows better
    found = parse_offset_value(value)
    return (
        found.offset,
        None if found.leader_epoch == _NONE else found.leader_epoch,
        found.metadata,
        found.commit_timestamp,
        None if found.expire_timestamp == _NONE else found.expire_timestamp,
    )
