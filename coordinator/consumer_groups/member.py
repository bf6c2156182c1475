"""A member of a consumer group: what it says of itself, what it holds, and its timers.

Source: docs/spec/consumer-groups.md §2.1. Pure: deadlines are only kept here,
consumer_heartbeats.py moves them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .current_assignment import CurrentAssignment, TopicIdPartition

if TYPE_CHECKING:
    from barnabas.coordinator.timer import Deadline

BACK_SOON: int = -2
"""The member epoch of a static member that left and is to come back."""


@dataclass(frozen=True, slots=True)
class ClassicMetadata:
    """What only a member of the classic protocol has."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """Name and metadata of each protocol it offers, the preferred one first."""

    def protocol_names(self) -> frozenset[str]:
        """Of the protocols it offers, each once."""
        return frozenset([name for name, _ in self.protocols])


@dataclass(frozen=True, slots=True)
class MemberProfile:
    """The record of type 5 of one member."""

    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    """How long it may take to give partitions up."""
    instance_id: str | None = None
    rack_id: str | None = None
    names: frozenset[str] = frozenset()
    """Topics that it names, whether they exist or not."""
    regex: str | None = None
    """Its expression; None for none, never empty."""
    assignor: str | None = None
    """The assignor it prefers; None leaves it to the others."""
    classic: ClassicMetadata | None = None
    """None for a member that speaks the new protocol."""


class ConsumerMember:
    """One member as the coordinator of its group knows it."""

    __slots__ = (
        "current",
        "is_fenced",
        "is_unconfirmed",
        "member_id",
        "profile",
        "rebalance",
        "session",
    )

    session: Deadline
    """When it counts as gone; set by whoever adds the member to a group."""
    rebalance: Deadline
    """When it should have given up what it was told to; set with the session."""

    def __init__(
        self, member_id: str, profile: MemberProfile, current: CurrentAssignment | None = None
    ) -> None:
        self.member_id = member_id
        self.profile = profile
        self.current = current or CurrentAssignment()
        self.is_unconfirmed = current is not None
        """It has not said yet that it has what it was assigned last: it is told again (C13)."""
        self.is_fenced = False
        """What it held was another's as well, by the log: it has to come again (C49)."""

    @property
    def epoch(self) -> int:
        """Its member epoch; BACK_SOON while a static member is away."""
        return self.current.member_epoch

    @property
    def is_classic(self) -> bool:
        """Whether it speaks the classic protocol."""
        return self.profile.classic is not None

    def holds_exactly(self, owned: frozenset[TopicIdPartition]) -> bool:
        """Whether ``owned`` is what it was assigned."""
        return owned == self.current.assigned.keys()

    def may_commit(self, partition: TopicIdPartition, epoch: int) -> bool:
        """Whether a commit from ``epoch``, an earlier one, is of what it has held since (C58)."""
        since = self.current.assigned.get(partition)
        if since is None:
            since = self.current.revoking.get(partition)
        return since is not None and since <= epoch
