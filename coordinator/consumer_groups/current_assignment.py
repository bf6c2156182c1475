"""What a member holds now, and its next step towards what it is to have.

A partition goes from one member to another in three steps, each with a heartbeat: its holder is
told to give it up (UNREVOKED_PARTITIONS), says that it has, and only then may the other be given
it, who waited meanwhile (UNRELEASED_PARTITIONS). So no partition is ever held by two.

::

    STABLE ── new target epoch ──> something to give up? ── yes ──> UNREVOKED_PARTITIONS
      ^                                   │ no                              │ given up
      │                                   v                                 │
      └──── nobody else holds it ── UNRELEASED_PARTITIONS <─────────────────┘

Pure: a change makes a new object. Source: docs/spec/consumer-groups.md §2.4; KIP-848.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TypeAlias

from .assignor import Assignment

TopicIdPartition: TypeAlias = tuple[bytes, int]

Held: TypeAlias = Mapping[TopicIdPartition, int]
"""Partitions that a member holds, each with the member epoch at which it was assigned."""


class MemberState(IntEnum):
    """Where a member is on its way to its target."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has not given up yet what it was told to."""
    UNRELEASED_PARTITIONS = 2
    """It is at the target's epoch, and waits for partitions that others still hold."""
    UNKNOWN = 127
    """Written by a later release."""


@dataclass(frozen=True, slots=True)
class CurrentAssignment:
    """The record of type 8 of one member."""

    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Held = field(default_factory=dict)
    revoking: Held = field(default_factory=dict)
    """Told to give up, still counted as its own."""


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """What a member's next step depends on."""

    target_epoch: int
    target: Assignment
    subscribed: Set[bytes]
    """Topic ids that exist and that the member subscribes to."""
    has_subscription_changed: bool
    owned: Set[TopicIdPartition] | None
    """What the member says it has; None where its heartbeat says nothing (C95)."""
    is_held_by_another: Callable[[TopicIdPartition], bool]


def reconcile(current: CurrentAssignment, step: Reconciliation) -> CurrentAssignment:
    """The member's next state; the same object where nothing changes."""
    if current.state is MemberState.STABLE and current.member_epoch == step.target_epoch:
        return _without_unsubscribed(current, step) if step.has_subscription_changed else current
    if current.state is MemberState.UNREVOKED_PARTITIONS and _may_have(current.revoking, step):
        return _without_unsubscribed(current, step) if step.has_subscription_changed else current
    return _towards_target(current, step)


def _towards_target(current: CurrentAssignment, step: Reconciliation) -> CurrentAssignment:
    wanted = {
        (topic_id, partition)
        for topic_id, partitions in step.target.items()
        if topic_id in step.subscribed
        for partition in partitions
    }
    kept = {found: epoch for found, epoch in current.assigned.items() if found in wanted}
    given_up = {found: epoch for found, epoch in current.assigned.items() if found not in wanted}
    if given_up and _may_have(given_up, step):
        return CurrentAssignment(
            current.member_epoch,
            current.member_epoch,
            MemberState.UNREVOKED_PARTITIONS,
            kept,
            given_up,
        )
    # what was being given up has been; it blocks nobody, the member itself least (KAFKA-19449)
    missing = sorted(wanted - kept.keys())
    free = [found for found in missing if not step.is_held_by_another(found)]
    is_waiting = len(free) < len(missing)
    return CurrentAssignment(
        step.target_epoch,
        current.member_epoch,
        MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE,
        kept | dict.fromkeys(free, step.target_epoch),  # kept ones keep their epochs (KIP-1251)
    )


def _without_unsubscribed(current: CurrentAssignment, step: Reconciliation) -> CurrentAssignment:
    """Take what the member no longer subscribes to, before there is a target that says so."""
    left = {
        found: epoch for found, epoch in current.assigned.items() if found[0] not in step.subscribed
    }
    if not left:
        return current
    kept = {found: epoch for found, epoch in current.assigned.items() if found not in left}
    if not _may_have(left, step):
        return replace(current, assigned=kept)
    return replace(
        current,
        state=MemberState.UNREVOKED_PARTITIONS,
        assigned=kept,
        revoking={**current.revoking, **left},
    )


def _may_have(partitions: Held, step: Reconciliation) -> bool:
    """Whether the member may still read one of these: it has not said that it does not."""
    return step.owned is None or not step.owned.isdisjoint(partitions)
