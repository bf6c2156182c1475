"""The regular look for segments that may go, at all logs of a node.

Source: docs/spec/log.md §4.1; §9 pitfalls P13, P17 and P26.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from barnabas.protocol.errors import Refused

from .cooperative import SLICE_SECONDS
from .retention import RetentionPolicy

if TYPE_CHECKING:
    from barnabas.broker.storage.log.log import Log

log = logging.getLogger(__name__)

_SEGMENTS_MAX: Final = 16
"""So many are renamed before others get their turn."""


class RetentionPass:
    """Deletes what the policy lets go. ``high_watermark`` says how far a log is committed."""

    def __init__(
        self,
        policy: RetentionPolicy,
        now_ms: Callable[[], int],
        high_watermark: Callable[[Log], int],
    ) -> None:
        self._policy = policy
        self._now_ms = now_ms
        self._high_watermark = high_watermark
        self._from_the_future: dict[tuple[str, int], int] = {}

    async def run(self, logs: Iterable[Log]) -> None:
        """One look at each log; one whose deletion fails does not hinder the others."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + SLICE_SECONDS
        future: dict[tuple[str, int], int] = {}
        for each in logs:
            try:
                await self._look_at(each)
                self._note_future(each, future)
            except Refused as refusal:
                log.warning("could not delete old segments log=%s: %s", each, refusal)
            except Exception:  # a policy's own mistake keeps its segments, and nothing else
                log.exception("could not ask the retention policy log=%s", each)
            if loop.time() >= deadline:
                await asyncio.sleep(0)
                deadline = loop.time() + SLICE_SECONDS
        self._from_the_future = future

    async def _look_at(self, each: Log) -> None:
        while self._count(each):
            async with each.flusher.quiet:
                count = min(self._count(each), _SEGMENTS_MAX)  # anything may have happened
                first = each.segments.view.bases[0]
                if count:
                    each.delete_oldest(count)
                if each.segments.view.bases[0] == first:
                    return  # on a full disk the last segment has to stay
            await asyncio.sleep(0)

    def _count(self, each: Log) -> int:
        if each.is_offline or each.is_being_cleaned:
            return 0
        return each.count_deletable(self._policy, self._high_watermark(each), self._now_ms())

    def _note_future(self, each: Log, noted: dict[tuple[str, int], int]) -> None:
        """A segment with a timestamp still to come is kept too long: say so once."""
        oldest, key = each.segments.view.segments[0], (each.topic, each.partition)
        timestamp = oldest.indexes.max_timestamp
        if timestamp <= self._now_ms() or each.config.retention_ms < 0:
            return
        noted[key] = oldest.base_offset
        if self._from_the_future.get(key) != oldest.base_offset:
            log.warning(
                "found records from the future, retention.ms counts from there log=%s base=%d "
                "timestamp=%d",
                *(each, oldest.base_offset, timestamp),
            )
