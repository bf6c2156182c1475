"""How the transactions in segment files ended: which records readers of committed ones are shown.

The markers in a log tell it all, so nothing is asked of index files that a copy may lack. The
headers of a partition's files are walked once, in order, before its tasks are planned.
Source: docs/spec/log.md §1.6 and §7; docs/spec/transactions.md §5.2.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

from barnabas.protocol.records import batch
from barnabas.protocol.records.control import Marker, parse_marker
from barnabas.protocol.records.corrupt_records import CorruptRecords
from barnabas.protocol.records.header import CONTROL, TRANSACTIONAL, Header
from barnabas.protocol.records.header_walk import HeaderWalk

from .segment_files import SegmentFile
from .unpacking import Aborted

OFFSET_MAX: Final = (1 << 63) - 1


class Hidden(NamedTuple):
    """What readers of committed records are not shown of one file."""

    end: int
    """Where the first transaction of its log begins that is still open; OFFSET_MAX without one."""
    aborted: tuple[Aborted, ...]
    """The aborted transactions that reach into the file."""


class _Ended(NamedTuple):
    """An aborted transaction, and where it ended."""

    aborted: Aborted
    marker_offset: int


def hidden_records(segments: Iterable[SegmentFile]) -> dict[str, Hidden]:
    """What is hidden of each of these files, by path.

    They are all files of their logs, in order: a marker may stand in a later file than the
    records it ends. One that was deleted meanwhile, or is damaged, is walked no further: whoever
    reads it will say so.
    """
    found: dict[str, Hidden] = {}
    for _, files in groupby(segments, key=lambda segment: Path(segment.path).parent):
        found.update(_of_log(list(files)))
    return found


def _of_log(segments: Sequence[SegmentFile]) -> dict[str, Hidden]:
    opened: dict[int, int] = {}
    ended: list[_Ended] = []
    for segment in segments:
        for header, kind in _entries(segment):
            if kind is None:
                opened.setdefault(header.producer_id, header.base_offset)
                continue
            first = opened.pop(header.producer_id, None)
            if first is not None and kind is Marker.ABORT:
                aborted = Aborted(header.producer_id, first)
                ended.append(_Ended(aborted, header.base_offset))
    stable = min(opened.values(), default=OFFSET_MAX)
    ends = [*(segment.base_offset for segment in segments[1:]), OFFSET_MAX]
    return {
        segment.path: Hidden(
            stable,
            tuple(
                one.aborted
                for one in ended
                if one.aborted.first_offset < end and one.marker_offset >= segment.base_offset
            ),
        )
        for segment, end in zip(segments, ends, strict=True)
    }


def _entries(segment: SegmentFile) -> Iterator[tuple[Header, Marker | None]]:
    """Every batch of a transaction with records, and every marker with what it says.

    A batch that compaction has emptied opens nothing: its marker may be gone before it is.
    """
    if not segment.size:
        return
    with (
        contextlib.suppress(FileNotFoundError, CorruptRecords),
        Path(segment.path).open("rb") as file,
        mmap.mmap(file.fileno(), segment.size, access=mmap.ACCESS_READ) as data,
    ):
        walk = HeaderWalk(data)
        for position, header in walk:
            if header.attributes & CONTROL:
                entry = data[position : walk.valid_bytes]
                for record in batch.records(entry, 0):
                    kind = parse_marker(record.key)
                    if kind is not None:
                        yield header, kind
            elif header.attributes & TRANSACTIONAL and header.record_count:
                yield header, None
