"""What changes a consumer group: its epoch, its target, who is a member, what expressions mean.

Source: docs/spec/consumer-groups.md §2.2 to §2.5, §3 and §6. consumer_heartbeats.py decides what a
request may ask for; every change of a group passes here. A change names the keys whose records it
changes; whoever made all changes of a request writes them, together (group_writes.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias, TypeVar

from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.cooperative import ITEMS_PER_TURN, CooperativeScheduler, Steps
from barnabas.coordinator.group_registry import GroupRegistry
from barnabas.coordinator.group_state import GroupState
from barnabas.coordinator.timer import Deadline, TimerQueue
from barnabas.protocol.consumer_group_records import ConsumerGroupKey, RecordType

from . import regex_resolution, target_assignment
from .assignor import Target
from .consumer_group import ConsumerGroup
from .current_assignment import CurrentAssignment, MemberState
from .group_settings import SettingsOf
from .group_writes import GroupWrites
from .member import BACK_SOON, ConsumerMember, MemberProfile
from .regex_resolution import MayDescribe
from .subscription_metadata import metadata_hash
from .topic_catalog import TopicCatalog

log = logging.getLogger(__name__)

RESOLUTION_PAUSE_S: Final = 10.0
"""Between two resolutions of a group's expressions."""

T = TypeVar("T")

Keys: TypeAlias = list[ConsumerGroupKey]


