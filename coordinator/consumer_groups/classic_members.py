"""Members of the classic protocol in a group of the new one, while an application is rolled.

They join, sync, heartbeat and leave as ever, and each is a member whose steps take a few requests
more: a heartbeat tells it to join again (27), its JoinGroup says what it has and is answered at
once, its SyncGroup gets what it may have now. Source: docs/spec/consumer-groups.md §5, C55 to C57.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from barnabas.coordinator import rebalance_responses
from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.group import CONSUMER, Group, Respond
from barnabas.coordinator.ports import Caller
from barnabas.protocol.consumer_group_records import RecordType
from barnabas.protocol.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartitions,
    build_assignment,
    parse_subscription,
)
from barnabas.protocol.errors import CorruptRequest, ErrorCode
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.protocol.messages.sync_group import SyncGroupRequest

from .consumer_group import ConsumerGroup
from .current_assignment import MemberState, TopicIdPartition
from .group_machine import ConsumerGroupMachine, Keys
from .member import ClassicMetadata, ConsumerMember, MemberProfile
from .member_steps import MemberSteps
from .topic_catalog import TopicCatalog

HANDSHAKE_SINCE: Final = 4
"""JoinGroup: from this version on a dynamic member must learn its id before it is let in."""
PROTOCOL_SINCE: Final = 5
"""SyncGroup: from this version on the member says which protocol it believes in."""
UNKNOWN: Final = ErrorCode.UNKNOWN_MEMBER_ID


class ClassicMembers:
    """Serves the classic protocol in consumer groups."""

    def __init__(
        self, machine: ConsumerGroupMachine, config: CoordinatorConfig, rng: random.Random
    ) -> None:
        self._machine = machine
        self._steps = MemberSteps(machine)
        self._catalog = machine.catalog
        self._config = config
        self._random = rng

    # -- JoinGroup -------------------------------------------------------------------------------

    def join(
        self,
        group: ConsumerGroup,
        request: JoinGroupRequest,
        version: int,
        caller: Caller,
        respond: Respond,
    ) -> None:
        """Answered as soon as it is committed: nobody waits for anybody (C55)."""
        subscription = self._subscription(request)
        code = self._join_problem(group, request, subscription)
        member_id = request.member_id
        if not code and not member_id:
            member_id = self._new_id(request.group_instance_id or caller.client_id)
            if request.group_instance_id is None and version >= HANDSHAKE_SINCE:
                code = ErrorCode.MEMBER_ID_REQUIRED
        if code or subscription is None:
            respond(rebalance_responses.join_refused(code, version, member_id))
            return
        keys: Keys = []
        member = self._member(group, request, member_id, caller, keys)
        profile = _profile(member.profile, request, subscription, version, caller)
        owned = owned_of(subscription, self._catalog)
        changed, code = self._steps.take(group, member, profile, owned)
        self._machine.writes.write(group, keys + changed)
        self._machine.renew(group, member)
        self._machine.await_classic(member)
        answer = JoinGroupResponse(
            generation_id=member.epoch,
            protocol_type=CONSUMER,
            protocol_name=request.protocols[0].name,
            leader="",
            member_id=member_id,
            members=[],
        )
        refused = rebalance_responses.join_refused
        self._answer(
            group,
            lambda failed: respond(
                refused(failed or code, version, member_id) if failed or code else answer
            ),
        )

    def _join_problem(
        self, group: ConsumerGroup, request: JoinGroupRequest, subscription: Subscription | None
    ) -> ErrorCode:
        if not (self._catalog.is_offered and self._catalog.is_whole):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        is_open = self._config.may_upgrade or self._config.may_downgrade
        if not is_open or subscription is None or not self._fits_in(group, request):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        member_id, instance_id = request.member_id, request.group_instance_id
        static = None if instance_id is None else group.static_consumer(instance_id)
        if member_id and instance_id is not None:
            if static is None:
                return UNKNOWN
            if static.member_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        is_known = static is not None or member_id in group.consumers
        if not is_known and len(group.consumers) >= self._config.consumer_members_max:
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        return ErrorCode.NONE

    def _fits_in(self, group: ConsumerGroup, request: JoinGroupRequest) -> bool:
        """Whether there is a protocol that all classic members offer."""
        names = {protocol.name for protocol in request.protocols}
        return request.protocol_type == CONSUMER and group.fits_classic(names, request.member_id)

    @staticmethod
    def _subscription(request: JoinGroupRequest) -> Subscription | None:
        """That of its first protocol; None where it cannot be read."""
        try:
            return parse_subscription(bytes(request.protocols[0].metadata))
        except (CorruptRequest, IndexError):
            return None

    def _member(
        self,
        group: ConsumerGroup,
        request: JoinGroupRequest,
        member_id: str,
        caller: Caller,
        keys: Keys,
    ) -> ConsumerMember:
        """Who it is: somebody known, the successor of a static member, or somebody new."""
        instance_id = request.group_instance_id
        static = None if instance_id is None else group.static_consumer(instance_id)
        if static is not None and static.member_id != member_id:
            member, replaced = self._machine.replace(group, static, member_id)
            keys += replaced
            return member
        known = group.consumers.get(member_id)
        if known is not None:
            return known
        keys.append(group.key(RecordType.MEMBER_METADATA, member_id))
        profile = MemberProfile(caller.client_id, f"/{caller.host}", request.rebalance_timeout_ms)
        return self._machine.admit(group, member_id, profile)

    def _new_id(self, prefix: str) -> str:
        return f"{prefix}-{uuid.UUID(int=self._random.getrandbits(128), version=4)}"

    # -- SyncGroup -------------------------------------------------------------------------------

    def sync(
        self, group: ConsumerGroup, request: SyncGroupRequest, version: int, respond: Respond
    ) -> None:
        """What the member may have now, or why it has to join first (C56)."""
        is_told = None not in (request.protocol_type, request.protocol_name)
        if version >= PROTOCOL_SINCE and not is_told:
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            respond(rebalance_responses.sync_refused(code))
            return
        member = group.consumers.get(request.member_id)
        code = self._problem(
            group, request.member_id, request.group_instance_id, request.generation_id
        )
        if not code and member is not None:
            code = self._sync_problem(group, member, request)
        if code or member is None:
            self._refuse(group, code, lambda code: respond(rebalance_responses.sync_refused(code)))
            return
        self._machine.heard_classic(member)
        self._machine.renew(group, member)
        protocol = request.protocol_name or _protocols(member)[0][0]
        data = assignment_bytes(member, self._catalog)
        answer = rebalance_responses.assigned(CONSUMER, protocol, data)
        refused = rebalance_responses.sync_refused
        self._answer(group, lambda code: respond(refused(code) if code else answer))

    @staticmethod
    def _sync_problem(
        group: ConsumerGroup, member: ConsumerMember, request: SyncGroupRequest
    ) -> ErrorCode:
        names = [name for name, _ in _protocols(member)]
        is_other_type = request.protocol_type not in (None, CONSUMER)
        if is_other_type or (
            request.protocol_name is not None and request.protocol_name not in names
        ):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        is_giving_up = member.current.state is MemberState.UNREVOKED_PARTITIONS
        if group.assignment_epoch > member.epoch and not is_giving_up:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    # -- Heartbeat -------------------------------------------------------------------------------

    def heartbeat(self, group: Group, request: HeartbeatRequest, respond: Respond) -> None:
        """Whether it may go on, or has to join again: then it has a time for that (C56)."""
        assert isinstance(group, ConsumerGroup)
        code = self._problem(
            group, request.member_id, request.group_instance_id, request.generation_id
        )
        member = group.consumers.get(request.member_id)
        if not code and member is not None:
            self._machine.renew(group, member)
            if self._has_to_join(group, member):
                code = ErrorCode.REBALANCE_IN_PROGRESS
                if not member.rebalance.is_running:
                    self._machine.await_classic(member)
        self._refuse(group, code, lambda code: respond(HeartbeatResponse(error_code=code)))

    @staticmethod
    def _has_to_join(group: ConsumerGroup, member: ConsumerMember) -> bool:
        current = member.current
        if current.member_epoch < group.assignment_epoch:
            return True
        if current.state is MemberState.UNREVOKED_PARTITIONS:
            return True
        if current.state is MemberState.UNRELEASED_PARTITIONS:
            target = group.targets.get(member.member_id, {})
            return any(
                (topic_id, partition) not in current.assigned
                and not group.is_held_by_another((topic_id, partition), member.member_id)
                for topic_id, partitions in target.items()
                for partition in partitions
            )
        return False

    # -- LeaveGroup --------------------------------------------------------------------------------

    def leaving(
        self, group: ConsumerGroup, asked: Sequence[Any]
    ) -> tuple[list[ErrorCode], list[ConsumerMember]]:
        """A code for each that is to go, and who goes: members of both protocols (C57)."""
        codes, leaving = [], dict[str, ConsumerMember]()
        for one in asked:
            member_id, instance_id = one.member_id, one.group_instance_id
            static = None if instance_id is None else group.static_consumer(instance_id)
            member = static if static is not None and not member_id else None
            if member is None:
                member = group.consumers.get(member_id)
            code = ErrorCode.NONE
            if member is None or (instance_id is not None and static is None):
                code = UNKNOWN
            elif static is not None and static is not member:
                code = ErrorCode.FENCED_INSTANCE_ID
            if not code and member is not None:
                leaving[member.member_id] = member
            codes.append(code)
        return codes, list(leaving.values())

    def leave(self, group: ConsumerGroup, members: list[ConsumerMember]) -> None:
        """They go, together."""
        if members:
            self._machine.remove(group, members, "it left")

    def when_left(self, group: ConsumerGroup, then: Callable[[ErrorCode], None]) -> None:
        """Call ``then`` when that is committed, or failed."""
        self._machine.writes.when_committed(group, then)

    # -- all of them -------------------------------------------------------------------------------

    @staticmethod
    def _problem(
        group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Identity first, then the generation, which is the member's epoch."""
        if instance_id is not None:
            static = group.static_consumer(instance_id)
            if static is None:
                return UNKNOWN
            if static.member_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        member = group.consumers.get(member_id)
        if member is None or not member.is_classic:
            return UNKNOWN
        if member.is_fenced:  # what it holds was another's as well (C49): it has to come as new
            return UNKNOWN
        return ErrorCode.NONE if generation == member.epoch else ErrorCode.ILLEGAL_GENERATION

    def _answer(self, group: ConsumerGroup, then: Callable[[ErrorCode], None]) -> None:
        self._machine.writes.when_committed(group, then)

    def _refuse(
        self, group: ConsumerGroup, code: ErrorCode, then: Callable[[ErrorCode], None]
    ) -> None:
        self._machine.writes.when_committed(group, lambda failed: then(failed or code))


