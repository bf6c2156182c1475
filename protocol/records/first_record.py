"""The first record of a batch at a time or later: what ListOffsets looks for."""

from __future__ import annotations

from typing import Final

from . import batch
from .work_limit import Work

LOOK_STEPS: Final = 2
"""One record that is only looked at."""


def first_record(
    data: batch.Buffer, timestamp: int, start: int, work: Work | None = None
) -> tuple[int, int] | None:
    """Timestamp and offset of the first record at ``timestamp`` or later, from ``start`` on.

    None when the batch has none. Raises CorruptRecords, and TooMuchWork when to look at all of
    them would take more than ``work`` has left.
    """
    for record in batch.records(data, work=work, record_steps=LOOK_STEPS):
        if record.timestamp >= timestamp and record.offset >= start:
            return record.timestamp, record.offset
    return None
