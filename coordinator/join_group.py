"""JoinGroup: who gets into a group, as whom, and what it costs the others.

Source: docs/spec/coordinator.md §5.3 and §5.6. rebalance.py carries out what is decided here.
"""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass
from functools import partial
from typing import Final

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.join_group import JoinGroupRequest

from . import rebalance_responses
from .config import CoordinatorConfig
from .consumer_groups.classic_members import ClassicMembers
from .consumer_groups.consumer_group import ConsumerGroup
from .consumer_groups.conversion import GroupConversion
from .group import Group, Member, PendingRequest, Protocols, Respond
from .group_registry import GroupRegistry
from .group_state import GroupState
from .offsets_journal import GROUP_ERRORS
from .ports import Caller
from .rebalance import Rebalancer

HANDSHAKE_SINCE: Final = 4
"""From this version on a dynamic member must learn its id before it is let in (KIP-394)."""


@dataclass(frozen=True, slots=True)
class _JoinTerms:
    """What a member asks for, and what it goes back to when its return cannot be stored."""

    protocols: Protocols
    session_timeout_ms: int
    rebalance_timeout_ms: int

    @classmethod
    def asked(cls, request: JoinGroupRequest, version: int) -> _JoinTerms:
        """From a request; version 0 has one timeout for both."""
        return cls(
            tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
            request.session_timeout_ms,
            request.rebalance_timeout_ms if version >= 1 else request.session_timeout_ms,
        )

    @classmethod
    def of(cls, member: Member) -> _JoinTerms:
        """Those that hold now."""
        return cls(member.protocols, member.session_timeout_ms, member.rebalance_timeout_ms)

    def hold_for(self, group: Group, member: Member) -> None:
        """Let them hold from now on."""
        group.update(
            member,
            protocols=self.protocols,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
        )


