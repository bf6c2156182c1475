"""How a group gets from one generation to the next: who is waited for, how long, who goes.

Source: docs/spec/coordinator.md §5.2, §5.3 (points 7, 8, 10) and §5.5. Every change of a group's
members passes here; join_group.py and membership.py decide what a sender may ask for.

A rebalance has two waits, each with its own deadline, so that no member can hold up a group for
longer than the longest rebalance timeout of all:

1. *Joins* (PreparingRebalance). Every member has to join again and every pending member id to be
   used. When the time is over the group goes on with those who are here; dynamic members that are
   missing are removed, static ones keep their place until their session expires.
2. *Assignments* (CompletingRebalance). Every member has to ask for its assignment, and the leader
   brings all of them along. Members that heartbeat but never ask would leave the group there for
   ever (KAFKA-12890): they are removed when the second deadline passes.

What holds throughout:

- An assignment is in the log before a member learns of it. A coordinator that takes over would
  else load an older generation than the one that the members work in.
- A pending request is answered exactly once: with the result, or with why there is none. Whatever
  replaces or removes it answers it.
- Long work on many members goes in turns (cooperative.py), and each step looks again whether the
  group, the generation and the member are still those that it was begun for.
- A deadline that fires for a member or group that is gone does nothing (KAFKA-8896).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import chain
from typing import Final

from barnabas.protocol.consumer_protocol import subscribed_topics
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import join_group
from barnabas.protocol.offsets_topic import group_key, group_value

from . import rebalance_responses
from .config import CoordinatorConfig
from .cooperative import ITEMS_PER_TURN, CooperativeScheduler
from .group import CONSUMER, Group, Member, PendingRequest
from .group_record import is_larger, record_of
from .group_registry import GroupRegistry
from .group_state import GroupState
from .offsets_journal import GROUP_ERRORS, Journal, OnCommitted
from .sessions import Sessions
from .timer import Deadline, TimerQueue
from .tombstones import TombstoneWrite

log = logging.getLogger(__name__)

REMOVALS_LOGGED: Final = 20
"""Lines at INFO about members removed between two generations; the others are counted in one.

