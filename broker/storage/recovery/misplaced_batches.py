"""Batches whose own offset was damaged: no checksum covers it, only their neighbours tell.

Two batches contradict each other when the second does not begin behind the end of the first. Which
of them is wrong shows in what lies around both.
Source: docs/spec/log.md §1.2 (what the checksum covers); docs/log.md, "Damage below the recovery
point".
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.storage.segment.batch_headers import BatchHeader, Read, header_at
from barnabas.protocol.records.header import HEADER_BYTES, MAGIC_AT
from barnabas.protocol.records.walk import Entry as WalkedEntry

MISPLACED: Final = "its offset contradicts those around it"


def misplaced_before(
    read: Read, position: int, end: int, *, last: WalkedEntry, next_offset: int, upper: int
) -> BatchHeader | None:
    """The batch at ``position`` when it is right, and ``last``, which ends there, is wrong.

    It does not begin behind ``last``. ``next_offset`` is where ``last`` should begin, or behind
    that where offsets may be missing; no offset reaches ``upper``, nor any byte ``end``.
    """
    if last.base_offset <= next_offset:
        return None  # nothing is missing before it: its place is proven
    second = _entry(read, position, end)
    if second is None or not next_offset <= second.base_offset <= last.last_offset:
        return None
    width = last.last_offset - last.base_offset + 1
    if second.base_offset == next_offset + width:
        return second  # there is just room for it where it should be
    third = _entry(read, position + second.size, end)
    behind = upper if third is None else third.base_offset
    return second if behind <= last.last_offset else None


def _entry(read: Read, position: int, end: int) -> BatchHeader | None:
    """The header at ``position`` of the newest format, if a whole entry can be there."""
    if position + HEADER_BYTES > end:
        return None
    head = read(position, HEADER_BYTES)
    if len(head) < HEADER_BYTES or head[MAGIC_AT] != 2:
        return None
    found = header_at(head, 0, position)
    is_whole = HEADER_BYTES <= found.size <= end - position
    return found if is_whole and found.base_offset <= found.last_offset else None
