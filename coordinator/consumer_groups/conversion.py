"""A group that goes on as one of the other kind: classic, or of the new protocol.

Groups without members change at any time. With members a classic group goes on as the other kind
when the first member of the new protocol comes, and back when the last one has gone, where the
policy allows that. Offsets stay; what the former kind wrote is deleted behind the first that the
other one writes, so that any part of it is a log to go on from (C50).
Source: docs/spec/consumer-groups.md §5, C52 to C54.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.group import CONSUMER, Group, Member
from barnabas.coordinator.group_registry import GroupRegistry
from barnabas.coordinator.group_state import RULES, GroupState
from barnabas.coordinator.rebalance import Rebalancer
from barnabas.coordinator.tombstones import group_tombstone
from barnabas.protocol.consumer_group_records import RecordType, consumer_group_key
from barnabas.protocol.consumer_protocol import parse_assignment, parse_subscription
from barnabas.protocol.errors import CorruptRequest, ErrorCode
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

from .classic_members import held_bytes, ids_of
from .consumer_group import ConsumerGroup
from .current_assignment import CurrentAssignment, MemberState
from .group_machine import ConsumerGroupMachine, Keys
from .heartbeat_checks import Refusal
from .member import ClassicMetadata, ConsumerMember, MemberProfile

log = logging.getLogger(__name__)

_KNOWN_ASSIGNORS: Final = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})
"""What clients bring along. librdkafka's cooperative-sticky puts user data into assignments, with
which its next leader would have kept partitions where they are; nobody needs it here."""
_LATER: Final = Refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
"""The classic group is about to settle: the member asks again."""


class GroupConversion:
    """Turns groups of one kind into groups of the other."""

    def __init__(
        self,
        registry: GroupRegistry,
        machine: ConsumerGroupMachine,
        rebalancer: Rebalancer,
        config: CoordinatorConfig,
        now_ms: Callable[[], int],
    ) -> None:
        self._registry = registry
        self._machine = machine
        self._rebalancer = rebalancer
        self._config = config
        self._now_ms = now_ms
        machine.on_member_lost = self.maybe_downgrade

    # -- to the new protocol -----------------------------------------------------------------------

    def to_consumer(
        self, group: Group, request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerGroup | Refusal:
        """A member of the new protocol joins a classic group (C52, C53)."""
        if group.state is GroupState.EMPTY:
            made = self._machine.new_group(group.group_id)
            self._succeed(group, made)
            return made
        if not self._config.may_upgrade or group.protocol_type != CONSUMER:
            return _refused(request, "has members of the classic protocol")
        if len(group.members) >= self._config.consumer_members_max:
            return Refusal(ErrorCode.GROUP_MAX_SIZE_REACHED)
        is_waiting = any(member.is_waiting for member in group.members.values())
        if group.state is not GroupState.STABLE or is_waiting:
            return _LATER
        return self._upgraded(group, request)

    def _upgraded(
        self, group: Group, request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerGroup | Refusal:
        """All members keep what they have, at the epoch that was their generation."""
        made = self._machine.new_group(group.group_id)
        made.epoch = made.assignment_epoch = max(group.generation, made.epoch)
        made.assignment_ms = self._now_ms()
        try:
            members = [self._member(group, member, made.epoch) for member in group.members.values()]
        except CorruptRequest as problem:
            return _refused(request, f"has members that are not understood: {problem}")
        held = [found for member in members for found in member.current.assigned]
        if len(held) != len(set(held)):
            return _refused(request, "has partitions that two of its members have")
        for member in members:
            self._take_in(made, member)
        self._machine.has_new_metadata(made, is_due=True)
        self._succeed(group, made)
        self._machine.resume(made)
        self._machine.writes.write(made, _all_keys(made))
        log.info(
            "upgraded group=%s generation=%d members=%d",
            *(made.group_id, made.epoch, len(members)),
        )
        return made

    def _member(self, group: Group, member: Member, epoch: int) -> ConsumerMember:
        """As it is now. Raises CorruptRequest where no assignor of ours could go on from that."""
        subscription = parse_subscription(member.metadata(group.protocol))
        assignment = parse_assignment(member.assignment)
        if assignment.user_data and group.protocol not in _KNOWN_ASSIGNORS:
            raise CorruptRequest("an assignor of the application's own (KAFKA-18134)")
        held = ids_of(assignment.assigned_partitions, self._machine.catalog)
        profile = MemberProfile(
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            instance_id=member.instance_id,
            rack_id=subscription.rack_id,
            names=frozenset(subscription.topics),
            classic=ClassicMetadata(member.session_timeout_ms, member.protocols),
        )
        current = CurrentAssignment(epoch, epoch, MemberState.STABLE, dict.fromkeys(held, epoch))
        return ConsumerMember(member.member_id, profile, current)

    def _take_in(self, made: ConsumerGroup, member: ConsumerMember) -> None:
        self._machine.prepare_member(made, member)
        made.put(member)
        target: dict[bytes, list[int]] = {}
        for topic_id, partition in sorted(member.current.assigned):
            target.setdefault(topic_id, []).append(partition)
        made.targets[member.member_id] = {key: tuple(found) for key, found in target.items()}

    def _succeed(self, group: Group, made: ConsumerGroup) -> None:
        """From here on the group is ``made``; nothing of the former one moves any more."""
        made.foreign_keys = [*group_tombstone(group), *((key, None) for key in group.stale_keys)]
        made.lacks_metadata = group.lacks_metadata and not made.consumers
        self._rebalancer.retire(group)
        self._registry.replace(group, made)

    # -- to the classic protocol -------------------------------------------------------------------

    def to_classic(self, group: ConsumerGroup) -> Group:
        """A member of the classic protocol joins a group without members (C52)."""
        assert not group.consumers
        made = self._classic(group)
        self._machine.retire(group)
        self._registry.replace(group, made)
        self._rebalancer.prepare_timers(made)
        return made

    def maybe_downgrade(self, group: ConsumerGroup) -> None:
        """A member is gone: where only classic ones are left, the group is theirs again (C54)."""
        members = group.consumers.values()
        if not members or group.classic_count < len(members):
            return
        if not self._config.may_downgrade or len(members) > self._config.group_members_max:
            return
        if not self._machine.is_served(group):
            return
        made = self._classic(group)
        self._machine.retire(group)
        for member in members:
            made.add(self._classic_member(group, member), CONSUMER)
        made.generation = group.epoch
        made.protocol = made.select_protocol()
        made.state, made.rules = _STABLE
        made.refresh_subscribed()
        self._registry.replace(group, made)
        self._rebalancer.prepare_timers(made)
        self._rebalancer.resume(made)
        self._rebalancer.store_group(made, made.assignments(), _stored)
        log.info(
            "downgraded group=%s generation=%d members=%d",
            *(made.group_id, made.generation, len(made.members)),
        )
        self._rebalancer.prepare_rebalance(made, "only classic members are left")

    def _classic(self, group: ConsumerGroup) -> Group:
        made = Group(group.group_id, group.term, since_ms=group.since_ms)
        pending = () if group.last_write is None else group.last_write.keys
        stale = [consumer_group_key(*key) for key in (*pending, *group.keys())]
        last = consumer_group_key(RecordType.GROUP_METADATA, group.group_id)
        kept = dict.fromkeys([*(key for key, _ in group.foreign_keys), *stale])
        kept.pop(last, None)
        made.stale_keys = (*(key for key in kept if key[:2] != _CLASSIC_KEY), last)
        made.lacks_metadata = group.lacks_metadata
        group.is_retired = True
        return made

    def _classic_member(self, group: ConsumerGroup, member: ConsumerMember) -> Member:
        profile, classic = member.profile, member.profile.classic
        assert classic is not None
        version = min(int.from_bytes(classic.protocols[0][1][:2], "big"), 3)
        target = [
            (topic_id, partition)
            for topic_id, partitions in group.targets.get(member.member_id, {}).items()
            for partition in partitions
        ]
        return Member(
            member.member_id,
            instance_id=profile.instance_id,
            client_id=profile.client_id,
            client_host=profile.client_host,
            session_timeout_ms=classic.session_timeout_ms,
            rebalance_timeout_ms=profile.rebalance_timeout_ms,
            protocols=classic.protocols,
            assignment=held_bytes(target, version, self._machine.catalog),
        )


_CLASSIC_KEY: Final = b"\0\2"
_STABLE: Final = (GroupState.STABLE, RULES[GroupState.STABLE])


def _all_keys(group: ConsumerGroup) -> Keys:
    """Of an upgraded group: its own record last, with which it counts (C53)."""
    members = list(group.consumers)
    return [
        *(group.key(RecordType.MEMBER_METADATA, name) for name in members),
        *(group.key(RecordType.TARGET_ASSIGNMENT_MEMBER, name) for name in members),
        group.key(RecordType.TARGET_ASSIGNMENT_METADATA),
        *(group.key(RecordType.CURRENT_MEMBER_ASSIGNMENT, name) for name in members),
        group.key(RecordType.GROUP_METADATA),
    ]


def _refused(request: ConsumerGroupHeartbeatRequest, why: str) -> Refusal:
    return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} {why}.")


def _stored(code: ErrorCode, _offset: int) -> None:
    """Where it could not be stored, the next generation will be."""
    if code:
        log.warning("downgraded group not stored code=%s", code.name)
