"""Damage that a reader met, while the log is in use: how far it reaches is found out.

Source: docs/spec/log.md §3.4 and §3.7 check 4; docs/spec/reliability.md §2 failure 14.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.storage.cooperative import in_slices, uninterrupted
from barnabas.broker.storage.files import Files, StorageError
from barnabas.broker.storage.segment.gaps import Gaps
from barnabas.broker.storage.segment.segment import Segment

from .quarantine import QuarantineEntry, find_gaps, report, write_quarantine

if TYPE_CHECKING:
    from barnabas.broker.storage.log.log import Log

log = logging.getLogger(__name__)


class DamageInspection:
    """Looks at one log after another."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.found: Callable[[Log], None] = lambda owner: None
        """Told of a log in which damage was looked for, whatever was found."""
        self._asked: asyncio.Queue[Log] = asyncio.Queue()

    def ask(self, owner: Log) -> None:
        """A segment of ``owner`` is suspect; said again by each reader that meets it."""
        self._asked.put_nowait(owner)

    async def run(self) -> None:
        """Look at what is asked for, for ever."""
        while True:
            owner = await self._asked.get()
            try:
                await self.inspect(owner)
            except StorageError as error:
                owner.note_failure(error)

    async def inspect(self, owner: Log) -> None:
        """Quarantine what is bad in the suspect segments of a log. Raises StorageError."""
        view = owner.segments.view
        uppers = (view.upper(index, owner.end_offset) for index in range(len(view.segments)))
        suspects = [pair for pair in zip(view.segments, uppers, strict=True) if pair[0].is_suspect]
        for segment, upper in suspects:
            if not owner.is_offline and segment in owner.segments.view.segments:
                await self._verify(owner, segment, upper)
        if suspects and not owner.is_offline:
            segments = owner.segments.view.segments
            notes = [
                QuarantineEntry(segment.base_offset, gap)
                for segment in segments
                for gap in segment.gaps
            ]
            await uninterrupted(
                self._files.off_loop(partial(write_quarantine, self._files, owner.directory, notes))
            )
            self.found(owner)

    async def _verify(self, owner: Log, segment: Segment, upper: int) -> None:
        size = segment.size
        segment.is_suspect = False
        segment.hold()
        try:
            gaps = await in_slices(
                find_gaps(segment.read, size, base_offset=segment.base_offset, upper=upper)
            )
        finally:
            segment.release()
        if segment not in owner.segments.view.segments or segment.size < size:
            return  # truncated or deleted meanwhile: who reads what is left tells again
        for gap in set(gaps).difference(segment.gaps):
            report(segment.path(".log"), gap)
        segment.quarantine(Gaps(gaps))
