"""The step of a member that all its requests come to: what it says counts, then what it is told.

Source: docs/spec/consumer-groups.md §2.2, points 5 to 8.
"""

from __future__ import annotations

import logging
from typing import TypeAlias

from barnabas.protocol.errors import ErrorCode

from .consumer_group import ConsumerGroup
from .current_assignment import MemberState, Reconciliation, TopicIdPartition, reconcile
from .group_machine import ConsumerGroupMachine, Keys
from .member import ConsumerMember, MemberProfile

log = logging.getLogger(__name__)

Owned: TypeAlias = frozenset[TopicIdPartition] | None
"""What a member says that it has; None where it says nothing (C95)."""


class MemberSteps:
    """Takes members of both protocols one step on."""

    def __init__(self, machine: ConsumerGroupMachine) -> None:
        self._machine = machine
        self._catalog = machine.catalog

    def take(
        self, group: ConsumerGroup, member: ConsumerMember, profile: MemberProfile, owned: Owned
    ) -> tuple[Keys, ErrorCode]:
        """What has changed, to be written; and 15 where an assignor failed."""
        before = member.profile
        keys = self._machine.describe(group, member, profile)
        has_changed = (before.names, before.regex) != (profile.names, profile.regex)
        keys += self._bumps(group, member, before)
        code = ErrorCode.NONE
        try:
            keys += self._machine.assign(group)
        except Exception:
            log.exception("assignor failed group=%s", group.group_id)
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        keys += self._reconcile(group, member, owned, has_subscription_changed=has_changed)
        return keys, code

    def _bumps(self, group: ConsumerGroup, member: ConsumerMember, before: MemberProfile) -> Keys:
        """One epoch on where partitions may have to move."""
        after = member.profile
        has_new_names = before.names != after.names
        has_new_regex = before.regex != after.regex
        is_due = has_new_names or (has_new_regex and group.is_resolved(after))
        is_new = not (before.names or before.regex or member.epoch)
        has_moved = before.assignor != after.assignor and not is_new
        has_new_metadata = self._machine.has_new_metadata(
            group, is_due=has_new_names or has_new_regex
        )
        if is_due or has_moved or has_new_metadata:
            return self._machine.bump(group)
        return []

    def _reconcile(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        owned: Owned,
        *,
        has_subscription_changed: bool,
    ) -> Keys:
        """The member's next step (docs/spec/consumer-groups.md §2.4)."""
        member_id, current = member.member_id, member.current
        is_settled = (
            current.state is MemberState.STABLE and current.member_epoch == group.assignment_epoch
        )
        keys: Keys = []
        if not is_settled or has_subscription_changed:
            step = Reconciliation(
                group.assignment_epoch,
                group.targets.get(member_id, {}),
                group.topic_ids(member.profile, self._catalog),
                has_subscription_changed,
                owned,
                lambda partition: group.is_held_by_another(partition, member_id),
            )
            keys = self._machine.move(group, member, reconcile(current, step))
        if owned is not None and member.holds_exactly(owned):
            member.is_unconfirmed = False
        return keys
