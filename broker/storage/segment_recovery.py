"""Recovery of one segment: keep what is whole, cut the rest, make the indexes anew.

Source: log.md section 3.4; pitfalls P10 to P12.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from typing import NamedTuple

from barnabas.protocol.records.batch import is_control
from barnabas.protocol.records.walk import Stop, Walk

from .files import StorageError
from .leader_epochs import LeaderEpochs
from .segment import Segment

log = logging.getLogger(__name__)

_SLICE_BYTES = 1 << 20


class Recovered(NamedTuple):
    """What a recovery found."""

    next_offset: int
    """After the last good batch; the segment's base when there is none."""
    cut_bytes: int
    """How much was no good; it is gone unless cutting was forbidden."""
    is_contiguous: bool
    """No offset is missing in what was verified: nothing was compacted away."""
    has_markers: bool
    """A control batch is in what was verified."""


def recover_segment(
    segment: Segment,
    *,
    epochs: LeaderEpochs | None = None,
    trusted: int = 0,
    may_cut: bool,
) -> Generator[None, None, Recovered]:
    """Verify every batch of a segment and rebuild its indexes, pausing now and then.

    What lies below the offset ``trusted`` was fsynced with its indexes and is left alone. New
    leader epochs are noted in ``epochs``. Raises StorageError, also for a segment whose offsets
    do not fit, which must be split and not cut.
    """
    indexes, size = segment.indexes, segment.size
    segment.forget_hints()
    begin = segment.trust_below(trusted)
    if begin is None:
        indexes.reset()
        begin = 0, segment.base_offset - 1
    position, last_offset = begin
    walk = Walk(
        segment.read,
        end=size,
        start=position,
        base_offset=segment.base_offset,
        previous_offset=last_offset,
    )
    next_offset, since_pause, is_contiguous, has_markers = last_offset + 1, 0, True, False
    for entry in walk:
        count = len(entry.data)
        indexes.note(entry.position, count, entry.last_offset, entry.max_timestamp)
        if epochs is not None and entry.leader_epoch > epochs.latest:
            epochs.assign(entry.leader_epoch, entry.base_offset)
        has_markers = has_markers or is_control(entry.data)
        is_contiguous = is_contiguous and entry.base_offset == next_offset
        next_offset = entry.last_offset + 1
        since_pause += count
        if since_pause >= _SLICE_BYTES:
            since_pause = 0
            yield
    if walk.stop is Stop.OVERFLOW:
        raise StorageError(segment.path(".log"), f"must be split by Kafka first: {walk.reason}")
    indexes.finish()
    if walk.valid_bytes < size:
        log.warning(
            "found a damaged tail path=%s valid_bytes=%d bytes=%d reason=%s",
            *(segment.path(".log"), walk.valid_bytes, size, walk.reason),
        )
        if may_cut:
            segment.cut(walk.valid_bytes)
    return Recovered(next_offset, size - walk.valid_bytes, is_contiguous, has_markers)
