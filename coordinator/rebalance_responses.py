"""Answers to JoinGroup and SyncGroup, as each version of them wants to be told.

Source: docs/spec/coordinator.md §5.3 (points 8 and 9), §5.5 and §5.6.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Self

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import join_group
from barnabas.protocol.messages.join_group import JoinGroupResponse
from barnabas.protocol.messages.sync_group import SyncGroupResponse

from .group import Group, Member

NO_GENERATION: Final = -1
NULL_PROTOCOL_SINCE: Final = 7
"""JoinGroup: from this version on an error has no protocol name, before it has an empty one."""
SKIP_ASSIGNMENT_SINCE: Final = 9
"""JoinGroup: a leader that comes back may be told to leave the assignment as it is (KIP-814)."""


class Generation(NamedTuple):
    """What every member is told of a generation, kept for those who are told a little later."""

    number: int
    protocol_type: str | None
    protocol: str
    leader: str

    @classmethod
    def of(cls, group: Group) -> Self:
        """As the group is now."""
        leader = group.leader_id or ""
        return cls(group.generation, group.protocol_type, group.protocol or "", leader)

    def joined(
        self, member_id: str, members: Sequence[join_group.Member] = ()
    ) -> JoinGroupResponse:
        """A member is in it; ``members`` are for the leader alone."""
        return JoinGroupResponse(
            generation_id=self.number,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=self.leader,
            member_id=member_id,
            members=members,
        )


def joined(group: Group, member: Member) -> JoinGroupResponse:
    """The member is in this generation; only the leader is told of the others."""
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol or "",
        leader=group.leader_id or "",
        member_id=member.member_id,
        members=member_list(group) if group.leader_id == member.member_id else [],
    )


def rejoined(
    group: Group, member: Member, *, leader_id: str, skip_assignment: bool
) -> JoinGroupResponse:
    """A static member is back in the generation it left, and nobody else notices.

    Who leads is told apart: before version 9 a leader that came back must not know that it leads.
    """
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol or "",
        leader=leader_id,
        skip_assignment=skip_assignment,
        member_id=member.member_id,
        members=member_list(group) if skip_assignment else [],
    )


def member_list(group: Group) -> list[join_group.Member]:
    """All members, as the leader needs them to assign partitions."""
    return [member_entry(member, group.protocol) for member in group.members.values()]


def member_entry(member: Member, protocol: str | None) -> join_group.Member:
    """One member, with what it says of itself."""
    return join_group.Member(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        metadata=member.metadata(protocol),
    )


def join_refused(code: ErrorCode, version: int, member_id: str = "") -> JoinGroupResponse:
    """No place in the group, and why; the member id is what the client shall use from now on."""
    return JoinGroupResponse(
        error_code=code,
        generation_id=NO_GENERATION,
        protocol_name=None if version >= NULL_PROTOCOL_SINCE else "",
        member_id=member_id,
    )


def synced(group: Group, member: Member) -> SyncGroupResponse:
    """What the member is assigned."""
    return assigned(group.protocol_type, group.protocol, member.assignment)


def assigned(
    protocol_type: str | None, protocol: str | None, assignment: bytes
) -> SyncGroupResponse:
    """The same, for a group that may have gone on since."""
    return SyncGroupResponse(
        protocol_type=protocol_type, protocol_name=protocol, assignment=assignment
    )


def sync_refused(code: ErrorCode) -> SyncGroupResponse:
    """No assignment, and why."""
    return SyncGroupResponse(error_code=code)
