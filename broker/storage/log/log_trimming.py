"""What takes segments out of a log: its start that moved, its age, compaction that rewrote them.

Source: docs/spec/log.md §3.5 (steps 3 to 5) and §4.1 to §4.3; §9 pitfall P16.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.broker.storage.segment.segment import Segment

if TYPE_CHECKING:
    from .log import Log


def advance_start(log: Log, offset: int) -> None:
    """See :meth:`Log.advance_start`."""
    if offset > log.start_offset:
        log.start_offset = offset
        log.epochs.truncate_from_start(offset)


def delete_oldest(log: Log, count: int) -> None:
    """See :meth:`Log.delete_oldest`."""
    view = log.segments.view
    if count == len(view.segments):
        assert view.segments[-1].size, f"{log}: an empty active segment stays"
        if log.is_full:
            count -= 1  # no room for another one; the next pass finds some
        else:
            log.roll()
            view = log.segments.view
    if not count:
        return
    gone = view.segments[:count]
    advance_start(log, view.bases[count])
    log.segments.remove(gone)
    log.flusher.skip_to(log.start_offset)
    renamed = log.snapshots.rename(segment.base_offset for segment in gone)
    for segment in gone:
        renamed += segment.rename_deleted()
    log.removed(gone, renamed)


def replace_segments(log: Log, new: Sequence[Segment], old: Sequence[Segment]) -> None:
    """See :meth:`Log.replace_segments`."""
    view = log.segments.view
    after = view.upper(view.segments.index(old[-1]), log.end_offset)
    assert after <= log.recovery_point, f"{log}: a flush may still write the indexes of {old}"
    assert all(old[0].base_offset <= segment.base_offset < after for segment in new)
    kept = {segment.base_offset for segment in new}
    renamed = log.snapshots.rename(
        segment.base_offset for segment in old if segment.base_offset not in kept
    )
    for segment in old:
        renamed += segment.rename_deleted()
    for segment, upper in zip(new, [*[each.base_offset for each in new[1:]], after], strict=True):
        segment.rename_swapped()
        segment.indexes.configure(log.config)
        if not segment.indexes.are_sound(upper, segment.size):
            segment.rebuild_indexes()
    log.segments.swap(new, old)
    log.removed(old, renamed)
