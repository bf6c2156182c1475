"""Which topics the expressions of a group stand for: found in turns, taken over at once.

Source: docs/spec/consumer-groups.md §3.1, C41 and C42.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

from barnabas.coordinator.cooperative import Steps, Turn

from .consumer_group import ConsumerGroup, ResolvedRegex
from .topic_regex import TopicRegex

MayDescribe: TypeAlias = Callable[[str], bool]
"""Whether who asks may see a topic. His rights filter what all of the group get."""

_STEPS_A_DECISION = 3


@lru_cache(maxsize=64)
def compiled(pattern: str) -> TopicRegex:
    """An expression, kept for the next one who has it. Raises InvalidTopicRegex."""
    return TopicRegex(pattern)


def resolve(
    patterns: Sequence[str], names: Sequence[str], may_describe: MayDescribe
) -> Steps[Mapping[str, frozenset[str]]]:
    """The topics of each expression that the asker may see."""
    found, turn = {}, Turn()
    for pattern in patterns:
        topics = yield from compiled(pattern).matching(names)
        shown = []
        for topic in topics:
            if may_describe(topic):
                shown.append(topic)
            if turn.is_over(_STEPS_A_DECISION):
                yield
        found[pattern] = frozenset(shown)
    return found


def take(
    group: ConsumerGroup, found: Mapping[str, frozenset[str]], version: int, now_ms: int
) -> list[str]:
    """Let the group's expressions stand for what was found; those that changed.

    What came for an expression that nobody has any more is dropped.
    """
    changed = []
    for regex, topics in found.items():
        if regex not in group.regexes:
            continue
        known = group.resolved.get(regex)
        if known is None or known.topics != topics:
            changed.append(regex)
        group.resolved[regex] = ResolvedRegex(topics, version, now_ms)
    group.note_subscribed()
    return changed
