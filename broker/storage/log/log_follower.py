"""What a follower does to its log: append what the leader has, drop what it has not.

Source: docs/spec/log.md §2.9 and §3.6; §9 pitfalls P16, P28 and P30.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.storage.cooperative import at_once
from barnabas.broker.storage.producers.producer_replay import replay_producers
from barnabas.broker.storage.segment.batch_headers import entry_at
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.records.batch import crc_is_valid, iterate

if TYPE_CHECKING:
    from barnabas.broker.storage.segment.segment import Segment

    from .log import Log


def append_batches(log: Log, batches: bytes) -> None:
    """Check and append each whole entry of ``batches``; see :meth:`Log.append_as_follower`."""
    data = memoryview(batches)
    for position, size in iterate(data):
        entry = entry_at(data, position, position)
        if not crc_is_valid(data, position, size):
            raise Refused(ErrorCode.CORRUPT_MESSAGE, f"checksum at offset {entry.base_offset}")
        if entry.base_offset < log.end_offset:
            start = log.start_offset
            is_empty = log.end_offset == start and not log.size
            if not (is_empty and entry.base_offset < start <= entry.last_offset):
                raise Refused(
                    ErrorCode.INVALID_RECORD,
                    f"offset {entry.base_offset} is below the end {log.end_offset}",
                )
            log.truncate_fully(entry.base_offset, start_offset=start)
        log.append_entry(entry, data[position : position + size])


def may_truncate_to(log: Log, offset: int) -> bool:
    """See :meth:`Log.may_truncate_to`."""
    if not log.segments.view.bases[0] <= offset < log.end_offset:
        return True
    end_offset = _place(log, offset)[1]
    if log.listed_recovery_point <= end_offset:
        return True
    log.flusher.lower(end_offset)
    return False


def _place(log: Log, offset: int) -> tuple[Segment, int]:
    """The segment to cut, and where the log then ends."""
    view = log.segments.view
    last = view.segments[view.floor(offset)]
    inside = last.gaps.at(offset) or last.find_now(offset)
    return last, min(offset, inside.base_offset) if inside else offset


def truncate_to(log: Log, offset: int) -> None:
    """Drop ``offset`` and all after it, with the whole batch that holds it."""
    if offset >= log.end_offset:
        log.epochs.truncate_from_end(log.end_offset)
        return
    for told in tuple(log.before_cut):
        told(offset)
    view = log.segments.view
    if offset < view.bases[0]:
        truncate_fully(log, offset, None)
        return
    last, end_offset = _place(log, offset)
    assert log.listed_recovery_point <= end_offset, f"{log}: a start would trust what is cut"
    log.flusher.lower(end_offset)
    gone = [segment for segment in view.segments if segment.base_offset > offset]
    log.segments.remove(gone)
    # From the end, so that whatever a kill leaves of it is a prefix of what was there.
    renamed = [path for segment in reversed(gone) for path in segment.rename_deleted()]
    last.truncate(offset)
    log.start_offset = min(log.start_offset, end_offset)
    log.epochs.truncate_from_end(end_offset)
    renamed += log.snapshots.remove_above(end_offset)
    log.replaced(end_offset, gone, renamed)
    log.producers = at_once(
        replay_producers(
            log.segments.view.segments, log.snapshots, log.start_offset, log.end_offset
        )
    )


def truncate_fully(log: Log, offset: int, start_offset: int | None) -> None:
    """Drop everything; one empty segment at ``offset`` remains."""
    for told in tuple(log.before_cut):
        told(min(offset, log.segments.view.bases[0]))
    # Not up to the offset: what was not durable may be back after a power cut, until the flush that
    # the change of the list asks for.
    log.flusher.lower(offset)
    old = log.segments.view.segments
    renamed = log.snapshots.remove_above(-1)
    for segment in old:
        if segment.base_offset == offset:
            renamed += segment.rename_deleted()
    log.segments.replace(log.new_segment(offset))
    for segment in old:
        if segment.base_offset != offset:
            renamed += segment.rename_deleted()
    log.start_offset = offset if start_offset is None else start_offset
    log.epochs.clear()
    log.producers.clear()
    log.producers.end_offset = offset
    log.replaced(offset, old, renamed)
