"""What is damaged of a log, for those who serve it, copy it anew or tell of it.

Source: docs/spec/log.md §3.4 and §3.7 check 4; docs/log.md, "Damage below the recovery point".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from barnabas.broker.storage.segment.gaps import Gap

if TYPE_CHECKING:
    from barnabas.broker.storage.log.log import Log
    from barnabas.broker.storage.segment.segment import Segment

DATA_BYTES_MAX: Final = 1 << 20
"""More damaged bytes than that are not handed out."""


def damaged_parts(log: Log) -> Iterator[tuple[Segment, Gap]]:
    """What cannot be read at the log's start or above it, in order."""
    for segment in log.segments.view.segments:
        for gap in segment.gaps:
            if gap.next_offset > log.start_offset:
                yield segment, gap


def is_damaged(log: Log) -> bool:
    """Whether some of it cannot be read."""
    return next(damaged_parts(log), None) is not None


def damaged_offsets(log: Log) -> str:
    """For people: ``8..9,20..23``."""
    return ",".join(f"{gap.first_offset}..{gap.next_offset - 1}" for _, gap in damaged_parts(log))


def damage_at(log: Log, offset: int) -> tuple[Gap, bytes] | None:
    """The damage that holds ``offset``, and its bytes: none when they are too many."""
    for segment, gap in damaged_parts(log):
        if gap.first_offset <= offset < gap.next_offset:
            size = gap.end - gap.position
            return gap, segment.read(gap.position, size) if size <= DATA_BYTES_MAX else b""
    return None


def suspect(log: Log, offset: int) -> None:
    """A reader found the batch that holds ``offset`` damaged: have the segment verified."""
    view = log.segments.view
    view.segments[max(0, view.floor(offset))].is_suspect = True
    log.ask_inspection()
