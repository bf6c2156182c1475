"""Truncation of a follower's log: it drops what the leader has not.

    | kept ........ | dropped ............... |        at a batch's start, never inside one
    start        offset                      end

Where that is, the leader epochs decide (replication's business, KIP-101). The order of the steps is
what makes a kill or a power cut at any of them harmless: whoever counts on the records is told, the
recovery point falls, files are renamed from the end, then epochs and producer state follow.
Source: docs/spec/log.md §2.9 and §3.6; §9 pitfalls P16, P28 and P30.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.storage.cooperative import at_once
from barnabas.broker.storage.producers.producer_replay import replay_producers

if TYPE_CHECKING:
    from .log import Log


def may_truncate_to(log: Log, offset: int) -> bool:
    """Whether :func:`truncate_to` may be called at once: no file says that more is durable.

    Else the recovery point is lowered, the caller has it written down and asks again. A start
    does not look below a point that it finds, and a file system may destroy what is cut there.
    """
    if not log.segments.view.bases[0] <= offset < log.end_offset:
        return True
    end_offset = log.segments.find_cut(offset)[1]
    if log.listed_recovery_point <= end_offset:
        return True
    log.flusher.lower(end_offset)
    return False


def truncate_to(log: Log, offset: int) -> None:
    """Drop ``offset`` and all after it, with the whole batch that holds it."""
    if offset >= log.end_offset:
        # Nothing to cut; but an epoch that begins at the end would be compared again and again
        # (KAFKA-7415).
        log.epochs.truncate_from_end(log.end_offset)
        return
    for callback in tuple(log.before_truncation):
        callback(offset)
    view = log.segments.view
    if offset < view.bases[0]:
        truncate_fully(log, offset, None)
        return
    _, end_offset = log.segments.find_cut(offset)
    assert log.listed_recovery_point <= end_offset, f"{log}: a start would trust what is cut"
    # First of all: a flush under way must not raise the point again over what is cut now.
    log.flusher.lower(end_offset)
    gone, renamed = log.segments.truncate(offset)
    # Epochs and snapshots fall after the bytes: a kill between them leaves too much, which a start
    # takes away; too little could not be told from what was never there.
    log.start_offset = min(log.start_offset, end_offset)
    log.epochs.truncate_from_end(end_offset)
    renamed += log.snapshots.remove_above(end_offset)
    log.replaced(end_offset, gone, renamed)
    # What the dropped batches said of their producers is not to be taken back one by one: the
    # newest snapshot that is left, and the batches behind it, say what is true now. Guards stay:
    # what comes instead of the dropped batches removes those that it concerns.
    guards = log.producers.guards
    log.producers = at_once(
        replay_producers(
            log.segments.view.segments, log.snapshots, log.start_offset, log.end_offset
        )
    )
    log.producers.guards = guards


def truncate_fully(log: Log, offset: int, start_offset: int | None) -> None:
    """Drop everything; one empty segment at ``offset`` remains."""
    for callback in tuple(log.before_truncation):
        callback(min(offset, log.segments.view.bases[0]))
    # Not up to the offset: what was not durable may be back after a power cut, until the flush that
    # the change of the list asks for.
    log.flusher.lower(offset)
    old, renamed = log.restart_segments(offset)
    log.start_offset = offset if start_offset is None else start_offset
    log.epochs.clear()
    log.producers.clear()
    log.producers.end_offset = offset
    log.replaced(offset, old, renamed)
