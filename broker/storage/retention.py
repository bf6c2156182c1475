"""Retention: which segments of a log may go, and the regular look for them at all logs of a node.

A policy is a class without arguments, named by ``log.retention.policy.class`` as module:Class.
It sees closed and active segments and names how many of the oldest are to go; that a log never
starts above its high watermark, and that what lies below its start goes in any case, is not left
to it. Source: docs/spec/log.md §4.1; §9 pitfalls P13, P17, P26 and P43.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Final, Protocol

from barnabas.broker.settings.log_config import LogConfig
from barnabas.protocol.errors import Refused
from barnabas.protocol.settings import ConfigError

from .cooperative import SLICE_SECONDS

if TYPE_CHECKING:
    from .log.log import Log
    from .log.segments import SegmentView

log = logging.getLogger(__name__)

_SEGMENTS_MAX: Final = 16
"""So many are renamed before others get their turn."""


class SegmentFacts(Protocol):
    """What a policy may know about a segment."""

    @property
    def base_offset(self) -> int:
        """The segment's records begin here or later."""

    @property
    def size(self) -> int:
        """Bytes of batches."""

    @property
    def largest_timestamp(self) -> int:
        """Of a record, in ms since 1970; the file's last change when no record has a time."""

    @property
    def modified_ms(self) -> int:
        """Wall clock of the file's last change."""


class RetentionPolicy(Protocol):
    """Decides what is deleted from topics whose cleanup.policy names ``delete``."""

    def expired(
        self, topic: str, segments: Sequence[SegmentFacts], config: LogConfig, now_ms: int
    ) -> int:
        """How many of ``segments``, oldest first, are to go; all of them is allowed.

        ``config`` are the settings the topic has now. Must neither block nor keep ``segments``.
        """


class TimeAndSize:
    """Kafka's rules: retention.bytes, then retention.ms for what that leaves."""

    def expired(
        self, topic: str, segments: Sequence[SegmentFacts], config: LogConfig, now_ms: int
    ) -> int:
        """See :class:`RetentionPolicy`."""
        count = _beyond_size(segments, config.retention_bytes)
        return count + _beyond_age(segments[count:], config.retention_ms, now_ms)


def _beyond_size(segments: Sequence[SegmentFacts], bytes_max: int) -> int:
    """The log never shrinks below ``bytes_max``; -1 for no limit."""
    if bytes_max < 0:
        return 0
    excess = sum(segment.size for segment in segments) - bytes_max
    count = 0
    for segment in segments:
        excess -= segment.size
        if excess < 0:
            break
        count += 1
    return count


def _beyond_age(segments: Sequence[SegmentFacts], age_ms_max: int, now_ms: int) -> int:
    if age_ms_max < 0:
        return 0
    old = takewhile(lambda segment: now_ms - segment.largest_timestamp > age_ms_max, segments)
    return sum(1 for _ in old)


def count_deletable(
    view: SegmentView,
    topic: str,
    config: LogConfig,
    policy: RetentionPolicy,
    *,
    start_offset: int,
    end_offset: int,
    high_watermark: int,
    now_ms: int,
) -> int:
    """How many of the oldest segments may go now.

    The active one is counted only when it is not empty and all before it go too.
    """
    uppers = [*view.bases[1:], end_offset]
    committed = sum(1 for _ in takewhile(lambda upper: upper <= high_watermark, uppers))
    if not view.segments[-1].size:
        committed = min(committed, len(uppers) - 1)
    below_start = sum(1 for _ in takewhile(lambda upper: upper <= start_offset, uppers[:-1]))
    count = below_start
    if "delete" in config.cleanup_policy:
        left = view.segments[below_start:]
        count += min(max(policy.expired(topic, left, config, now_ms), 0), len(left))
    return min(count, committed)


def load_policy(name: str) -> RetentionPolicy:
    """The policy that ``name`` means, as module:Class; raises ConfigError."""
    module, _, cls = name.partition(":")
    try:
        policy = getattr(importlib.import_module(module), cls)()
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ConfigError(f"log.retention.policy.class={name}: {error}") from error
    if not callable(getattr(policy, "expired", None)):
        raise ConfigError(f"log.retention.policy.class={name}: has no method expired")
    loaded: RetentionPolicy = policy
    return loaded


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
        for one in logs:
            try:
                await self._look_at(one)
                self._note_future(one, future)
            except Refused as refusal:
                log.warning("could not delete old segments log=%s: %s", one, refusal)
            except Exception:  # a policy's own mistake keeps its segments, and nothing else
                log.exception("could not ask the retention policy log=%s", one)
            if loop.time() >= deadline:
                await asyncio.sleep(0)
                deadline = loop.time() + SLICE_SECONDS
        self._from_the_future = future

    async def _look_at(self, one: Log) -> None:
        while self._count(one):
            async with one.flusher.flush_lock:
                count = min(self._count(one), _SEGMENTS_MAX)  # anything may have happened
                first = one.segments.view.bases[0]
                if count:
                    one.delete_oldest(count)
                if one.segments.view.bases[0] == first:
                    return  # on a full disk the last segment has to stay
            await asyncio.sleep(0)

    def _count(self, one: Log) -> int:
        if one.is_offline or one.is_being_cleaned:
            return 0
        return one.count_deletable(self._policy, self._high_watermark(one), self._now_ms())

    def _note_future(self, one: Log, noted: dict[tuple[str, int], int]) -> None:
        """A segment with a timestamp still to come is kept too long: say so once."""
        oldest, key = one.segments.view.segments[0], (one.topic, one.partition)
        timestamp = oldest.indexes.max_timestamp
        if timestamp <= self._now_ms() or one.config.retention_ms < 0:
            return
        noted[key] = oldest.base_offset
        if self._from_the_future.get(key) != oldest.base_offset:
            log.warning(
                "found records from the future, retention.ms counts from there log=%s base=%d "
                "timestamp=%d",
                *(one, oldest.base_offset, timestamp),
            )
