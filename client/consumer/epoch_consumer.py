"""The consumer's side of a rebalance in a group of the consumer protocol (KIP-848).

The coordinator assigns, and tells each member with its heartbeats what it may own. One task sends
the heartbeats, one brings what we own to what they told, and gives up before it takes:

    heartbeat: target ── given up: next poll, close, commit, revoke ── heartbeat: owned
                      └─ new: name of its topic, committed offset, listener, open ── the same
    fenced: close at once ── next poll, lose all ── heartbeat: join

Heartbeats go on while the application, or its listener, takes its time; what stays is read on.

Source: docs/spec/consumer-groups.md §12; KIP-848.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any, Final

from barnabas.client.background import Signal
from barnabas.client.cluster import Cluster
from barnabas.client.errors import KafkaError, RequestTimedOut, UnsupportedVersion, known_code
from barnabas.client.group_metadata import CommittedOffset
from barnabas.client.retry import REMEDIES, Remedy, backoff, may_succeed_later
from barnabas.client.topology import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.metadata import MetadataRequest, Topic

from .consumer_config import ConsumerConfig
from .epoch_member import EpochMember, TopicIdPartitions
from .fetcher import Fetcher
from .group_membership import GroupMembership, MemberIdentity
from .rebalance_listener import PartitionSet, RebalanceListener

log = logging.getLogger(__name__)

_VERSION_LEAST: Final = 1
"""From here on a member makes its own id (KIP-1082)."""
_LEAVE_S: Final = 5.0
"""So long a coordinator that moves is looked for, to be told that we leave."""
_FENCED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})
_HINTS: Final = {
    ErrorCode.UNSUPPORTED_VERSION: "the coordinator does not serve group.protocol=consumer",
    ErrorCode.UNRELEASED_INSTANCE_ID: "another consumer has this group.instance.id, or had it "
    "until it ended without a word: then its place is free after its session",
    ErrorCode.GROUP_ID_NOT_FOUND: "a group of this name has members of the classic protocol, and "
    "cannot be converted",
}


class EpochConsumer(GroupMembership):
    """A member of a group whose coordinator assigns the partitions."""

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
        self.member = EpochMember(group, config)
        self._ids: dict[TopicPartition, bytes] = {}
        """The topic's id of each partition that is assigned."""
        self._is_subscribed = False
        self._refusal: KafkaError | None = None
        """What the application is told once, and may be able to do something about."""
        self._is_due = asyncio.Event()
        """A heartbeat should go out now."""
        self._next_at = 0.0
        """When one goes out at the latest, in seconds of the loop's clock."""
        self._failures = 0
        """Heartbeats in a row that had no good answer."""
        self._answered = Signal()
        """A heartbeat had an answer, or none comes any more."""
        self._has_work = asyncio.Event()
        """What we own, and what we may own, may differ."""

    @property
    def is_subscribed(self) -> bool:
        """Whether we take part in the group; else its offsets alone are used."""
        return self._is_subscribed

    @property
    def identity(self) -> MemberIdentity:
        """For commits; that of a moment: the epoch may be another with the next heartbeat."""
        return self.member.identity

    @property
    def joined_as(self) -> MemberIdentity:
        """Who we were when the group had us last, for messages."""
        return self.member.joined_as

    @property
    def owned(self) -> TopicIdPartitions:
        """What is assigned to us and not given up, by the topics' ids."""
        return frozenset((self._ids[place], place.partition) for place in self._assignment)

    def subscribe(self, topics: Iterable[str], pattern: str | None) -> None:
        """Read these topics, or those whose whole name matches ``pattern``, in RE2's syntax.

        The coordinator matches names: an expression that it cannot read ends the consumer with
        INVALID_REGULAR_EXPRESSION.
        """
        self.member.subscribe(topics, pattern)
        self.is_settled.clear()
        self._is_due.set()
        if not self._is_subscribed:
            self._is_subscribed = True
            self._tasks.spawn(self._reconcile_always(), "group")
            self._tasks.spawn(self._send_heartbeats(), "heartbeats")

    def raise_failure(self) -> None:
        """Raise why nothing more will come, or, once, what the coordinator refuses for now."""
        super().raise_failure()
        refusal, self._refusal = self._refusal, None
        if refusal is not None:
            raise refusal

    async def fetch_offsets(
        self, topic_partitions: Iterable[TopicPartition] | None, *, require_stable: bool
    ) -> dict[TopicPartition, CommittedOffset]:
        """As :meth:`GroupOffsets.fetch`: only a member at its epoch is told them.

        With a stale epoch nothing is told, and we ask again with the next one. Who is fenced
        meanwhile asks as nobody in particular: what it reads is lost anyway.
        """
        wanted = None if topic_partitions is None else list(topic_partitions)
        while True:
            identity = self.identity
            member = identity if self.member.is_member else None
            try:
                return await self.offsets.fetch(
                    wanted, require_stable=require_stable, member=member
                )
            except KafkaError as error:
                if member is None or error.code not in {*_FENCED, ErrorCode.STALE_MEMBER_EPOCH}:
                    raise
            await self._another_epoch_than(identity)

    async def after_refused_commit(
        self, offsets: Collection[TopicPartition], identity: MemberIdentity, error: KafkaError
    ) -> MemberIdentity | None:
        """Who is to commit again: we, at the next epoch, where it is only the epoch.

        It may be raised while a commit is on its way, with all of ``offsets`` still ours: they are
        only then committed by a later epoch.
        """
        if error.code is not ErrorCode.STALE_MEMBER_EPOCH:
            self._is_due.set()  # whether we are fenced, a heartbeat tells
            return None
        await self._another_epoch_than(identity)
        is_ours = self._assignment.issuperset(offsets)
        return self.identity if is_ours and self.member.is_member else None

    async def _another_epoch_than(self, identity: MemberIdentity) -> None:
        """Return when we are somebody else; at the latest a moment after the next heartbeat."""
        if self.identity == identity and self.failure is None:
            self._is_due.set()
            await self._answered.wait(self._cluster.config.request_timeout_ms / 1000)
        if self.identity == identity:
            await self._pause()

    async def close(self) -> None:
        """Give up what we have, committed by the caller, and leave; see the base class."""
        if self.member.is_out or self.failure is not None:
            await self._tasks.close()
            await self._lose_assignment()
        await super().close()

    async def _leave(self) -> None:
        if not self.member.has_asked or self.member.is_out or self.failure is not None:
            return
        farewell = self.member.farewell()
        self.member.drop_out()
        try:
            async with asyncio.timeout(_LEAVE_S):
                await self._cluster.to_coordinator(
                    self.group, farewell, lambda answer: [answer.error_code]
                )
        except (KafkaError, TimeoutError) as error:
            log.info("left without an answer group=%s reason=%s", self.group, error)

    def _fail(self, error: BaseException) -> None:
        self.open.clear()
        super()._fail(error)
        self._answered.notify()

    # Heartbeats.

    async def _send_heartbeats(self) -> None:
        while self.failure is None:
            await self._until_due()
            if self.member.is_out:
                self._is_due.clear()
                continue
            if self.held_for_s() * 1000 >= self._config.max_poll_interval_ms:
                await self._leave_after_poll_timeout()
                continue
            self._is_due.clear()
            sent_at = self._loop.time()
            await self._send_heartbeat(self.member.heartbeat(self.owned))
            self._next_at = sent_at + self.member.interval_s
            self._answered.notify()

    async def _until_due(self) -> None:
        """Return when a heartbeat is due, or the application was silent for too long."""
        if self.member.is_out:
            await self._is_due.wait()
            return
        now = self._loop.time()
        wait_s = self._next_at - now
        if not self.holds_nothing.is_set():
            patience_s = self._config.max_poll_interval_ms / 1000 - self.held_for_s()
            wait_s = min(wait_s, patience_s)
        try:
            async with asyncio.timeout(max(wait_s, 0)):
                await self._is_due.wait()
        except TimeoutError:
            return

    async def _send_heartbeat(self, request: ConsumerGroupHeartbeatRequest) -> None:
        before = self.member.epoch
        try:
            await self._check_version()
            answer = await self._cluster.ask_coordinator(self.group, request)
        except KafkaError as error:
            await self._after_failure(error)
            return
        code = known_code(answer.error_code)
        if code:
            await self._after_failure(
                KafkaError(code, answer.error_message or _HINTS.get(code, ""))
            )
            return
        self._failures = 0
        self.member.accept(answer)
        if self.member.epoch != before:
            log.info(
                "has another epoch group=%s member=%s epoch=%d was=%d",
                self.group,
                self.member.member_id,
                self.member.epoch,
                before,
            )
        self._look()

    async def _check_version(self) -> None:
        """Raise UnsupportedVersion where the coordinator does not serve what we speak."""
        connection = await self._cluster.coordinator_connection(self.group)
        if connection.version_of(ConsumerGroupHeartbeatRequest) < _VERSION_LEAST:
            hint = _HINTS[ErrorCode.UNSUPPORTED_VERSION]
            raise UnsupportedVersion(f"{connection.peer}: {hint} in a released version")

    async def _after_failure(self, error: KafkaError) -> None:
        """Do what the answer to a heartbeat asks for, or the lack of one."""
        self.member.forget_said()
        if error.code in _FENCED:
            log.warning("fenced group=%s reason=%s", self.group, error)
            self._drop_out()
            return
        if error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            # What we have stays ours, and the right may be given later: tell, and go on.
            self._refusal = error
            self._fetcher.wake()
            return
        step = REMEDIES.get(error.code, Remedy.GIVE_UP)
        if isinstance(error, RequestTimedOut) or error.code is ErrorCode.BROKER_NOT_AVAILABLE:
            step = Remedy.LOOK_AGAIN
        if step is Remedy.GIVE_UP:
            log.error("cannot be a member group=%s reason=%s", self.group, error)
            self._fail(error)
            return
        if step is Remedy.LOOK_AGAIN:
            self._cluster.forget_coordinator(self.group)
        log.info("heartbeat was not taken group=%s reason=%s", self.group, error)
        await asyncio.sleep(backoff(self._cluster.config, self._cluster.random, self._failures))
        self._failures += 1
        self._is_due.set()

    async def _leave_after_poll_timeout(self) -> None:
        """The application took longer than ``max.poll.interval.ms``: others get its partitions.

        It may come back: at its next poll all is lost, and we join again. Its commit of what it
        still holds is refused with CommitFailed.
        """
        log.warning(
            "left the group, no poll within max.poll.interval.ms=%d group=%s held_s=%.1f",
            self._config.max_poll_interval_ms,
            self.group,
            self.held_for_s(),
        )
        self.open.clear()  # others may read on from now on: what waits here is not ours to give
        await self._leave()
        self._drop_out()

    def _drop_out(self) -> None:
        """Nothing is ours: hand out nothing more, and join again after the next poll."""
        self.open.clear()
        self.member.drop_out()
        self._answered.notify()
        self._look()

    # Reconciliation.

    def _look(self) -> None:
        """Compare what we own with what we may own."""
        member = self.member
        has_work = member.is_out or (member.is_member and self.owned != member.target)
        if has_work:
            self._has_work.set()
        if has_work or not member.is_member:  # while joining, there is nothing to compare
            self.is_settled.clear()
            return
        if member.has_news(self.owned):
            self._is_due.set()
        if not self._has_work.is_set():
            self.is_settled.set()

    async def _reconcile_always(self) -> None:
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            try:
                await self._reconcile()
            except KafkaError as error:
                if not may_succeed_later(error):
                    log.error("cannot go on group=%s reason=%s", self.group, error)
                    self._fail(error)
                    return
                log.warning("rebalance failed group=%s reason=%s", self.group, error)
                await self._pause()
                self._has_work.set()
            self._look()

    async def _pause(self) -> None:
        await asyncio.sleep(self._cluster.config.retry_backoff_ms / 1000)

    async def _reconcile(self) -> None:
        """Give up what is not ours any more, then take what is new; what stays is not touched."""
        if self.member.is_out:
            await self._rejoin()
            return
        if self.owned == self.member.target:
            return  # a heartbeat was answered while the last of it was done
        if self._unwanted():
            await self._await_next_poll()
            unwanted = self._unwanted()  # the coordinator may have thought better of it
            if not self.member.is_out and unwanted:
                await self._revoke(unwanted)
                self._is_due.set()  # others wait for these: acknowledge at once
        if not self.member.is_out and self.member.is_member:
            await self._take_over()

    async def _rejoin(self) -> None:
        await self._await_next_poll()
        await self._lose_assignment()
        self.member.rejoin()
        self._is_due.set()

    def _unwanted(self) -> PartitionSet:
        target = self.member.target
        return frozenset(
            place for place in self._assignment if (self._ids[place], place.partition) not in target
        )

    async def _take_over(self) -> None:
        """Read what is new, as far as its topics have names by now; listeners are told of it."""
        wanted = self.member.target - self.owned
        names = await self._names_of({topic_id for topic_id, _ in wanted})
        ids = {
            TopicPartition(names[topic_id], partition): topic_id
            for topic_id, partition in wanted
            if topic_id in names
        }
        # A topic that was made anew while its old partitions are still being given up: they share
        # a name, and go before these come.
        added = frozenset(ids) - self._assignment
        if added:
            await self._find_positions(added)
        if self.member.is_out:
            self._fetcher.remove(added)
            return
        is_complete = len(added) == len(wanted)
        # Told even of nothing, as in Kafka: so a listener learns that a rebalance is over. Opened
        # afterwards: it may seek, and nothing may be handed out from before that.
        if added or is_complete:
            await self._listener.on_assigned(added)
        self._ids |= {place: ids[place] for place in added}
        self._assignment |= added
        if not self.member.is_out:
            self.open |= added - self._unwanted()
        self._fetcher.wake()
        if not is_complete:
            await self._pause()

    async def _names_of(self, topic_ids: Collection[bytes]) -> dict[bytes, str]:
        """The names of topics; those that no broker knows yet are left out."""
        known = self._cluster.topology.topic_names
        unknown = [topic_id for topic_id in topic_ids if topic_id not in known]
        if unknown:
            topics = [Topic(topic_id=topic_id, name=None) for topic_id in sorted(unknown)]
            request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
            await self._cluster.to_any(request, _no_codes)
        return {topic_id: known[topic_id] for topic_id in topic_ids if topic_id in known}


def _no_codes(answer: Any) -> Iterable[int]:
    return ()
