"""The consumer's side of a rebalance in a classic group: join, revoke, assign; heartbeats.

One task rebalances, one gives signs of life, one watches for new topics. A rebalance waits for
the application to ask for its next batch: what it has in hand can then be committed, as between
two polls in Java.

    eager        next poll ── close, commit, revoke all ── join ── sync ── fetch offsets ── open
    cooperative  next poll ───────── still reading ─────── join ── sync ── fetch offsets ── open
                                                                  └─ what was taken from us: next
                         poll, close, commit, revoke; afterwards join again, for its new owner

Source: docs/spec/coordinator.md §1.9 and §5; KIP-429 (cooperative), KIP-62.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Final

from barnabas.client.cluster import Cluster
from barnabas.client.errors import KafkaError
from barnabas.client.retry import may_succeed_later
from barnabas.client.topology import TopicPartition
from barnabas.protocol.errors import CorruptRequest, ErrorCode
from barnabas.protocol.messages.join_group import JoinGroupResponse

from .assignors import (
    ASSIGNORS,
    candidate,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from .consumer_config import ConsumerConfig
from .fetcher import Fetcher
from .group_member import GroupMember, MustRejoin, members_of
from .group_membership import GroupMembership, MemberIdentity
from .rebalance_listener import PartitionSet, RebalanceListener

log = logging.getLogger(__name__)

_UNKNOWN_TOPIC_S: Final = 1.0
"""A topic that is not there yet is looked for so often, others every ``metadata.max.age.ms``."""
_NO_GENERATION: Final = -1


class GroupConsumer(GroupMembership):
    """A member of a classic group, whose leader assigns the partitions."""

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        config: ConsumerConfig,
        fetcher: Fetcher,
        *,
        listener: RebalanceListener,
        before_revoke: Callable[[PartitionSet], Awaitable[None]],
        forget: Callable[[PartitionSet], None],
    ) -> None:
        super().__init__(
            cluster,
            group,
            config,
            fetcher,
            listener=listener,
            before_revoke=before_revoke,
            forget=forget,
        )
        self.member = GroupMember(cluster, group, config)
        self._topics: frozenset[str] = frozenset()
        """What is subscribed to; with a pattern, the topics that matched it last."""
        self._pattern: re.Pattern[str] | None = None
        self._counts_used: dict[str, int] = {}
        """Partitions of each topic when we last assigned; empty if we never led the group."""
        self._is_joining = False
        """From JoinGroup to the end of SyncGroup: both count as signs of life."""
        self._is_wanted = asyncio.Event()
        """Somebody asked for a rebalance that has not begun."""
        self._is_giving_up = False
        """A rebalance has begun, its JoinGroup is still to be sent."""

    @property
    def is_subscribed(self) -> bool:
        """Whether we take part in the group; else its offsets alone are used."""
        return bool(self._topics) or self._pattern is not None

    @property
    def identity(self) -> MemberIdentity:
        """For commits; that of a moment, so that a later generation does not commit for it."""
        return self.member.identity

    @property
    def joined_as(self) -> MemberIdentity:
        """Who we were in the last generation that had us, for messages."""
        return self.member.joined_as

    def subscribe(self, topics: Iterable[str], pattern: str | None) -> None:
        """Read these topics, or every topic whose whole name matches ``pattern``, from now on.

        What is read changes with the rebalance, not before. Raises ``re.error``.
        """
        is_new = not self._topics and self._pattern is None
        self._topics = frozenset(topics)
        self._pattern = None if pattern is None else re.compile(pattern)
        self.rejoin()
        if is_new:
            self._tasks.spawn(self._run(), "group")
            self._tasks.spawn(self._send_heartbeats(), "heartbeats")
            self._tasks.spawn(self._watch_topics(), "topics of the group")

    def rejoin(self) -> None:
        """Take part in another rebalance at the application's next poll."""
        self.is_settled.clear()
        self._is_wanted.set()

    async def after_refused_commit(
        self, offsets: Collection[TopicPartition], identity: MemberIdentity, error: KafkaError
    ) -> MemberIdentity | None:
        """Who is to commit again after a rebalance; None where it was not that, or too late."""
        if identity == self.identity and error.code is not ErrorCode.FENCED_INSTANCE_ID:
            self._obey(error.code)
        if error.code is ErrorCode.REBALANCE_IN_PROGRESS and self.holds_nothing.is_set():
            await self.is_settled.wait()
            if self.open.issuperset(offsets):
                return self.identity
        return None

    def _obey(self, code: ErrorCode) -> None:
        """The coordinator has told who we are that we have to join again.

        A listener may take its time to give partitions up, and every heartbeat is told meanwhile
        what the JoinGroup that follows answers: to join once more after that would make all others
        give up again, and members that are slow would never come to rest.
        """
        self.member.reset_for(code)
        if code is not ErrorCode.REBALANCE_IN_PROGRESS or not self._is_giving_up:
            self.rejoin()

    async def _leave(self) -> None:
        await self.member.leave()

    # Rebalancing.

    async def _run(self) -> None:
        while True:
            await self._is_wanted.wait()
            await self._await_next_poll()
            try:
                await self._rebalance()
            except MustRejoin as rejoin:
                log.info("rejoins group=%s reason=%s", self.member.group, rejoin.code.name)
                self.rejoin()
            except KafkaError as error:
                if not may_succeed_later(error):
                    log.error("cannot join group=%s reason=%s", self.member.group, error)
                    self._fail(error)
                    return
                log.warning("rebalance failed group=%s reason=%s", self.member.group, error)
                await asyncio.sleep(self._cluster.config.retry_backoff_ms / 1000)
                self.rejoin()
            if not self._is_wanted.is_set():
                self.is_settled.set()

    async def _rebalance(self) -> None:
        # Cleared first: whoever asks for another rebalance while this one runs gets another.
        self._is_wanted.clear()
        self._is_giving_up = True
        try:
            # Without a generation nothing can be committed: the group counts us out, or not in yet.
            if self.member.generation == _NO_GENERATION:
                await self._lose_assignment()
            elif not self._config.is_cooperative:
                await self._revoke(self._assignment)
            await self._learn_topics()
        finally:
            self._is_giving_up = False
        generation = self.member.generation
        owned = sorted(self._assignment)
        said = encode_subscription(self._topics, owned, generation)
        self._is_joining = True
        try:
            answer = await self.member.join(dict.fromkeys(self._config.assignors, said))
            protocol = answer.protocol_name or ""
            # Only who assigns watches the counts of partitions: not who did so once.
            self._counts_used = {}
            assignments = await self._assignments(answer) if _is_leader(answer) else {}
            data = await self.member.sync(protocol, assignments)
        finally:
            self._is_joining = False
        log.info(
            "joined group=%s member=%s generation=%d protocol=%s",
            self.member.group,
            self.member.member_id,
            self.member.generation,
            protocol,
        )
        try:
            await self._apply_assignment(frozenset(decode_assignment(data)))
        except CorruptRequest as bad:
            text = f"the leader of group {self.member.group} sent no assignment: {bad}"
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, text) from bad

    async def _assignments(self, answer: JoinGroupResponse) -> dict[str, bytes]:
        """What we, as the leader of the group, assign to each member.

        Counts of partitions are noted: a topic that grew since is a reason to rebalance again.
        Topics that do not exist get no partitions, and are looked for by :meth:`_watch_topics`.
        """
        try:
            members = [candidate(*member) for member in members_of(answer)]
        except CorruptRequest as bad:
            text = f"a member of group {self.member.group} sent no subscription: {bad}"
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, text) from bad
        topics = sorted(frozenset[str]().union(*(member.topics for member in members)))
        await self._cluster.metadata(topics)
        self._counts_used = self._counts(topics)
        assignor = ASSIGNORS[answer.protocol_name or ""]
        shares = assignor.assign(members, self._counts_used)
        return {
            member_id: encode_assignment(topic_partitions)
            for member_id, topic_partitions in shares.items()
        }

    async def _apply_assignment(self, assigned: PartitionSet) -> None:
        """Give up what is no longer ours, then read what is new; what stays is not touched."""
        revoked, added = self._assignment - assigned, assigned - self._assignment
        # Cooperative rebalance: what was taken from us is free for its new owner only in the next
        # generation, so give it up and join again at once (KIP-429).
        if revoked:
            await self._await_next_poll()
            await self._revoke(revoked)
            self.rejoin()
        # What is new counts as ours only with its position: where the offsets cannot be read now,
        # the next generation must find it new again, or nobody would ever open it.
        self._assignment = assigned - added
        if added:
            await self._find_positions(added)
        self._assignment = assigned
        # Opened after the listener: it may seek, and nothing may be handed out from before that.
        try:
            await self._listener.on_assigned(added)
        except KafkaError:
            # Not taken, hence not ours yet either: the next generation offers them again, whoever
            # assigns (test_partitions_that_a_listener_could_not_take_are_offered_to_it_again).
            self._assignment -= added
            self._fetcher.remove(added)
            raise
        self.open |= added
        self._fetcher.wake()

    # Heartbeats, and what else goes on.

    async def _send_heartbeats(self) -> None:
        # A task of its own: an application that works long on a batch is alive, and only
        # max.poll.interval.ms says how long it may (KIP-62).
        while True:
            await asyncio.sleep(self._config.heartbeat_interval_ms / 1000)
            if self._is_joining or self.member.generation == _NO_GENERATION:
                continue
            if self.held_for_s() * 1000 > self._config.max_poll_interval_ms:
                await self._leave_after_poll_timeout()
                continue
            # The answer is about who we were when we asked: after a rejoin it says nothing, and to
            # obey it would throw away the new member id or generation.
            before = self.member.identity
            try:
                await self.member.heartbeat()
            except MustRejoin as rejoin:
                if before == self.member.identity and not self._is_joining:
                    self._obey(rejoin.code)
            except KafkaError as error:
                if before == self.member.identity and not may_succeed_later(error):
                    self._fail(error)
                    return

    async def _leave_after_poll_timeout(self) -> None:
        """The application took longer than ``max.poll.interval.ms``: others get its partitions.

        It may come back: the rebalance that is asked for here begins at its next poll. Its commit
        of what it still holds is refused with CommitFailed
        (``test_an_application_that_never_polls_again_leaves_the_group``).
        """
        log.warning(
            "left the group, no poll within max.poll.interval.ms=%d group=%s held_s=%.1f",
            self._config.max_poll_interval_ms,
            self.member.group,
            self.held_for_s(),
        )
        self.open.clear()  # others may read on from now on: what waits here is not ours to give
        self.member.generation = _NO_GENERATION  # nor to commit, before the answer comes, too
        await self.member.leave()
        self.rejoin()

    async def _watch_topics(self) -> None:
        """Rejoin when what we subscribed to is more, or less, than at the last rebalance.

        Every member looks for topics that match its pattern, but at counts of partitions only who
        has assigned them: one member that rejoins is enough.
        """
        while True:
            is_complete = all(topic in self._counts_known for topic in self._topics)
            age_s = self._config.metadata_max_age_ms / 1000
            await asyncio.sleep(age_s if is_complete else min(age_s, _UNKNOWN_TOPIC_S))
            topics, counts = self._topics, self._counts_used
            try:
                await self._learn_topics()
                await self._cluster.metadata(sorted(self._topics | counts.keys()))
            except KafkaError as error:
                log.info("could not ask for topics reason=%s", error)
                continue
            now = self._counts(topics | counts.keys())
            if topics != self._topics or (counts and counts != now):
                self.rejoin()

    @property
    def _counts_known(self) -> dict[str, int]:
        return self._cluster.topology.counts

    def _counts(self, topics: Iterable[str]) -> dict[str, int]:
        known = self._counts_known
        return {topic: known[topic] for topic in topics if topic in known}

    async def _learn_topics(self) -> None:
        """Apply the pattern to the topics there are now."""
        if self._pattern is None:
            return
        answer = await self._cluster.metadata()
        self._topics = frozenset(
            topic.name
            for topic in answer.topics
            if topic.name and not topic.is_internal and self._pattern.fullmatch(topic.name)
        )


def _is_leader(answer: JoinGroupResponse) -> bool:
    return answer.leader == answer.member_id and not answer.skip_assignment