class JoinGroupHandler:
    """Serves JoinGroup."""

    def __init__(
        self,
        registry: GroupRegistry,
        rebalancer: Rebalancer,
        config: CoordinatorConfig,
        rng: random.Random,
        conversion: GroupConversion,
        classic: ClassicMembers,
    ) -> None:
        self._classic = classic
        self._conversion = conversion
        self._registry = registry
        self._rebalancer = rebalancer
        self._sessions = rebalancer.sessions
        self._config = config
        self._random = rng

    def join_group(
        self, request: JoinGroupRequest, version: int, caller: Caller, respond: Respond
    ) -> None:
        """Answer at once with a refusal or a member id, or when the rebalance completes."""
        code = self._request_problem(request)
        if code:
            respond(rebalance_responses.join_refused(code, version, request.member_id))
            return
        group = self._registry.groups.get(request.group_id)
        if group is None:
            group = self._rebalancer.create_group(request.group_id)
        if isinstance(group, ConsumerGroup) and group.consumers:
            self._classic.join(group, request, version, caller, respond)
            return
        terms = _JoinTerms.asked(request, version)
        if not self._has_room(group, request):
            member = group.members.get(request.member_id)
            if member is not None:
                self._rebalancer.remove(group, member, "the group is full")
            respond(rebalance_responses.join_refused(ErrorCode.GROUP_MAX_SIZE_REACHED, version))
        elif not group.can_take(request.protocol_type, terms.protocols):
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            respond(rebalance_responses.join_refused(code, version, request.member_id))
        elif isinstance(group, ConsumerGroup):
            self._join_consumer_group(group, request, version, caller, respond)
        elif request.member_id:
            self._known(group, request, terms, caller, PendingRequest(version, respond))
        else:
            self._unknown(group, request, terms, caller, PendingRequest(version, respond))

    def _join_consumer_group(
        self,
        group: ConsumerGroup,
        request: JoinGroupRequest,
        version: int,
        caller: Caller,
        respond: Respond,
    ) -> None:
        """One without members goes on as a classic group."""
        self._conversion.to_classic(group)
        self.join_group(request, version, caller, respond)

    def _request_problem(self, request: JoinGroupRequest) -> ErrorCode:
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        is_known = request.group_id in self._registry.groups
        code = ErrorCode.NONE if is_known else self._registry.ownership_problem(request.group_id)
        if code:
            return code
        if not self._sessions.is_allowed(request.session_timeout_ms):
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if request.member_id and not is_known:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE

    def _has_room(self, group: Group, request: JoinGroupRequest) -> bool:
        """Whether ``group.max.size`` lets this one in.

        While a group prepares, those count who have joined: among more members than there is room
        for, the first to rejoin stay.
        """
        if group.state is GroupState.EMPTY:
            return True
        member = group.members.get(request.member_id)
        if group.state is GroupState.PREPARING:
            has_pending_request = member is not None and member.join is not None
            return has_pending_request or group.joined < self._config.group_members_max
        is_return = request.group_instance_id in group.static_members
        has_room = len(group.members) < self._config.group_members_max
        return member is not None or is_return or has_room

    # -- somebody new ------------------------------------------------------------------------

    def _unknown(
        self,
        group: Group,
        request: JoinGroupRequest,
        terms: _JoinTerms,
        caller: Caller,
        waiting: PendingRequest,
    ) -> None:
        """No member id yet: a first meeting, or the return of a static member."""
        instance_id = request.group_instance_id
        member_id = self._new_id(caller.client_id if instance_id is None else instance_id)
        if instance_id is not None:
            predecessor = group.static_member(instance_id)
            if predecessor is None:
                self._admit(group, member_id, request, terms, caller, waiting)
            else:
                self._replace(group, predecessor, member_id, terms, caller, waiting)
        elif waiting.version >= HANDSHAKE_SINCE:
            self._rebalancer.add_pending_member(group, member_id, request.session_timeout_ms)
            code = ErrorCode.MEMBER_ID_REQUIRED
            waiting.respond(rebalance_responses.join_refused(code, waiting.version, member_id))
        else:
            self._admit(group, member_id, request, terms, caller, waiting)

    def _admit(
        self,
        group: Group,
        member_id: str,
        request: JoinGroupRequest,
        terms: _JoinTerms,
        caller: Caller,
        waiting: PendingRequest,
    ) -> None:
        member = Member(
            member_id,
            instance_id=request.group_instance_id,
            client_id=caller.client_id,
            client_host=f"/{caller.host}",
            session_timeout_ms=terms.session_timeout_ms,
            rebalance_timeout_ms=terms.rebalance_timeout_ms,
            protocols=terms.protocols,
        )
        self._rebalancer.add_member(group, member, request.protocol_type, waiting)

    def _new_id(self, prefix: str) -> str:
        return f"{prefix}-{uuid.UUID(int=self._random.getrandbits(128), version=4)}"

    # -- somebody known ----------------------------------------------------------------------

    def _known(
        self,
        group: Group,
        request: JoinGroupRequest,
        terms: _JoinTerms,
        caller: Caller,
        waiting: PendingRequest,
    ) -> None:
        """A member id we gave out: it becomes a member, or joins again."""
        member_id = request.member_id
        if request.group_instance_id is None and member_id in group.pending_members:
            self._admit(group, member_id, request, terms, caller, waiting)
            return
        code = group.identity_problem(member_id, request.group_instance_id)
        if code:
            waiting.respond(rebalance_responses.join_refused(code, waiting.version, member_id))
            return
        member = group.members[member_id]
        if self._changes_nothing(group, member, terms):
            self._sessions.renew(member)
            waiting.respond(rebalance_responses.joined(group, member))
            return
        terms.hold_for(group, member)
        self._rebalancer.await_join(group, member, waiting)
        self._rebalancer.maybe_prepare_rebalance(group, f"member {member_id} joined again")

    @staticmethod
    def _changes_nothing(group: Group, member: Member, terms: _JoinTerms) -> bool:
        """Whether the present generation is answer enough: the same request, asked again.

        In Stable a leader that joins again wants a rebalance: something it watches has changed.
        """
        if terms.protocols != member.protocols:
            return False
        if group.state is GroupState.COMPLETING:
            return True
        return group.state is GroupState.STABLE and group.leader_id != member.member_id

    # -- a static member comes back ------------------------------------------------------------

    def _replace(
        self,
        group: Group,
        member: Member,
        member_id: str,
        terms: _JoinTerms,
        caller: Caller,
        waiting: PendingRequest,
    ) -> None:
        """A new process takes the place of ``member``; the old id is fenced from here on."""
        before, old_id, old_leader = _JoinTerms.of(member), member.member_id, group.leader_id
        self._rebalancer.fail_pending_requests(group, member, ErrorCode.FENCED_INSTANCE_ID)
        group.rename(member, member_id)
        terms.hold_for(group, member)
        self._rebalancer.await_join(group, member, waiting)
        self._sessions.renew(member)
        if group.state is GroupState.STABLE and group.select_protocol() == group.protocol:
            on_committed = partial(
                self._returned, group, member, waiting, before, old_id, old_leader or ""
            )
            self._rebalancer.store_group(group, group.assignments(), on_committed)
        else:
            self._rebalancer.maybe_prepare_rebalance(
                group, f"static member {member.instance_id} came back"
            )

    def _returned(
        self,
        group: Group,
        member: Member,
        waiting: PendingRequest,
        before: _JoinTerms,
        old_id: str,
        old_leader: str,
        code: ErrorCode,
        _offset: int,
    ) -> None:
        """The new id is stored (KAFKA-10284), or is taken back because it could not be."""
        if member.join is not waiting or group.state is not GroupState.STABLE:
            return  # answered meanwhile, or part of a rebalance that answers it
        group.take_join(member)
        self._sessions.renew(member)
        version = waiting.version
        if code:
            group.rename(member, old_id)
            before.hold_for(group, member)
            waiting.respond(rebalance_responses.join_refused(GROUP_ERRORS.get(code, code), version))
        elif version >= rebalance_responses.SKIP_ASSIGNMENT_SINCE:
            leads = group.leader_id == member.member_id
            leader = group.leader_id or ""
            answer = rebalance_responses.rejoined(
                group, member, leader_id=leader, skip_assignment=leads
            )
            waiting.respond(answer)
        else:
            answer = rebalance_responses.rejoined(
                group, member, leader_id=old_leader, skip_assignment=False
            )
            waiting.respond(answer)