def _protocols(member: ConsumerMember) -> tuple[tuple[str, bytes], ...]:
    classic = member.profile.classic
    return () if classic is None else classic.protocols


def _profile(
    before: MemberProfile,
    request: JoinGroupRequest,
    subscription: Subscription,
    version: int,
    caller: Caller,
) -> MemberProfile:
    timeout = request.rebalance_timeout_ms if version >= 1 else request.session_timeout_ms
    protocols = tuple((one.name, bytes(one.metadata)) for one in request.protocols)
    return MemberProfile(
        client_id=caller.client_id,
        client_host=f"/{caller.host}",
        rebalance_timeout_ms=timeout,
        instance_id=request.group_instance_id or before.instance_id,
        rack_id=subscription.rack_id or before.rack_id,
        names=frozenset(subscription.topics),
        classic=ClassicMetadata(request.session_timeout_ms, protocols),
    )


def owned_of(subscription: Subscription, catalog: TopicCatalog) -> frozenset[TopicIdPartition]:
    """What a classic member says that it has; eager ones have given up all when they join."""
    return frozenset(ids_of(subscription.owned_partitions, catalog))


def ids_of(topics: Iterable[TopicPartitions], catalog: TopicCatalog) -> list[TopicIdPartition]:
    """Partitions by topic id; those of topics that are gone are left out."""
    found = []
    for one in topics:
        topic = catalog.topic(one.topic)
        if topic is not None:
            found += [(topic.topic_id, partition) for partition in one.partitions]
    return found


def assignment_bytes(member: ConsumerMember, catalog: TopicCatalog) -> bytes:
    """What a classic member may have, in the version of its subscription."""
    data = _protocols(member)[0][1]
    version = min(int.from_bytes(data[:2], "big"), 3)
    return held_bytes(member.current.assigned, version, catalog)


def held_bytes(held: Iterable[TopicIdPartition], version: int, catalog: TopicCatalog) -> bytes:
    """Partitions as SyncGroup has them, by name."""
    topics: dict[str, list[int]] = {}
    for topic_id, partition in sorted(held):
        name = catalog.name_of(topic_id)
        if name is not None:
            topics.setdefault(name, []).append(partition)
    assigned = [
        TopicPartitions(topic=name, partitions=partitions) for name, partitions in topics.items()
    ]
    return build_assignment(Assignment(assigned_partitions=assigned), version)
