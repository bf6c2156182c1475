"""SyncGroup, Heartbeat and LeaveGroup: what a member asks between two joins.

Source: docs/spec/coordinator.md §1.5, §1.8, §5.1 and §5.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    Member,
    MemberResult,
)
from barnabas.protocol.messages.sync_group import SyncGroupRequest

from . import rebalance_responses
from .consumer_groups.classic_members import ClassicMembers
from .consumer_groups.consumer_group import ConsumerGroup
from .cooperative import CooperativeScheduler
from .group import Group, PendingRequest, Respond
from .group_registry import GroupRegistry
from .group_state import GroupState
from .ports import Caller
from .rebalance import Rebalancer

PROTOCOL_SINCE: Final = 5
"""SyncGroup: from this version on the member says which protocol it believes in (KIP-559)."""
MEMBERS_SINCE: Final = 3
"""LeaveGroup: from this version on several members at once (KIP-345)."""


class MembershipHandler:
    """Serves SyncGroup, Heartbeat and LeaveGroup."""

    def __init__(
        self,
        registry: GroupRegistry,
        rebalancer: Rebalancer,
        scheduler: CooperativeScheduler,
        classic: ClassicMembers,
    ) -> None:
        self._classic = classic
        self._scheduler = scheduler
        self._registry = registry
        self._groups = registry.groups
        self._rebalancer = rebalancer
        self._sessions = rebalancer.sessions

    def _ownership_problem(self, group_id: str) -> ErrorCode:
        """Why the group is not served here; an id that is owned but unknown passes."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        return (
            ErrorCode.NONE
            if group_id in self._groups
            else self._registry.ownership_problem(group_id)
        )

    # -- SyncGroup ---------------------------------------------------------------------------

    def sync_group(
        self, request: SyncGroupRequest, version: int, _caller: Caller, respond: Respond
    ) -> None:
        """Answer with the assignment as soon as the leader's is stored, or with a refusal."""
        consumers = self._groups.get(request.group_id)
        if isinstance(consumers, ConsumerGroup) and consumers.consumers:
            self._classic.sync(consumers, request, version, respond)
            return
        code = self._sync_problem(request, version)
        if code:
            respond(rebalance_responses.sync_refused(code))
            return
        group = self._groups[request.group_id]
        member = group.members[request.member_id]
        if group.state is GroupState.STABLE:
            self._rebalancer.sync_received(group, member)
            self._sessions.renew(member)
            respond(rebalance_responses.synced(group, member))
            return
        assert group.state is GroupState.COMPLETING
        superseded, member.sync = member.sync, PendingRequest(version, respond)
        if superseded is not None:
            superseded.respond(rebalance_responses.sync_refused(ErrorCode.NOT_COORDINATOR))
        self._rebalancer.sync_received(group, member)
        if group.leader_id == member.member_id:
            assignments = ((item.member_id, bytes(item.assignment)) for item in request.assignments)
            self._rebalancer.store_assignment(group, assignments)

    def _sync_problem(self, request: SyncGroupRequest, version: int) -> ErrorCode:
        if version >= PROTOCOL_SINCE and None in (request.protocol_type, request.protocol_name):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        code = self._ownership_problem(request.group_id)
        if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ErrorCode.REBALANCE_IN_PROGRESS  # the client joins again, and is told 14 there
        if code:
            return code
        group = self._groups.get(request.group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return (
            group.member_problem(
                request.member_id, request.group_instance_id, request.generation_id
            )
            or self._protocol_problem(group, request)
            or group.rules.sync
        )

    @staticmethod
    def _protocol_problem(group: Group, request: SyncGroupRequest) -> ErrorCode:
        if request.protocol_type not in (None, group.protocol_type):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.protocol_name not in (None, group.protocol):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.NONE

    # -- Heartbeat ---------------------------------------------------------------------------

    def heartbeat(
        self, request: HeartbeatRequest, _version: int, _caller: Caller, respond: Respond
    ) -> None:
        """Answer whether the member may go on; its session starts anew when it may, or must join.

        While the partition loads the answer is 0: the member need not do anything yet.
        """
        group = self._groups.get(request.group_id) if request.group_id else None
        if group is not None and group.is_consumer:
            self._classic.heartbeat(group, request, respond)
            return
        if group is None:
            code = self._ownership_problem(request.group_id) or ErrorCode.UNKNOWN_MEMBER_ID
            if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                code = ErrorCode.NONE
            respond(HeartbeatResponse(error_code=code))
            return
        code = group.member_problem(
            request.member_id, request.group_instance_id, request.generation_id
        )
        if not code:
            self._sessions.renew(group.members[request.member_id])
            code = group.rules.heartbeat
        respond(HeartbeatResponse(error_code=code))

    # -- LeaveGroup --------------------------------------------------------------------------

    def leave_group(
        self, request: LeaveGroupRequest, version: int, _caller: Caller, respond: Respond
    ) -> None:
        """Let members go at once; by instance id alone an administrator removes a static one."""
        code = self._ownership_problem(request.group_id)
        if code:
            respond(LeaveGroupResponse(error_code=code))
            return
        asked = (
            request.members if version >= MEMBERS_SINCE else [Member(member_id=request.member_id)]
        )
        group = self._groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            self._leave_consumer_group(group, asked, version, respond)
            return
        results: list[MemberResult] = []

        def leave(member: Member) -> None:
            code = ErrorCode.UNKNOWN_MEMBER_ID
            if group is not None and group.state is not GroupState.DEAD:
                code = self._leave(group, member)
            results.append(
                MemberResult(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    error_code=code,
                )
            )

        def answer() -> None:
            code = self._ownership_problem(request.group_id)
            if code:  # the group went elsewhere meanwhile
                respond(LeaveGroupResponse(error_code=code))
            elif version >= MEMBERS_SINCE:
                respond(LeaveGroupResponse(members=results))
            else:
                respond(LeaveGroupResponse(error_code=results[0].error_code))

        self._scheduler.run(asked, leave, answer)

    def _leave_consumer_group(
        self, group: ConsumerGroup, asked: Sequence[Member], version: int, respond: Respond
    ) -> None:
        """Members of both protocols; told when it is committed."""
        codes, members = self._classic.leaving(group, asked)
        self._classic.leave(group, members)

        def answer(failed: ErrorCode) -> None:
            if failed:
                respond(LeaveGroupResponse(error_code=failed))
            elif version < MEMBERS_SINCE:
                respond(LeaveGroupResponse(error_code=codes[0]))
            else:
                results = [
                    MemberResult(
                        member_id=one.member_id,
                        group_instance_id=one.group_instance_id,
                        error_code=code,
                    )
                    for one, code in zip(asked, codes, strict=True)
                ]
                respond(LeaveGroupResponse(members=results))

        self._classic.when_left(group, answer)

    def _leave(self, group: Group, asked: Member) -> ErrorCode:
        member_id, instance_id = asked.member_id, asked.group_instance_id
        if not member_id and instance_id is not None:
            static = group.static_member(instance_id)
            if static is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            self._rebalancer.remove(group, static, asked.reason or "removed by instance id")
            return ErrorCode.NONE
        if instance_id is None and member_id in group.pending_members:
            self._rebalancer.remove_pending_member(group, member_id)
            return ErrorCode.NONE
        code = group.identity_problem(member_id, instance_id)
        if not code:
            reason = asked.reason or "it left"
            self._rebalancer.remove(group, group.members[member_id], reason)
        return code