Members by the thousand leave together when their machines stop: a line for each would cost more
than their removal.
"""


class Rebalancer:
    """Moves groups through their states; one for all groups of a coordinator."""

    def __init__(
        self,
        config: CoordinatorConfig,
        registry: GroupRegistry,
        timers: TimerQueue,
        journal: Journal,
        now_ms: Callable[[], int],
        scheduler: CooperativeScheduler,
    ) -> None:
        self._scheduler = scheduler
        self._config = config
        self._registry = registry
        self._timers = timers
        self.sessions = Sessions(config, timers)
        self._journal = journal
        self._now_ms = now_ms

    # -- groups and their timers --------------------------------------------------------------

    def create_group(self, group_id: str) -> Group:
        """Make a group that does not exist, on an offsets partition that is owned here."""
        group = Group(group_id, self._registry.term_of(group_id), since_ms=self._now_ms())
        self.prepare_timers(group)
        self._registry.add(group)
        return group

    def prepare_timers(self, group: Group) -> None:
        """Give a group and its members their timers, not yet running."""
        group.join_timer = Deadline(partial(self._join_expired, group))
        group.sync_timer = Deadline(partial(self._sync_expired, group))
        for member in group.members.values():
            self.sessions.prepare(member, partial(self._session_expired, group, member))

    def resume(self, group: Group) -> None:
        """A group was loaded: its sessions start, and it shrinks if it is too large.

        All sessions begin anew: members could not reach a coordinator while there was none, and
        must not be removed for that.
        """
        for member in group.members.values():
            self.sessions.renew(member)
        if len(group.members) > self._config.group_members_max:
            self.prepare_rebalance(group, "group.max.size was lowered")

    def mark_dead(self, group: Group, code: ErrorCode) -> None:
        """The group ends here: answer whoever waits with ``code``, stop every timer.

        It was deleted, or another node coordinates it from now on. The state comes first: whatever
        runs later for this group finds it dead.
        """
        if group.state is GroupState.DEAD:
            return
        group.become(GroupState.DEAD, self._now_ms())
        self._log_unlogged_removals(group)
        self._timers.end(*group.timers())
        group.pending_members.clear()

        def refuse_member(member: Member) -> None:
            self.sessions.end(member)
            self.fail_pending_requests(group, member, code)

        self._scheduler.run(list(group.members.values()), refuse_member)

    # -- members -----------------------------------------------------------------------------

    def add_pending_member(self, group: Group, member_id: str, session_timeout_ms: int) -> None:
        """A member id was given out: wait for its owner, one session timeout at most.

        The join waits for it as for a member (KIP-394). A client that never comes back with its id
        delays the group once, and leaves no member behind (KAFKA-7610).
        """
        deadline = Deadline(partial(self._pending_member_expired, group, member_id))
        group.pending_members[member_id] = deadline
        self._timers.start(deadline, session_timeout_ms)

    def add_member(
        self, group: Group, member: Member, protocol_type: str, waiting: PendingRequest
    ) -> None:
        """Take a new member in and keep its JoinGroup until the join completes."""
        # Noted for the first generation only: it prolongs the wait for further members (KIP-134).
        if group.state is GroupState.PREPARING and group.generation == 0:
            group.has_grown = True
        pending = group.pending_members.get(member.member_id)
        if pending is not None:
            self._timers.end(pending)
        member.is_new = True
        self.sessions.prepare(member, partial(self._session_expired, group, member))
        group.add(member, protocol_type)
        group.await_join(member, waiting)
        self.sessions.begin_first_join(member)
        self.maybe_prepare_rebalance(group, f"member {member.member_id} joined")

    def await_join(self, group: Group, member: Member, waiting: PendingRequest) -> None:
        """Keep a JoinGroup of a member; an older one of the same member is answered 16.

        Its client has given up on it, but a connection answers in order: a request that is never
        answered would hold back everything behind it (KAFKA-20938).
        """
        superseded = group.await_join(member, waiting)
        if superseded is not None:
            self._refuse_join(superseded, member, ErrorCode.NOT_COORDINATOR)

    def fail_pending_requests(self, group: Group, member: Member, code: ErrorCode) -> None:
        """Answer the JoinGroup and the SyncGroup that the member waits for with ``code``."""
        join = group.take_join(member)
        if join is not None:
            self._refuse_join(join, member, code)
        sync, member.sync = member.sync, None
        if sync is not None:
            sync.respond(rebalance_responses.sync_refused(code))

    def remove(self, group: Group, member: Member, reason: str) -> None:
        """A member goes; the others find out in a rebalance."""
        self._drop(group, member, reason)
        self.maybe_prepare_rebalance(group, reason)

    def remove_pending_member(self, group: Group, member_id: str) -> None:
        """Nobody will come for this pending member id: it holds up no join any more."""
        self._timers.end(group.pending_members.pop(member_id))
        self.try_complete_join(group)

    def _drop(self, group: Group, member: Member, reason: str) -> None:
        group.removals += 1
        level = logging.INFO if group.removals <= REMOVALS_LOGGED else logging.DEBUG
        log.log(
            level, "removed member group=%s member=%s: %s", group.group_id, member.member_id, reason
        )
        self.sessions.end(member)
        self.fail_pending_requests(group, member, ErrorCode.UNKNOWN_MEMBER_ID)
        group.remove(member)

    @staticmethod
    def _log_unlogged_removals(group: Group) -> None:
        unlogged = group.removals - REMOVALS_LOGGED
        if unlogged > 0:
            log.info("removed further members group=%s count=%d", group.group_id, unlogged)
        group.removals = 0

    def _refuse_join(self, waiting: PendingRequest, member: Member, code: ErrorCode) -> None:
        # 25 tells the client to come back as somebody new: with its old id it would be told 25
        # again, for ever. All other codes leave it its id (KAFKA-12984).
        member_id = "" if code is ErrorCode.UNKNOWN_MEMBER_ID else member.member_id
        waiting.respond(rebalance_responses.join_refused(code, waiting.version, member_id))

    # -- the wait for joins ------------------------------------------------------------------

    def maybe_prepare_rebalance(self, group: Group, reason: str) -> None:
        """Start a rebalance where the state allows one, or see whether one can end now.

        While a join is under way a change of members can only complete it, not begin another.
        """
        if group.rules.may_rebalance:
            self.prepare_rebalance(group, reason)
        else:
            self.try_complete_join(group)

    def prepare_rebalance(self, group: Group, reason: str) -> None:
        """Call everyone to join again: heartbeats are answered 27 from now on.

        Members that wait for an assignment are answered 27 as well. Their generation is over, and
        its assignments hold no more.
        """
        log.info(
            "preparing rebalance group=%s generation=%d: %s",
            group.group_id,
            group.generation,
            reason,
        )
        was_empty = group.state is GroupState.EMPTY
        self._timers.stop(group.sync_timer)
        group.become(GroupState.PREPARING, self._now_ms())
        self._refuse_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS)
        if was_empty:
            self._delay_first_rebalance(group)
        else:
            self._timers.start(group.join_timer, group.rebalance_timeout_ms)
            self.try_complete_join(group)

    def try_complete_join(self, group: Group) -> None:
        """Complete the join when nobody is missing and no initial delay runs."""
        if (
            group.state is GroupState.PREPARING
            and not group.is_delayed
            and group.has_everyone_joined
        ):
            self._complete_join(group)

    def _delay_first_rebalance(self, group: Group) -> None:
        """A group leaves Empty: others may be about to come, so wait a little (KIP-134).

        The members of an application start within seconds. Without the wait each of them would
        cost all that are there a rebalance.
        """
        delay = self._config.initial_rebalance_delay_ms
        group.is_delayed = True
        group.has_grown = False
        group.initial_remaining_ms = max(group.rebalance_timeout_ms - delay, 0)
        if delay == 0:
            self._join_expired(group)
        else:
            self._timers.start(group.join_timer, delay)

    def _join_expired(self, group: Group) -> None:
        if group.state is not GroupState.PREPARING:
            return
        # Somebody came during the first wait, so others may follow: wait again, but never longer in
        # all than the rebalance timeout that the first member asked for.
        if group.is_delayed and group.has_grown and group.initial_remaining_ms:
            group.has_grown = False
            delay = min(self._config.initial_rebalance_delay_ms, group.initial_remaining_ms)
            group.initial_remaining_ms -= delay
            self._timers.start(group.join_timer, delay)
            return
        self._complete_join(group)

    def _complete_join(self, group: Group) -> None:
        """The wait is over: go on with those who are here, once the others are gone.

        Static members that did not join stay: a restart within the session timeout must not cost
        the group a rebalance, which is what they are for (KIP-345).
        """
        assert group.state is GroupState.PREPARING
        self._timers.stop(group.join_timer)
        missing = [
            member
            for member in group.members.values()
            if member.join is None and not member.is_static
        ]
        # Until they are gone, over several turns if they are many, nobody else may complete it: two
        # generations would begin.
        group.is_delayed = True

        def drop(member: Member) -> None:
            is_here = group.members.get(member.member_id) is member
            if group.state is GroupState.PREPARING and is_here and member.join is None:
                self._drop(group, member, "did not rejoin in time")

        self._scheduler.run(missing, drop, partial(self._begin_generation, group))

    def _begin_generation(self, group: Group) -> None:
        if group.state is not GroupState.PREPARING:
            return  # it was buried meanwhile
        group.is_delayed = False
        if group.members and not group.elect_joined_leader():
            # only silent static members are left: their sessions decide
            self._timers.start(group.join_timer, group.rebalance_timeout_ms)
            return
        group.next_generation(self._now_ms())
        self._log_unlogged_removals(group)
        log.info(
            "began generation group=%s generation=%d members=%d protocol=%s",
            group.group_id,
            group.generation,
            len(group.members),
            group.protocol,
        )
        if group.members:
            self._answer_joins(group)
            self._gather_subscribed(group)
        else:
            self.store_group(group, {}, partial(self._empty_group_stored, group))

    def _answer_joins(self, group: Group) -> None:
        """Tell every member its generation, the leader last.

        The leader is told of all members, and to list them takes several turns where they are many.
        What it is told was noted before the first turn: members that come or go meanwhile belong to
        the next generation.
        """
        group.pending_syncs = dict.fromkeys(group.members)
        self._timers.start(group.sync_timer, group.rebalance_timeout_ms)
        generation, protocol = rebalance_responses.Generation.of(group), group.protocol
        members, listed = list(group.members.values()), list[join_group.Member]()
        due: dict[str, PendingRequest] = {}
        for member in members:
            waiting = group.take_join(member)
            if waiting is not None:  # static and silent ones go on with the session they have
                member.is_answer_due = True
                due[member.member_id] = waiting
        leading = due.pop(generation.leader, None)

        def respond_to(member: Member) -> None:
            listed.append(rebalance_responses.member_entry(member, protocol))
            waiting = due.pop(member.member_id, None)
            if waiting is not None:
                self._answered(group, member)
                waiting.respond(generation.joined(member.member_id))

        def respond_to_leader() -> None:
            for member_id, waiting in due.items():  # whose member has another id by now
                waiting.respond(generation.joined(member_id))
            if leading is not None:
                leader = group.members.get(generation.leader)
                if leader is not None:
                    self._answered(group, leader)
                leading.respond(generation.joined(generation.leader, listed))

        self._scheduler.run(members, respond_to, respond_to_leader)

    def _answered(self, group: Group, member: Member) -> None:
        """A member has an answer: from now on it has to give signs of life (sessions.py)."""
        member.is_new = False
        self._renew_session_of_answered(group, member)

    def _gather_subscribed(self, group: Group) -> None:
        """Find out what a large group subscribes to, as :meth:`Group.next_generation` has not.

        Until then it is unknown, and unknown keeps offsets: expiration touches none of the group,
        and OffsetDelete refuses its topics.
        """
        if group.protocol_type != CONSUMER or len(group.members) <= ITEMS_PER_TURN:
            return
        generation, protocol = group.generation, group.protocol
        gathered: list[list[str] | None] = []

        def gather(member: Member) -> None:
            gathered.append(subscribed_topics(member.metadata(protocol)))

        def publish() -> None:
            known = [topics for topics in gathered if topics is not None]
            if group.generation == generation and len(known) == len(gathered):
                group.subscribed = frozenset(chain.from_iterable(known))

        self._scheduler.run(list(group.members.values()), gather, publish)

    # -- the wait for assignments --------------------------------------------------------------

    def sync_received(self, group: Group, member: Member) -> None:
        """A member asked for its assignment: it is not missed any more.

        The last one stops the deadline. It keeps running in Stable, for followers whose leader was
        quicker than they are.
        """
        group.pending_syncs.pop(member.member_id, None)
        if not group.pending_syncs:
            self._timers.stop(group.sync_timer)

    def store_assignment(self, group: Group, decided: Iterable[tuple[str, bytes]]) -> None:
        """Store what the leader decided; whoever waits is answered once it is committed.

        A member that the leader left out gets an empty assignment; ids that are no members are
        ignored, as in Kafka.
        """
        complete: dict[str, bytes] = {}
        if not self._is_too_large(group):
            assignments = dict(decided)
            complete = {member_id: assignments.get(member_id, b"") for member_id in group.members}
        on_committed = partial(self._assignment_stored, group, group.generation, complete)
        self.store_group(group, complete, on_committed)

    def store_group(
        self, group: Group, assignments: Mapping[str, bytes], on_committed: OnCommitted
    ) -> None:
        """Write the group's record; ``on_committed`` gets the log's own code, not translated."""
        if self._is_too_large(group):
            self._journal.refuse(group.term, ErrorCode.MESSAGE_TOO_LARGE, on_committed)
            return
        value = group_value(record_of(group, assignments))
        self._journal.write(group.term, [(group_key(group.group_id), value)], on_committed)
        if group.stale_keys:
            self._forget_stale_keys(group)

    def _forget_stale_keys(self, group: Group) -> None:
        """Delete what a consumer group of this name left, behind the record of this one."""

        def done(code: ErrorCode) -> None:
            if not code:
                group.stale_keys = ()

        forgetting = TombstoneWrite(done)
        forgetting.write(self._journal, group, [(key, None) for key in group.stale_keys])
        forgetting.close()

    def retire(self, group: Group) -> None:
        """The group goes on as one of the other kind: nothing of this one moves any more.

        It is not dead: commits that are on their way for it settle, in offsets that both have.
        """
        self._timers.end(*group.timers())
        for member in group.members.values():
            self.sessions.end(member)
        group.members, group.static_members, group.pending_members = {}, {}, {}

    def _is_too_large(self, group: Group) -> bool:
        """Whether the group's record cannot fit into a batch, as far as that is seen at once.

        To make the record of 100,000 members takes half a second, only to be refused.
        """
        return is_larger(group, self._journal.plain_bytes_max(group.term))

    def _assignment_stored(
        self,
        group: Group,
        generation: int,
        assignments: Mapping[str, bytes],
        code: ErrorCode,
        _offset: int,
    ) -> None:
        if group.state is not GroupState.COMPLETING or group.generation != generation:
            # Another rebalance began while the record was replicated, and answered whoever waited.
            # To assign partitions now would give them to members of two generations.
            return
        if code:
            translated = GROUP_ERRORS.get(code, code)
            log.warning("group not stored group=%s code=%s", group.group_id, code.name)
            self._refuse_syncs(group, translated)
            self.prepare_rebalance(group, f"its assignment could not be stored ({code.name})")
            return
        group.become(GroupState.STABLE, self._now_ms())
        due = []
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            waiting, member.sync = member.sync, None
            if waiting is not None:
                member.is_answer_due = True
                due.append((member, waiting, member.assignment))
        protocol_type, protocol = group.protocol_type, group.protocol

        def respond(one: tuple[Member, PendingRequest, bytes]) -> None:
            member, waiting, assignment = one
            self._renew_session_of_answered(group, member)
            waiting.respond(rebalance_responses.assigned(protocol_type, protocol, assignment))

        self._scheduler.run(due, respond)

    def _renew_session_of_answered(self, group: Group, member: Member) -> None:
        """Renew the session of a member that is answered now, unless it has gone meanwhile."""
        member.is_answer_due = False
        if group.members.get(member.member_id) is member and group.state is not GroupState.DEAD:
            self.sessions.renew(member)

    def _refuse_syncs(self, group: Group, code: ErrorCode) -> None:
        """No assignment holds any more: clear them, answer whoever waits for one.

        An assignment that stayed would be told to the member that comes late, and be another
        member's by then.
        """
        due = []
        for member in group.members.values():
            member.assignment = b""
            waiting, member.sync = member.sync, None
            if waiting is not None:
                member.is_answer_due = True
                due.append((member, waiting))

        def respond(one: tuple[Member, PendingRequest]) -> None:
            self._renew_session_of_answered(group, one[0])
            one[1].respond(rebalance_responses.sync_refused(code))

        self._scheduler.run(due, respond)

    @staticmethod
    def _empty_group_stored(group: Group, code: ErrorCode, _offset: int) -> None:
        if code:
            log.warning("empty group not stored group=%s code=%s", group.group_id, code.name)

    # -- what happens when time is up ----------------------------------------------------------

    def _session_expired(self, group: Group, member: Member) -> None:
        if group.state is GroupState.DEAD or group.members.get(member.member_id) is not member:
            return
        if self.sessions.has_expired(member):
            self.remove(group, member, "its session timed out")

    def _pending_member_expired(self, group: Group, member_id: str) -> None:
        if group.pending_members.pop(member_id, None) is not None:
            self.try_complete_join(group)

    def _sync_expired(self, group: Group) -> None:
        """Some never asked for their assignment though they are alive (KAFKA-12890)."""
        if group.state not in (GroupState.COMPLETING, GroupState.STABLE):
            return
        generation = group.generation
        missing = [
            group.members[member_id]
            for member_id in group.pending_syncs
            if member_id in group.members
        ]

        def is_same() -> bool:
            is_waiting = group.state in (GroupState.COMPLETING, GroupState.STABLE)
            return is_waiting and group.generation == generation

        def drop(member: Member) -> None:
            is_missing = member.member_id in group.pending_syncs
            if is_same() and is_missing and group.members.get(member.member_id) is member:
                self._drop(group, member, "did not ask for its assignment in time")

        def rebalance_again() -> None:
            if missing and is_same():
                self.prepare_rebalance(group, "members did not ask for their assignment")

        self._scheduler.run(missing, drop, rebalance_again)
