"""Which segments of a log may go: the rules, and the policy that a node can replace.

A policy is a class without arguments, named by ``log.retention.policy.class`` as module:Class.
It sees closed and active segments and names how many of the oldest are to go; that a log never
starts above its high watermark, and that what lies below its start goes in any case, is not left
to it. Source: docs/spec/log.md §4.1; §9 pitfalls P17 and P43.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from itertools import takewhile
from typing import Protocol

from barnabas.broker.settings.log_config import LogConfig
from barnabas.broker.storage.log.segments import SegmentView
from barnabas.protocol.settings import ConfigError


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
    old = takewhile(lambda each: now_ms - each.largest_timestamp > age_ms_max, segments)
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
