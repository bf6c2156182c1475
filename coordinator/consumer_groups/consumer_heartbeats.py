"""ConsumerGroupHeartbeat: how a member joins, says what it has, is told what to have, and leaves.

Source: docs/spec/consumer-groups.md §1.1 and §2.2 to §2.5. Nothing is awaited between the look at
a group and its change. The answer waits until the group is committed as it says (group_writes.py).
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeAlias

from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.group import Group
from barnabas.coordinator.group_registry import GroupRegistry
from barnabas.coordinator.ports import Caller
from barnabas.protocol.consumer_group_records import RecordType
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

from .consumer_group import ConsumerGroup
from .conversion import GroupConversion
from .current_assignment import Held, MemberState
from .group_machine import ConsumerGroupMachine, Keys
from .heartbeat_checks import JOIN, LEAVE, Refusal, request_problem
from .member import BACK_SOON, ConsumerMember, MemberProfile
from .member_steps import MemberSteps, Owned
from .regex_resolution import MayDescribe

Respond: TypeAlias = Callable[[ConsumerGroupHeartbeatResponse], None]

_CHOOSES_ID_SINCE: Final = 1
"""From this version on a member makes its own id (KIP-1082)."""
_NOTHING: Final = Assignment(topic_partitions=())


class ConsumerHeartbeatHandler:
    """Serves ConsumerGroupHeartbeat."""

    def __init__(
        self,
        registry: GroupRegistry,
        machine: ConsumerGroupMachine,
        conversion: GroupConversion,
        config: CoordinatorConfig,
        rng: random.Random,
    ) -> None:
        self._registry = registry
        self._groups = registry.groups
        self._machine = machine
        self._conversion = conversion
        self._steps = MemberSteps(machine)
        self._catalog = machine.catalog
        self._config = config
        self._random = rng

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        version: int,
        caller: Caller,
        respond: Respond,
        may_describe: MayDescribe = lambda _: True,
    ) -> None:
        """Answer once what is told is committed; a refusal that says nothing of the group at once.

        ``may_describe``: which topics an expression of this member may stand for.
        """
        if not self._registry.is_active:
            respond(refused(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        problem = request_problem(request, version, self._config)
        if problem is not None:
            respond(refused(problem.code, problem.message))
            return
        if version < _CHOOSES_ID_SINCE and not request.member_id:
            request.member_id = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
        found = self._find(request)
        if isinstance(found, Refusal):
            respond(refused(found.code, found.message))
        elif request.member_epoch < JOIN:
            self._leave(found, request, respond)
        else:
            self._beat(found, request, caller, respond, may_describe)

    # -- the group -----------------------------------------------------------------------------

    def _find(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroup | Refusal:
        """The group, made where somebody joins one that is not there."""
        group = self._groups.get(request.group_id)
        if group is None:
            code = self._registry.ownership_problem(request.group_id)
            if code:
                return Refusal(code)
        problem = self._catalog_problem(request)
        if problem is not None:
            return problem
        if isinstance(group, ConsumerGroup):
            return group
        if request.member_epoch == JOIN:
            return self._made(group, request)
        return self._without_group(request)

    def _catalog_problem(self, request: ConsumerGroupHeartbeatRequest) -> Refusal | None:
        """Unknown is not "none": without the topics everybody would lose all partitions (C63)."""
        if self._catalog.is_offered and self._catalog.is_whole:
            return None
        if not self._catalog.is_offered and request.member_epoch == JOIN:
            return Refusal(
                ErrorCode.UNSUPPORTED_VERSION, "The consumer group protocol is not enabled."
            )
        return Refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def _made(
        self, group: Group | None, request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerGroup | Refusal:
        if group is None:
            made = self._machine.new_group(request.group_id)
            self._registry.add(made)
            return made
        return self._conversion.to_consumer(group, request)

    @staticmethod
    def _without_group(request: ConsumerGroupHeartbeatRequest) -> Refusal:
        """No group, or a classic one: the group was this member's until it was fenced (C54)."""
        if request.member_epoch > JOIN:
            # Kafka says 69, which ends its clients: after this one they join again
            return Refusal(ErrorCode.UNKNOWN_MEMBER_ID)
        return Refusal(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Group {request.group_id} is no group of the consumer protocol.",
        )

    # -- a member that stays -------------------------------------------------------------------

    def _beat(
        self,
        group: ConsumerGroup,
        request: ConsumerGroupHeartbeatRequest,
        caller: Caller,
        respond: Respond,
        may_describe: MayDescribe,
    ) -> None:
        owned = owned_of(request)
        keys: Keys = []
        if request.member_epoch == JOIN:
            member = self._joining(group, request, caller, keys)
        else:
            member = self._member(group, request, owned)
        if isinstance(member, Refusal):
            self._refuse(group, member, respond)
            return
        was_assigned = member.current.assigned
        profile = profile_of(request, member.profile, caller)
        changed, code = self._steps.take(group, member, profile, owned)
        keys += changed
        if keys or group.dirty:
            self._machine.writes.write(group, keys)
        self._machine.renew(group, member)
        if group.regexes:
            self._machine.resolve(group, may_describe)
        if code:
            self._refuse(group, Refusal(code), respond)
            return
        is_told = (
            request.member_epoch == JOIN
            or is_full(request)
            or was_assigned.keys() != member.current.assigned.keys()
            or member.is_unconfirmed
        )
        self._answer(group, member, respond, is_told=is_told)

    def _member(
        self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, owned: Owned
    ) -> ConsumerMember | Refusal:
        """Who sends a heartbeat with an epoch above 0, or why it may not go on."""
        problem = self._identity_problem(group, request)
        if problem is not None:
            return problem
        member, epoch = group.consumers[request.member_id], request.member_epoch
        current = member.current
        fenced = Refusal(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The member epoch is {current.member_epoch}, not {epoch}. "
            "Give up all partitions and join again.",
        )
        if member.is_fenced or (current.state is MemberState.UNKNOWN and owned != frozenset()):
            return fenced
        if epoch == current.member_epoch:
            return member
        is_repeated = epoch == current.previous_member_epoch
        if is_repeated and owned is not None and owned <= current.assigned.keys():
            return member  # the answer with the new epoch was lost
        return fenced

    @staticmethod
    def _identity_problem(
        group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest
    ) -> Refusal | None:
        instance_id = request.instance_id
        if instance_id is not None:
            static = group.static_consumer(instance_id)
            if static is None:
                return Refusal(
                    ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is not a member's."
                )
            if static.member_id != request.member_id:
                return Refusal(
                    ErrorCode.FENCED_INSTANCE_ID,
                    f"Instance id {instance_id} is another member's by now.",
                )
        if request.member_id not in group.consumers:
            return Refusal(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {request.member_id} is not a member of group {request.group_id}.",
            )
        return None

    # -- a member that joins -------------------------------------------------------------------

    def _joining(
        self,
        group: ConsumerGroup,
        request: ConsumerGroupHeartbeatRequest,
        caller: Caller,
        keys: Keys,
    ) -> ConsumerMember | Refusal:
        """Somebody new, or somebody who comes again; ``keys`` takes what changes by that."""
        member_id, instance_id = request.member_id, request.instance_id
        known = group.consumers.get(member_id)
        static = None if instance_id is None else group.static_consumer(instance_id)
        has_room = len(group.consumers) < self._config.consumer_members_max
        if not has_room and known is None and static is None:
            return Refusal(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The group has its {self._config.consumer_members_max} members.",
            )
        if static is not None and static.member_id != member_id:
            if not (static.is_classic or static.epoch == BACK_SOON):
                return Refusal(
                    ErrorCode.UNRELEASED_INSTANCE_ID,
                    f"Instance id {instance_id} is that of a member that has not left.",
                )
            if known is not None:  # it takes another place than its own
                self._machine.remove(group, [known], "it came back under another instance id")
            member, replaced = self._machine.replace(group, static, member_id)
            keys += replaced
            return member
        if known is not None:
            known.is_fenced = False
            return known
        keys.append(group.key(RecordType.MEMBER_METADATA, member_id))
        profile = MemberProfile(caller.client_id, f"/{caller.host}", request.rebalance_timeout_ms)
        return self._machine.admit(group, member_id, profile)

    # -- a member that leaves ------------------------------------------------------------------

    def _leave(
        self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, respond: Respond
    ) -> None:
        problem = self._identity_problem(group, request)
        if problem is not None:
            self._refuse(group, problem, respond)
            return
        member = group.consumers[request.member_id]
        if request.member_epoch == LEAVE:
            self._machine.remove(group, [member], "it left")
        else:
            self._machine.writes.write(group, self._machine.part(group, member))
        answer = ConsumerGroupHeartbeatResponse(
            throttle_time_ms=0,
            error_code=ErrorCode.NONE,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            heartbeat_interval_ms=0,
        )
        self._machine.writes.when_committed(
            group, lambda code: respond(refused(code) if code else answer)
        )

    # -- answers -------------------------------------------------------------------------------

    def _interval_ms(self, group: ConsumerGroup, member: ConsumerMember) -> int:
        """When to send the next heartbeat: sooner while something is to change (C25)."""
        interval_ms = self._machine.settings_of(group.group_id).heartbeat_interval_ms
        sooner_ms = self._config.consumer_reconciliation_interval_ms
        if not sooner_ms:
            return interval_ms
        is_settled = (
            group.epoch <= group.assignment_epoch == member.epoch
            and member.current.state is MemberState.STABLE
        )
        return interval_ms if is_settled else min(interval_ms, sooner_ms)

    def _answer(
        self, group: ConsumerGroup, member: ConsumerMember, respond: Respond, *, is_told: bool
    ) -> None:
        answer = ConsumerGroupHeartbeatResponse(
            throttle_time_ms=0,
            error_code=ErrorCode.NONE,
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._interval_ms(group, member),
            assignment=assignment_of(member.current.assigned) if is_told else None,
        )
        if group.last_write is None and not group.dirty:
            respond(answer)
            return
        self._machine.writes.when_committed(
            group, lambda code: respond(refused(code) if code else answer)
        )

    def _refuse(self, group: ConsumerGroup, refusal: Refusal, respond: Respond) -> None:
        """A member is refused for what the group is, so that has to be committed as well (C14)."""
        self._machine.writes.when_committed(
            group, lambda code: respond(refused(code or refusal.code, refusal.message))
        )


