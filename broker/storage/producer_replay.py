"""The producers of a log, from the newest snapshot and the batches after it.

Source: log.md section 7.4.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Sequence
from typing import Final

from barnabas.protocol.errors import Refused
from barnabas.protocol.records.batch import records
from barnabas.protocol.records.control import coordinator_epoch
from barnabas.protocol.records.header import CONTROL, NO_TIMESTAMP

from .entries import CorruptEntry, Entry
from .producer_snapshots import ProducerSnapshots
from .producers import Producers
from .segment import Segment

log = logging.getLogger(__name__)

_SLICE_ENTRIES: Final = 500


def replay_producers(
    segments: Sequence[Segment],
    snapshots: ProducerSnapshots,
    start: int,
    end: int,
    *,
    silent_since_ms: int = NO_TIMESTAMP,
) -> Generator[None, None, Producers]:
    """What batches in [``start``, ``end``) tell of producers, pausing now and then.

    Those of the snapshot that are ``silent_since_ms`` or longer count no more.
    """
    producers = snapshots.load_newest(start, end)
    producers.expire(silent_since_ms, 0)
    first = producers.end_offset
    bases = [segment.base_offset for segment in segments]
    uppers = [*bases[1:], end]
    count = 0
    for segment, upper in zip(segments, uppers, strict=True):
        if upper <= first:
            continue
        try:
            span = segment.find(first)
            for entry in segment.entries(span.position) if span else ():
                if entry.producer_id >= 0:
                    producers.note(entry, coordinator_epoch=_marker_epoch(segment, entry))
                count += 1
                if count % _SLICE_ENTRIES == 0:
                    yield
        except CorruptEntry as corrupt:
            log.error("could not read producers path=%s %s", segment.path(".log"), corrupt)
    producers.end_offset = end
    return producers


def _marker_epoch(segment: Segment, entry: Entry) -> int:
    if not entry.attributes & CONTROL:
        return -1
    try:
        marker = next(iter(records(segment.read(entry.position, entry.size))))
        return coordinator_epoch(marker.value)
    except (Refused, StopIteration):
        return -1
