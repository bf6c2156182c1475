"""The consumer's side of a rebalance: join, revoke, assign; heartbeats; subscribed topics.

One task rebalances, one gives signs of life, one watches for new topics. A rebalance waits for
the application to ask for its next batch: what it has in hand can then be committed, as between
two polls in Java.

    eager        next poll ── close, commit, revoke all ── join ── sync ── fetch offsets ── open
    cooperative  next poll ───────── still reading ─────── join ── sync ── fetch offsets ── open
                                                                  └─ what was taken from us: next
                         poll, close, commit, revoke; afterwards join again, for its new owner

Two rules keep a rebalance from repeating records: nothing of a partition is handed out once its
offset is being committed for the next owner, nor before its committed offset was read and the
listener told. ``open`` has what is between.

Source: docs/spec/coordinator.md §1.9 and §5; KIP-429 (cooperative), KIP-62.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from barnabas.client.background import BackgroundTasks
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
from .group_offsets import GroupOffsets

log = logging.getLogger(__name__)

PartitionSet = frozenset[TopicPartition]
_UNKNOWN_TOPIC_S: Final = 1.0
"""A topic that is not there yet is looked for so often, others every ``metadata.max.age.ms``."""
_NO_GENERATION: Final = -1


class RebalanceListener:
    """Told when partitions come and go; inherit and override what is wanted.

    Awaited by the rebalance, which goes on when it returns: to take longer than
    ``max.poll.interval.ms`` may cost the place in the group. An exception ends the consumer, unless
    it is a KafkaError that may pass: then the rebalance is tried again.
    """

    async def on_revoked(self, topic_partitions: PartitionSet) -> None:
        """These are about to be given up; their offsets can still be committed."""

    async def on_assigned(self, topic_partitions: PartitionSet) -> None:
        """These came; seek here to begin elsewhere than at the committed offset."""

    async def on_lost(self, topic_partitions: PartitionSet) -> None:
        """These are somebody else's already: the group went on without us."""


class GroupConsumer:
    """Keeps a fetcher reading what the group gives us.

    ``before_revoke`` commits and forgets what the application is done with; ``forget`` only
    forgets, for partitions that are lost. Both are awaited or called before the listener is told.
    """

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
        self.member = GroupMember(cluster, group, config)
        self.offsets = GroupOffsets(cluster, group)
        self.open: set[TopicPartition] = set()
        """What may be handed out now."""
        self.failure: BaseException | None = None
        """Why the group will never give us anything again."""
        self.holds_nothing = asyncio.Event()
        """Set while the application holds nothing that was handed out."""
        self.handed_out_at = 0.0
        """Since when it holds something, in seconds of the loop's clock."""
        self.is_waiting = False
        """A rebalance waits for the application's next poll."""
        self.is_settled = asyncio.Event()
        """Set while no rebalance is wanted or under way."""
        self._cluster = cluster
        self._config = config
        self._fetcher = fetcher
        self._listener = listener
        self._before_revoke = before_revoke
        self._forget = forget
        self._topics: frozenset[str] = frozenset()
        """What is subscribed to; with a pattern, the topics that matched it last."""
        self._pattern: re.Pattern[str] | None = None
        self._assignment: PartitionSet = frozenset()
        """What the group says is ours, read or not yet; ``open`` is never more than this."""
        self._counts_used: dict[str, int] = {}
        """Partitions of each topic when we last assigned; empty if we never led the group."""
        self._is_joining = False
        """From JoinGroup to the end of SyncGroup: both count as signs of life."""
        self._is_wanted = asyncio.Event()
        """Somebody asked for a rebalance that has not begun."""
        self._tasks = BackgroundTasks(self._fail)
        self._loop = asyncio.get_running_loop()
        self.holds_nothing.set()

    @property
    def is_subscribed(self) -> bool:
        """Whether we take part in the group; else its offsets alone are used."""
        return bool(self._topics) or self._pattern is not None

    @property
    def assignment(self) -> PartitionSet:
        """What the group gave us last."""
        return self._assignment

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

    def note_handed_out(self) -> None:
        """The application was given something."""
        if self.holds_nothing.is_set():
            self.holds_nothing.clear()
            self.handed_out_at = self._loop.time()

    def held_for_s(self) -> float:
        """How long ago the application was given what it holds; 0 when it holds nothing.

        So one that has taken nothing is never put out of the group for not asking: a rebalance
        need not wait for it.
        """
        return 0.0 if self.holds_nothing.is_set() else self._loop.time() - self.handed_out_at

    async def close(self) -> None:
        """Give up what we have, committed by the caller, and leave.

        The tasks end first, since a rebalance under way would take partitions over again. Leaving
        has the others get them at once, instead of after ``session.timeout.ms``.
        """
        await self._tasks.close()
        if self._assignment:
            await self._listener.on_revoked(self._assignment)
        self.open.clear()
        self._fetcher.remove(self._assignment)
        self._assignment = frozenset()
        await self.member.leave()

    def _fail(self, error: BaseException) -> None:
        self.failure = error
        # Both for those who wait: commits for the end of a rebalance, the application for records.
        self.is_settled.set()
        self._fetcher.wake()

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

    async def _await_next_poll(self) -> None:
        """Return when the application asks for more; nothing is handed out before we await.

        The consumer sees ``is_waiting`` and lets the loop turn once before it looks for records
        (``Consumer._let_rebalance_run``): by then we have closed what has to be closed.
        """
        self.is_waiting = True
        try:
            await self.holds_nothing.wait()
        finally:
            self.is_waiting = False

    async def _rebalance(self) -> None:
        # Cleared first: whoever asks for another rebalance while this one runs gets another.
        self._is_wanted.clear()
        # Without a generation nothing can be committed: the group counts us out, or not in yet.
        if self.member.generation == _NO_GENERATION:
            await self._lose_assignment()
        elif not self._config.is_cooperative:
            await self._revoke(self._assignment)
        await self._learn_topics()
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
        # Stable offsets only: those of a transaction that is still open may yet be replaced, and
        # whoever began before them would read records twice (KIP-447).
        if added:
            committed = await self.offsets.fetch(added, require_stable=True)
            self._fetcher.add(
                {
                    topic_partition: committed[topic_partition].offset
                    if topic_partition in committed
                    else None
                    for topic_partition in added
                }
            )
        self._assignment = assigned
        # Opened after the listener: it may seek, and nothing may be handed out from before that.
        await self._listener.on_assigned(added)
        self.open |= added
        self._fetcher.wake()

    async def _revoke(self, topic_partitions: PartitionSet) -> None:
        # Closed before the commit: what is handed out during it would be read again by the next
        # owner, who begins at the offset that we commit here.
        self.open -= topic_partitions
        if topic_partitions:
            await self._before_revoke(topic_partitions)
            await self._listener.on_revoked(topic_partitions)
        self._fetcher.remove(topic_partitions)
        self._assignment -= topic_partitions

    async def _lose_assignment(self) -> None:
        """Drop everything without a commit: it would be refused, and others read on already."""
        lost = self._assignment
        self.open.clear()
        self._fetcher.remove(lost)
        self._forget(lost)
        self._assignment = frozenset()
        if lost:
            log.warning("lost partitions group=%s count=%d", self.member.group, len(lost))
            await self._listener.on_lost(lost)

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
                    self.member.reset_for(rejoin.code)
                    self.rejoin()
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