def refused(code: ErrorCode, message: str | None = None) -> ConsumerGroupHeartbeatResponse:
    """No place in the group, and why (C9)."""
    return ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=code,
        error_message=message,
        member_id=None,
        member_epoch=0,
        heartbeat_interval_ms=0,
    )


def owned_of(request: ConsumerGroupHeartbeatRequest) -> Owned:
    """What the member says that it has; None where it says nothing (C95)."""
    if request.topic_partitions is None:
        return None
    return frozenset(
        (bytes(topic.topic_id), partition)
        for topic in request.topic_partitions
        for partition in topic.partitions
    )


def is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether it says everything, as after a change of coordinator."""
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    has_subscription = names is not None or regex is not None
    is_timed = request.rebalance_timeout_ms != -1
    return is_timed and has_subscription and request.topic_partitions is not None


def profile_of(
    request: ConsumerGroupHeartbeatRequest, before: MemberProfile, caller: Caller
) -> MemberProfile:
    """What a member says of itself now; what is null is as it was."""
    client = caller.client_id, f"/{caller.host}"
    if is_bare(request) and (before.client_id, before.client_host) == client:
        return before
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout = request.rebalance_timeout_ms
    after = replace(
        before,
        client_id=client[0],
        client_host=client[1],
        rebalance_timeout_ms=before.rebalance_timeout_ms if timeout == -1 else timeout,
        instance_id=request.instance_id or before.instance_id,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        names=before.names if names is None else frozenset(names),
        regex=before.regex if regex is None else regex or None,
        assignor=request.server_assignor or before.assignor,
        classic=None,
    )
    return before if after == before else after


def is_bare(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether it says nothing of the member itself."""
    return (
        request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
        and request.server_assignor is None
        and request.rack_id is None
        and request.rebalance_timeout_ms == -1
        and request.instance_id is None
        and request.member_epoch > JOIN
    )


def assignment_of(held: Held) -> Assignment:
    """As an answer has it: topics by id, partitions ascending."""
    if not held:
        return _NOTHING
    topics: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(held):
        topics.setdefault(topic_id, []).append(partition)
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in topics.items()
        ]
    )
