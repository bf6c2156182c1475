"""Indexes of large segments that turned out bad, made again in slices while their readers wait.

Source: docs/spec/log.md §2.3 and §9 pitfall P2; §5.8.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.storage.cooperative import in_slices, uninterrupted
from barnabas.broker.storage.files import Files, StorageError
from barnabas.broker.storage.segment.segment import Segment

if TYPE_CHECKING:
    from barnabas.broker.storage.log.log import Log

log = logging.getLogger(__name__)


class IndexRepair:
    """Makes one index after another."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._asked: asyncio.Queue[tuple[Log, Segment]] = asyncio.Queue()
        self._waiting: set[Segment] = set()

    def ask(self, owner: Log, segment: Segment) -> None:
        """Repair a segment of ``owner``; each reader that meets it asks again."""
        if segment not in self._waiting:
            self._waiting.add(segment)
            self._asked.put_nowait((owner, segment))

    async def run(self) -> None:
        """Repair what is asked for, for ever."""
        while True:
            owner, segment = await self._asked.get()
            try:
                await self._repair(owner, segment)
            except StorageError as error:
                owner.note_failure(error)
            finally:
                self._waiting.discard(segment)

    async def _repair(self, owner: Log, segment: Segment) -> None:
        began = asyncio.get_running_loop().time()
        if not _has(owner, segment) or not await in_slices(segment.repair()):
            return  # truncated or deleted meanwhile: who reads it next asks again
        async with owner.flusher.flush_lock:
            if not _has(owner, segment):
                return
            sync, save, state = segment.prepare_sync()
            await uninterrupted(self._files.off_loop(partial(_all, sync, save)))
            segment.indexes.mark_saved(state)
        log.info(
            "rebuilt indexes path=%s ms=%d",
            segment.path(".index"),
            (asyncio.get_running_loop().time() - began) * 1000,
        )


def _has(owner: Log, segment: Segment) -> bool:
    return not owner.is_offline and segment in owner.segments.view.segments


def _all(*steps: Callable[[], None]) -> None:
    for step in steps:
        step()
