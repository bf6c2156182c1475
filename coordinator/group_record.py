"""A group to its record in the offsets topic and back.

Source: docs/spec/coordinator.md §2.3 and §5.8. The state is not stored: with members a loaded group
is Stable, without them Empty; a rebalance that was under way is forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.protocol.offsets_topic import GroupRecord, MemberRecord

from .group import Group, Member
from .group_registry import GroupTerm
from .group_state import GroupState

MEMBER_BYTES_MIN: Final = 24
"""What a member takes beside its texts and bytes: two timeouts and the lengths of the others."""


def record_of(group: Group, assignments: Mapping[str, bytes]) -> GroupRecord:
    """The group as it would be stored with these assignments by member id."""
    has_members = bool(group.members)
    return GroupRecord(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol if has_members else None,
        leader=group.leader_id if has_members else None,
        current_state_timestamp=-1 if group.since_ms is None else group.since_ms,
        members=[
            MemberRecord(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(group.protocol),
                assignment=assignments.get(member.member_id, b""),
            )
            for member in group.members.values()
        ],
    )


def is_larger(group: Group, bytes_max: int) -> bool:
    """Whether the record of the group is larger for its members alone, whatever they are assigned.

    Looks at no more of them than it takes to tell.
    """
    size = 0
    for member in group.members.values():
        size += MEMBER_BYTES_MIN + len(member.member_id) + len(member.client_id)
        size += len(member.client_host) + len(member.metadata(group.protocol))
        if size > bytes_max:
            return True
    return False


def group_of(group_id: str, record: GroupRecord, term: GroupTerm) -> Group:
    """A group as its last record tells, its timers not yet set."""
    since = record.current_state_timestamp
    group = Group(
        group_id,
        term,
        since_ms=None if since < 0 else since,
        state=GroupState.STABLE if record.members else GroupState.EMPTY,
        generation=record.generation,
        protocol_type=record.protocol_type or None,
        protocol=record.protocol,
    )
    for item in record.members:
        member = Member(
            item.member_id,
            instance_id=item.group_instance_id,
            client_id=item.client_id,
            client_host=item.client_host,
            session_timeout_ms=item.session_timeout,
            rebalance_timeout_ms=item.rebalance_timeout,
            protocols=((record.protocol or "", bytes(item.subscription)),),
            assignment=bytes(item.assignment),
        )
        group.add(member, group.protocol_type)
    if record.leader in group.members:
        group.leader_id = record.leader
    group.refresh_subscribed()
    return group