class ConsumerGroupMachine:
    """Changes the consumer groups of a coordinator; one for all of them."""

    def __init__(
        self,
        config: CoordinatorConfig,
        registry: GroupRegistry,
        timers: TimerQueue,
        writes: GroupWrites,
        catalog: TopicCatalog,
        settings_of: SettingsOf,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
        scheduler: CooperativeScheduler,
    ) -> None:
        self.writes = writes
        self.catalog = catalog
        self.settings_of = settings_of
        self.on_member_lost: Callable[[ConsumerGroup], None] = lambda _: None
        """Told after a member has gone and that is written: conversion.py may have work to do."""
        self._config = config
        self._registry = registry
        self._timers = timers
        self._loop = loop
        self._now_ms = now_ms
        self._scheduler = scheduler

    # -- groups and their timers ---------------------------------------------------------------

    def new_group(self, group_id: str) -> ConsumerGroup:
        """A group without members on a partition that is owned here, not yet in the registry."""
        term = self._registry.term_of(group_id)
        group = ConsumerGroup(group_id, term, since_ms=self._now_ms())
        self.prepare(group)
        return group

    def prepare(self, group: ConsumerGroup) -> None:
        """Give a group and its members their timers, not yet running."""
        group.target_timer = Deadline(partial(self._target_due, group))
        for member in group.consumers.values():
            self.prepare_member(group, member)

    def prepare_member(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """The same for one member."""
        member.session = Deadline(partial(self._session_expired, group, member))
        member.rebalance = Deadline(partial(self._rebalance_expired, group, member))

    def resume(self, group: ConsumerGroup) -> None:
        """A group was loaded: every wait for its members begins anew."""
        for member in group.consumers.values():
            self.renew(group, member)
            is_giving_up = member.current.state is MemberState.UNREVOKED_PARTITIONS
            if is_giving_up and not member.is_classic:
                self._timers.start(member.rebalance, member.profile.rebalance_timeout_ms)

    def renew(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """A member gave a sign of life."""
        classic = member.profile.classic
        if classic is not None:
            self._timers.start(member.session, classic.session_timeout_ms)
        else:
            self._timers.start(member.session, self.settings_of(group.group_id).session_timeout_ms)

    def await_classic(self, member: ConsumerMember) -> None:
        """A member of the classic protocol has its rebalance timeout for what it is to ask next."""
        self._timers.start(member.rebalance, member.profile.rebalance_timeout_ms)

    def heard_classic(self, member: ConsumerMember) -> None:
        """It has asked."""
        self._timers.stop(member.rebalance)

    def is_served(self, group: ConsumerGroup) -> bool:
        """Whether the group is still that of its name here."""
        is_alive = group.state is not GroupState.DEAD
        return is_alive and self._registry.groups.get(group.group_id) is group

    # -- members -------------------------------------------------------------------------------

    def admit(self, group: ConsumerGroup, member_id: str, profile: MemberProfile) -> ConsumerMember:
        """A member that has nothing yet; what it subscribes to is for :meth:`describe`."""
        member = ConsumerMember(member_id, profile)
        self.prepare_member(group, member)
        group.put(member)
        return member

    def replace(
        self, group: ConsumerGroup, old: ConsumerMember, member_id: str
    ) -> tuple[ConsumerMember, Keys]:
        """A new process takes the place of a static member, with all it had (C19)."""
        target = group.targets.get(old.member_id)
        self.stop_timers(old)
        group.drop(old)
        current = CurrentAssignment(assigned=old.current.assigned)
        member = ConsumerMember(member_id, old.profile, current)
        self.prepare_member(group, member)
        group.put(member)
        if target is not None:
            group.targets[member_id] = target
        keys = list(group.member_keys(old.member_id))
        return member, keys + list(group.member_keys(member_id))[::-1]

    def describe(
        self, group: ConsumerGroup, member: ConsumerMember, profile: MemberProfile
    ) -> Keys:
        """What a member says of itself from now on; an expression that nobody has is forgotten."""
        if profile == member.profile:
            return []
        group.describe(member, profile)
        key = group.key(RecordType.MEMBER_METADATA, member.member_id)
        return [key, *self._forget_regexes(group)]

    def move(self, group: ConsumerGroup, member: ConsumerMember, after: CurrentAssignment) -> Keys:
        """A member holds something else; who has to give up has a time for that (C21)."""
        before = member.current
        if _is_same(before, after):
            return []
        if before.assigned.keys() != after.assigned.keys():
            member.is_unconfirmed = True
        group.move(member, after)
        if member.is_classic:
            pass  # classic_members.py waits for its joins and syncs
        elif after.state is not MemberState.UNREVOKED_PARTITIONS:
            self._timers.stop(member.rebalance)
        elif before.state is not MemberState.UNREVOKED_PARTITIONS:
            self._timers.start(member.rebalance, member.profile.rebalance_timeout_ms)
        return [group.key(RecordType.CURRENT_MEMBER_ASSIGNMENT, member.member_id)]

    def part(self, group: ConsumerGroup, member: ConsumerMember) -> Keys:
        """A static member goes and will be back: what it has is kept for it (C22)."""
        self._timers.stop(member.rebalance)
        kept = dict.fromkeys(member.current.assigned, 0)  # late commits of this process fail
        away = CurrentAssignment(BACK_SOON, BACK_SOON, MemberState.STABLE, kept, {})
        group.move(member, away)
        return [group.key(RecordType.CURRENT_MEMBER_ASSIGNMENT, member.member_id)]

    def remove(self, group: ConsumerGroup, members: list[ConsumerMember], reason: str) -> None:
        """Members go, for good: one bump for all of them, which is written (C20, C23)."""
        keys: Keys = []
        for member in members:
            log.info(
                "removed member group=%s member=%s: %s", group.group_id, member.member_id, reason
            )
            self.stop_timers(member)
            keys += group.member_keys(member.member_id)
            group.drop(member)
        keys += self._forget_regexes(group)
        keys += self.bump(group)
        if not group.consumers:
            keys += self._empty(group)
        self.writes.write(group, keys)
        self.on_member_lost(group)

    def _empty(self, group: ConsumerGroup) -> Keys:
        """Nobody is left: there is nothing to be assigned either (KAFKA-20442)."""
        group.since_ms = self._now_ms()
        group.targets = {}
        group.assignment_epoch, group.assignment_ms = group.epoch, 0
        self._timers.stop(group.target_timer)
        return [group.key(RecordType.TARGET_ASSIGNMENT_METADATA)]

    def stop_timers(self, member: ConsumerMember) -> None:
        """Nothing is awaited of a member any more."""
        self._timers.end(member.session, member.rebalance)

    def retire(self, group: ConsumerGroup) -> None:
        """The group goes on as a classic one: nothing of this one moves any more."""
        self._timers.end(*group.timers())

    def _session_expired(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        self._expired(group, member, member.session, "its session timed out")

    def _rebalance_expired(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        if member.is_classic:
            reason = "it did not join again, or ask for its assignment, in time"
            self._expired(group, member, member.rebalance, reason)
        elif member.current.state is MemberState.UNREVOKED_PARTITIONS:
            reason = "it did not give up its partitions in time"
            self._expired(group, member, member.rebalance, reason)

    def _expired(
        self, group: ConsumerGroup, member: ConsumerMember, timer: Deadline, reason: str
    ) -> None:
        if not self.is_served(group) or group.consumers.get(member.member_id) is not member:
            return
        if self.catalog.is_offered and self.catalog.is_whole:
            self.remove(group, [member], reason)
        else:  # its heartbeats are answered 14 for our sake, not for the member's (C5)
            self._timers.start(timer, self.settings_of(group.group_id).session_timeout_ms)

    # -- epochs and targets --------------------------------------------------------------------

    def bump(self, group: ConsumerGroup) -> Keys:
        """Something has changed that partitions depend on: another target is due."""
        group.epoch += 1
        return [group.key(RecordType.GROUP_METADATA)]

    def has_new_metadata(self, group: ConsumerGroup, *, is_due: bool = False) -> bool:
        """Whether the topics that the group subscribes to are others than before; notes them.

        ``is_due``: it subscribes to others, whatever happened to topics.
        """
        version, names = self.catalog.version, group.subscribed
        is_same = version == group.metadata_version
        if is_same and (not is_due or names is group.hashed_names):
            return False  # a member that joins mostly subscribes to what others do
        group.metadata_version, group.hashed_names = version, names
        found = metadata_hash(target_assignment.subscribed_topics(group, self.catalog))
        is_new = found != group.metadata_hash
        group.metadata_hash = found
        return is_new

    def assign(self, group: ConsumerGroup) -> Keys:
        """Compute a target where one is due and may be computed now (C26).

        A large group's takes several turns, and the old one is served meanwhile. Raises what an
        assignor raises.
        """
        if group.epoch <= group.assignment_epoch or group.assigning_epoch is not None:
            return []
        settings = self.settings_of(group.group_id)
        wait_s = group.target_not_before - self._loop.time()
        if group.assignment_ms and settings.assignment_interval_ms and wait_s > 0:
            if not group.target_timer.is_running:
                self._timers.start(group.target_timer, wait_s * 1000)
            return []
        self._timers.stop(group.target_timer)
        topics = target_assignment.subscribed_topics(group, self.catalog)
        if target_assignment.size_of(group, topics) >= target_assignment.INLINE_MAX:
            group.assigning_epoch = group.epoch
            self._scheduler.drive(self._assign_in_turns(group))
            return []
        computed = _result(target_assignment.compute(group, self.catalog, self._assignors))
        changed = _result(target_assignment.changed_members(group, computed.target))
        keys = self._take_targets(group, computed.target, changed)
        return keys + self._complete_target(group, computed.epoch)

    @property
    def _assignors(self) -> list[str]:
        return list(self._config.assignor_names)

    def _assign_in_turns(self, group: ConsumerGroup) -> Steps[None]:
        try:
            yield
            computed = yield from target_assignment.compute(group, self.catalog, self._assignors)
            changed = yield from target_assignment.changed_members(group, computed.target)
            for start in range(0, len(changed), ITEMS_PER_TURN):
                if not self.is_served(group):
                    return
                some = changed[start : start + ITEMS_PER_TURN]
                self.writes.write(group, self._take_targets(group, computed.target, some))
                yield
            if self.is_served(group) and group.consumers:
                self.writes.write(group, self._complete_target(group, computed.epoch))
        except Exception:
            log.exception("assignor failed group=%s", group.group_id)
            self._pause_targets(group)
        finally:
            group.assigning_epoch = None
        if self.is_served(group) and group.epoch > group.assignment_epoch:
            self._timers.start(group.target_timer, self._interval_ms(group))

    def _take_targets(self, group: ConsumerGroup, target: Target, members: list[str]) -> Keys:
        keys = []
        for member_id in members:
            if member_id in group.consumers:
                group.targets[member_id] = target.get(member_id, {})
                keys.append(group.key(RecordType.TARGET_ASSIGNMENT_MEMBER, member_id))
        return keys

    def _complete_target(self, group: ConsumerGroup, epoch: int) -> Keys:
        """The target is whole: that of the epoch it was begun for."""
        group.assignment_epoch = max(group.assignment_epoch, epoch)
        group.assignment_ms = self._now_ms()
        self._pause_targets(group)
        log.info(
            "assigned group=%s epoch=%d members=%d", group.group_id, epoch, len(group.consumers)
        )
        return [group.key(RecordType.TARGET_ASSIGNMENT_METADATA)]

    def _pause_targets(self, group: ConsumerGroup) -> None:
        group.target_not_before = self._loop.time() + self._interval_ms(group) / 1000

    def _interval_ms(self, group: ConsumerGroup) -> int:
        return self.settings_of(group.group_id).assignment_interval_ms

    def _target_due(self, group: ConsumerGroup) -> None:
        is_known = self.catalog.is_offered and self.catalog.is_whole
        if self.is_served(group) and group.consumers and is_known:
            self.writes.write(group, self.assign(group))

    # -- expressions ---------------------------------------------------------------------------

    def _forget_regexes(self, group: ConsumerGroup) -> Keys:
        unused = [regex for regex in group.resolved if regex not in group.regexes]
        for regex in unused:
            del group.resolved[regex]
        if unused:
            group.note_subscribed()
        return [group.key(RecordType.REGULAR_EXPRESSION, regex) for regex in unused]

    def resolve(self, group: ConsumerGroup, may_describe: MayDescribe) -> None:
        """Find out what the group's expressions stand for, in turns, where that is due (C41)."""
        if not group.regexes or group.is_resolving:
            return
        now = self._loop.time()
        is_due = (
            len(group.resolved) < len(group.regexes)
            or now >= group.resolution_due
            or any(found.version != self.catalog.version for found in group.resolved.values())
        )
        if is_due and now >= group.next_resolution:
            group.is_resolving = True
            group.next_resolution = now + RESOLUTION_PAUSE_S
            group.resolution_due = now + self._config.consumer_regex_refresh_interval_ms / 1000
            self._scheduler.drive(self._resolve_in_turns(group, may_describe))

    def _resolve_in_turns(self, group: ConsumerGroup, may_describe: MayDescribe) -> Steps[None]:
        version = self.catalog.version
        try:
            yield
            found = yield from regex_resolution.resolve(
                list(group.regexes), list(self.catalog.names()), may_describe
            )
        except Exception:
            log.exception("could not resolve expressions group=%s", group.group_id)
            return
        finally:
            group.is_resolving = False
        if self.is_served(group):
            now_ms = self._now_ms()
            changed = regex_resolution.take(group, found, version, now_ms)
            keys = [group.key(RecordType.REGULAR_EXPRESSION, regex) for regex in changed]
            if self.has_new_metadata(group, is_due=True) or changed:
                keys += self.bump(group)
            self.writes.write(group, keys)


def _is_same(before: CurrentAssignment, after: CurrentAssignment) -> bool:
    """Whether nothing has changed, whichever epoch came before (C89)."""
    return before is after or (
        before.member_epoch == after.member_epoch
        and before.state is after.state
        and before.assigned == after.assigned
        and before.revoking == after.revoking
    )


def _result(steps: Steps[T]) -> T:
    """The end of work that is short enough for one turn."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: T = stop.value
            return result
