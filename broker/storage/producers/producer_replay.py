"""The producers of a log, from the newest snapshot and the batches after it.

The same walk finds the aborted transactions again where a transaction index was lost.
Source: docs/spec/log.md §3.4 and §7.4.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping, Sequence
from typing import Final

from barnabas.broker.storage.segment.batch_headers import CorruptEntry
from barnabas.broker.storage.segment.segment import Segment
from barnabas.protocol.records.header import CONTROL, NO_TIMESTAMP

from .producer_snapshots import ProducerSnapshots
from .producer_state import ProducerStateManager

log = logging.getLogger(__name__)

_SLICE_ENTRIES: Final = 500
_NOWHERE: Final[Mapping[Segment, int]] = {}


def replay_producers(
    segments: Sequence[Segment],
    snapshots: ProducerSnapshots,
    start: int,
    end: int,
    *,
    silent_since_ms: int = NO_TIMESTAMP,
) -> Generator[None, None, ProducerStateManager]:
    """What batches in [``start``, ``end``) tell of producers, pausing now and then.

    Those of the snapshot that are ``silent_since_ms`` or longer count no more.
    """
    producers = snapshots.load_newest(start, end)
    producers.expire(silent_since_ms, 0)
    yield from _replay(producers, segments, end, _NOWHERE)
    producers.end_offset = end
    return producers


def find_aborted(
    segments: Sequence[Segment],
    snapshots: ProducerSnapshots,
    start: int,
    end: int,
    lost: Mapping[Segment, int],
) -> Generator[None, None, None]:
    """Complete the transaction indexes of ``lost``, which hold no marker at the given offset or
    behind it, from the batches in [``start``, ``end``), pausing now and then.
    """
    if lost:
        producers = snapshots.load_newest(start, min(lost.values()))
        yield from _replay(producers, segments, end, lost)


def _replay(
    producers: ProducerStateManager,
    segments: Sequence[Segment],
    end: int,
    lost: Mapping[Segment, int],
) -> Generator[None, None, None]:
    first = producers.end_offset
    uppers = [*[segment.base_offset for segment in segments][1:], end]
    count = 0
    for segment, upper in zip(segments, uppers, strict=True):
        if upper <= first:
            continue
        lost_from = lost.get(segment, end)
        try:
            span = segment.find_now(first)
            for entry in segment.entries(span.position) if span else ():
                if entry.producer_id >= 0:
                    is_control = entry.attributes & CONTROL
                    data = segment.read(entry.position, entry.size) if is_control else b""
                    aborted = producers.note(entry, data)
                    if aborted and entry.last_offset >= lost_from:
                        segment.indexes.transactions.add(aborted)
                count += 1
                if count % _SLICE_ENTRIES == 0:
                    yield
        except CorruptEntry as corrupt:
            log.error("could not read producers path=%s %s", segment.path(".log"), corrupt)
