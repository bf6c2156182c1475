"""What a group's offsets are committed with: the offsets themselves, and the member that commits.

Source: docs/spec/coordinator.md §1.6; KIP-447 (the member's generation fences it in transactions).
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import NamedTuple, Protocol

from .topology import TopicPartition


class CommittedOffset(NamedTuple):
    """What a group has committed in one partition: the next offset to read."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class GroupMetadata(NamedTuple):
    """Who commits offsets of a group: a member at one moment, or nobody in particular.

    With generation -1 and no member the coordinator takes the offsets from whoever sends them:
    for a group without members, whose partitions were chosen by the application.
    """

    group: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


class OffsetsSource(Protocol):
    """A consumer, as far as a transaction stores its offsets."""

    def offsets_for_transaction(
        self,
    ) -> Awaitable[tuple[GroupMetadata, Mapping[TopicPartition, CommittedOffset]]]:
        """The member, and where everything it was handed out ends."""
        ...

    def offsets_sent(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """These are part of the transaction now: what was read before them is taken care of."""
        ...
