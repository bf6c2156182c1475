"""Index files as kafka-dump-log prints them, compared with the log they belong to.

Source: docs/spec/log.md §2.3 and §2.4; DumpLogSegments of Kafka 3.9.
"""

from __future__ import annotations

import mmap
from bisect import bisect_right
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.protocol.log_files.index_entries import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    OffsetEntry,
    offset_entries,
    time_entries,
)
from barnabas.protocol.records import batch
from barnabas.protocol.records.corrupt_records import CorruptRecords
from barnabas.protocol.records.header import Header
from barnabas.protocol.records.header_walk import HeaderWalk

from .segment_files import base_offset, mapped

if TYPE_CHECKING:
    from .dump import Dump


def dump_offset_index(dump: Dump, path: Path) -> None:
    """Print the entries, and note those that are not where the log says."""
    base, data = base_offset(path), path.read_bytes()
    entries = list(offset_entries(data, base))
    if not entries:
        dump.say(f"{path} is empty.")
        return
    if dump.options.index_sanity_check:
        _sanity(dump, path, len(data), OFFSET_ENTRY.size, entries[-1].offset >= base)
        return
    with mapped(_log_of(path)) as log:
        for number, entry in enumerate(entries):
            if number and entry.offset == base:
                return
            _, head = _first(log, entry.position)
            found = None if head is None else head.last_offset
            if found != entry.offset:
                text = f"Index offset: {entry.offset}, log offset: {found}"
                dump.mismatch(f"Mismatches in :{path.absolute()}", text)
            if not dump.options.verify_index_only:
                dump.show(path, "index", entry._asdict())


def dump_time_index(dump: Dump, path: Path) -> None:
    """Print the entries, and note those whose time or offset is not in the log."""
    base, data = base_offset(path), path.read_bytes()
    entries = list(time_entries(data, base))
    if dump.options.index_sanity_check:
        is_ordered = not entries or entries[-1].offset >= base
        _sanity(dump, path, len(data), TIME_ENTRY.size, is_ordered)
        return
    index_path = path.with_name(path.name.replace(".timeindex", ".index"))
    stored = index_path.read_bytes() if index_path.exists() else b""
    index = list(offset_entries(stored, base))
    previous = -1
    with mapped(_log_of(path)) as log:
        for number, entry in enumerate(entries):
            if number and entry.offset == base:
                return
            _compare_time(dump, path, log, _position(index, entry.offset), entry, previous)
            if not dump.options.verify_index_only:
                dump.show(path, "timeindex", entry._asdict())
            previous = entry.timestamp


def _sanity(dump: Dump, path: Path, size: int, entry_bytes: int, is_ordered: bool) -> None:
    """The check that Kafka makes at its start, to know which indexes to make anew."""
    if size % entry_bytes or not is_ordered:
        dump.mismatch(f"Corrupt index {path.absolute()}", f"{size} bytes, ordered: {is_ordered}")
    else:
        dump.say(f"{path} passed sanity check.")


def _log_of(path: Path) -> Path:
    """The log of an index, whatever has been appended to the names of both."""
    return path.with_name(path.name.replace(".timeindex", ".log").replace(".index", ".log"))


def _position(index: list[OffsetEntry], offset: int) -> int:
    number = bisect_right(index, offset, key=lambda entry: entry.offset) - 1
    return index[number].position if number >= 0 else 0


def _first(log: bytes | mmap.mmap, position: int) -> tuple[int, Header | None]:
    if not 0 <= position < len(log):
        return position, None
    return next(iter(HeaderWalk(log, start=position)), (position, None))


def _compare_time(
    dump: Dump,
    path: Path,
    log: bytes | mmap.mmap,
    position: int,
    entry: tuple[int, int],
    previous: int,
) -> None:
    """Note in Kafka's words what is wrong with an entry of a time index."""
    timestamp, offset = entry
    steps = HeaderWalk(log, start=position)
    at, head = next((step for step in steps if step[1].last_offset >= offset), (0, None))
    found = -1 if head is None else head.last_offset
    if head is None or found != offset:
        text = f"Indexed offset: {offset}, found log offset: {found}"
        dump.mismatch("The following indexed offsets are not found in the log.", text)
        return
    newest = _newest(log, at, head)
    if newest != timestamp:
        text = f"Index timestamp: {timestamp}, log timestamp: {newest}"
        dump.mismatch(f"Found timestamp mismatch in :{path.absolute()}", text)
    if previous >= timestamp:
        text = f"Index timestamp: {timestamp}, Previously indexed timestamp: {previous}"
        dump.mismatch(f"Found out of order timestamp in :{path.absolute()}", text)


def _newest(log: bytes | mmap.mmap, position: int, head: Header) -> int:
    """The greatest timestamp of the records that are there; -1 for none."""
    data = log[position : position + head.length + 12]
    try:
        return max((record.timestamp for record in batch.records(data)), default=-1)
    except CorruptRecords:
        return -1
