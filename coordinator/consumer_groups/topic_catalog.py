"""What consumer groups of the new protocol ask of their node: topics with their ids.

Source: docs/spec/consumer-groups.md §6, C61. Tests give a list in memory, a node its metadata.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from .assignor import SubscribedTopic


class TopicCatalog(Protocol):
    """The topics of the cluster; a question costs a look-up."""

    @property
    def version(self) -> int:
        """Grows when a topic comes, goes, or has another id or other partitions."""

    @property
    def is_whole(self) -> bool:
        """Whether all topics are known: until then none is called absent (C63)."""

    @property
    def is_offered(self) -> bool:
        """Whether the new protocol is on: every node knows it, and ids are told (C3)."""

    def topic(self, name: str) -> SubscribedTopic | None:
        """A topic with its id; None when there is none, or it has no id."""

    def name_of(self, topic_id: bytes) -> str | None:
        """Its name; None when no topic has this id."""

    def names(self) -> Collection[str]:
        """All topics that expressions may match: none that is internal (C42)."""


class NoTopics:
    """A node on which the new protocol is off."""

    version = 0
    is_whole = False
    is_offered = False

    def topic(self, name: str) -> SubscribedTopic | None:
        """None."""

    def name_of(self, topic_id: bytes) -> str | None:
        """None."""

    def names(self) -> Collection[str]:
        """None at all."""
        return ()
