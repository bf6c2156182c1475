"""Damage below the recovery point: what is known of it, and where whole batches begin again.

Bytes that were fsynced and cannot be read any more are never cut off. They stay where they are,
reads of their offsets are refused, and what lies around them is served. The file ``quarantine`` in
the partition's directory names them, so that a start looks at them again and an operator can:

    0
    <count>
    <segment> <position> <end position> <first offset> <next offset> <reason>

Source: docs/spec/log.md §3.4 and §3.7 check 4; docs/spec/reliability.md §2 failure 14.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Final, NamedTuple

from barnabas.broker.storage.files import Files, StorageError
from barnabas.broker.storage.segment.batch_headers import Read
from barnabas.broker.storage.segment.gaps import Gap
from barnabas.protocol.records.walk import Entry as WalkedEntry
from barnabas.protocol.records.walk import Walk

from .misplaced_batches import MISPLACED, misplaced_before

log = logging.getLogger(__name__)

FILE_NAME: Final = "quarantine"
_VERSION: Final = "0"
_WINDOW_BYTES: Final = 1 << 20
_MAGIC_AT: Final = 16
_FIELDS: Final = 6


class QuarantineEntry(NamedTuple):
    """One line of the file: a gap and the base offset of its segment."""

    base_offset: int
    gap: Gap


def format_quarantine(notes: Iterable[QuarantineEntry]) -> bytes:
    """The bytes of the file."""
    lines = [
        f"{base} {gap.position} {gap.end} {gap.first_offset} {gap.next_offset} {gap.reason}"
        for base, gap in notes
    ]
    return "\n".join([_VERSION, str(len(lines)), *lines, ""]).encode()


def suspected(files: Files, directory: Path) -> set[int]:
    """Base offsets of the segments that the file names; none when it cannot be read.

    Damage that is not looked for is found again by whoever reads it.
    """
    try:
        text = files.read_whole(directory / FILE_NAME).decode(errors="replace")
    except StorageError as error:
        if not error.is_missing:
            raise
        return set()
    lines = [line.split(" ", _FIELDS - 1) for line in text.splitlines()[2:]]
    return {int(line[0]) for line in lines if line[0].isdecimal() and len(line[0]) < _FIELDS * 4}


def write_quarantine(files: Files, directory: Path, notes: list[QuarantineEntry]) -> None:
    """Say durably what is quarantined; no file says that nothing is."""
    path = directory / FILE_NAME
    if notes:
        files.write_atomically(path, format_quarantine(notes))
    elif files.exists(path):
        files.unlink(path)
        files.sync_directory(directory)


def next_entry(
    read: Read, position: int, end: int, *, base_offset: int, next_offset: int, upper: int
) -> Generator[None, None, WalkedEntry | None]:
    """The first whole batch behind ``position``, pausing now and then.

    Its checksum is right and its offsets lie in [``next_offset``, ``upper``). Older formats are
    not looked for. None when there is none before ``end``.
    """
    start = position + 1
    # A batch begins with its offset, whose upper half is nearly always that of the one before.
    begins = re.compile(
        rb"(?s)(?=" + re.escape(next_offset.to_bytes(8, "big")[:4]) + rb".{12}\x02)"
    )
    while start + _MAGIC_AT < end:
        window = read(start, min(_WINDOW_BYTES + _MAGIC_AT, end - start))
        for match in begins.finditer(window):
            walk = Walk(
                read,
                end=end,
                start=start + match.start(),
                base_offset=base_offset,
                previous_offset=next_offset - 1,
            )
            entry = next(iter(walk), None)
            if entry is not None and next_offset <= entry.base_offset and entry.last_offset < upper:
                return entry
        start += _WINDOW_BYTES
        yield
    return None


def find_gaps(
    read: Read, end: int, *, base_offset: int, upper: int
) -> Generator[None, None, list[Gap]]:
    """Verify the first ``end`` bytes of a segment whose offsets are below ``upper``.

    Pauses now and then. Raises StorageError when they cannot be read at all.
    """
    gaps: list[Gap] = []
    position, next_offset, since_pause = 0, base_offset, 0
    while position < end:
        walk = Walk(
            read,
            end=end,
            start=position,
            base_offset=base_offset,
            previous_offset=next_offset - 1,
        )
        last, begins, valid_bytes = None, next_offset, position
        for entry in walk:
            if entry.last_offset >= upper:
                break
            last, begins = entry, next_offset
            valid_bytes, next_offset = walk.valid_bytes, entry.last_offset + 1
            since_pause += len(entry.data)
            if since_pause >= _WINDOW_BYTES:
                since_pause = 0
                yield
        if valid_bytes >= end:
            break
        reason = walk.reason or MISPLACED
        right = last and misplaced_before(
            read, valid_bytes, end, last=last, next_offset=begins, upper=upper
        )
        if last and right:
            gaps.append(Gap(last.position, valid_bytes, begins, right.base_offset, MISPLACED))
            position, next_offset = valid_bytes, right.base_offset
            continue
        found = yield from next_entry(
            read,
            valid_bytes,
            end,
            base_offset=base_offset,
            next_offset=next_offset,
            upper=upper,
        )
        position = end if found is None else found.position
        behind = upper if found is None else found.base_offset
        gaps.append(Gap(valid_bytes, position, next_offset, behind, reason))
        next_offset = behind
    return gaps


def report(path: Path, gap: Gap) -> None:
    """Tell the operator once."""
    log.error(
        "quarantined damage below the recovery point path=%s position=%d bytes=%d "
        "offsets=%d..%d reason=%s",
        *(path, gap.position, gap.end - gap.position, gap.first_offset, gap.next_offset - 1),
        gap.reason,
    )
