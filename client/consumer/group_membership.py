"""What a consumer does as a member of a group, whichever protocol the group speaks.

Two rules keep a rebalance from repeating records: nothing of a partition is handed out once its
offset is being committed for the next owner, nor before its committed offset was read and the
listener told. ``open`` has what is between.

Source: docs/spec/coordinator.md §1.9 and §5; docs/spec/consumer-groups.md §12; KIP-62.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import NamedTuple

from barnabas.client.background import BackgroundTasks
from barnabas.client.cluster import Cluster
from barnabas.client.errors import KafkaError
from barnabas.client.group_metadata import CommittedOffset
from barnabas.client.topology import TopicPartition

from .consumer_config import ConsumerConfig
from .fetcher import Fetcher
from .group_offsets import GroupOffsets
from .rebalance_listener import PartitionSet, RebalanceListener

log = logging.getLogger(__name__)


class MemberIdentity(NamedTuple):
    """Who commits, at one moment."""

    member_id: str
    generation: int
    """The generation, or the member's epoch in the consumer protocol; -1 for no member."""
    instance_id: str | None


class GroupMembership(ABC):
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
        self.group = group
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
        self.losses = 0
        """How often the group went on without us."""
        self._cluster = cluster
        self._config = config
        self._fetcher = fetcher
        self._listener = listener
        self._before_revoke = before_revoke
        self._forget = forget
        self._assignment: PartitionSet = frozenset()
        """What the group says is ours, read or not yet; ``open`` is never more than this."""
        self._tasks = BackgroundTasks(self._fail)
        self._loop = asyncio.get_running_loop()
        self.holds_nothing.set()

    @property
    @abstractmethod
    def is_subscribed(self) -> bool:
        """Whether we take part in the group; else its offsets alone are used."""

    @property
    @abstractmethod
    def identity(self) -> MemberIdentity:
        """For commits; that of a moment, so that a later generation does not commit for it."""

    @property
    @abstractmethod
    def joined_as(self) -> MemberIdentity:
        """Who we were when the group had us last, for messages."""

    @abstractmethod
    def subscribe(self, topics: Iterable[str], pattern: str | None) -> None:
        """Read these topics, or every topic whose whole name matches ``pattern``, from now on.

        What is read changes with the rebalance, not before.
        """

    @abstractmethod
    async def after_refused_commit(
        self, offsets: Collection[TopicPartition], identity: MemberIdentity, error: KafkaError
    ) -> MemberIdentity | None:
        """Who is to commit ``offsets`` again; None where that would store what is not ours.

        ``error`` says that the group knows nothing of ``identity``, or not any longer.
        """

    @abstractmethod
    async def _leave(self) -> None:
        """Let the group go on without us at once."""

    @property
    def api_timeout_s(self) -> float:
        """How long a call of the application may try."""
        return self._cluster.config.api_timeout_ms / 1000

    @property
    def assignment(self) -> PartitionSet:
        """What the group gave us last."""
        return self._assignment

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

    def raise_failure(self) -> None:
        """Raise why nothing more will come, if so."""
        if self.failure is not None:
            raise self.failure

    async def fetch_offsets(
        self, topic_partitions: Iterable[TopicPartition] | None, *, require_stable: bool
    ) -> dict[TopicPartition, CommittedOffset]:
        """As :meth:`GroupOffsets.fetch`, in the name of this member where the protocol has that."""
        return await self.offsets.fetch(topic_partitions, require_stable=require_stable)

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
        await self._leave()

    def _fail(self, error: BaseException) -> None:
        self.failure = error
        # Both for those who wait: commits for the end of a rebalance, the application for records.
        self.is_settled.set()
        self._fetcher.wake()

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

    async def _find_positions(self, added: PartitionSet) -> None:
        """Have the fetcher read these from where the group has committed."""
        # Stable offsets only: those of a transaction that is still open may yet be replaced, and
        # whoever began before them would read records twice (KIP-447).
        committed = await self.fetch_offsets(added, require_stable=True)
        self._fetcher.add(
            {
                topic_partition: committed[topic_partition].offset
                if topic_partition in committed
                else None
                for topic_partition in added
            }
        )

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
            log.warning("lost partitions group=%s count=%d", self.group, len(lost))
            await self._listener.on_lost(lost)
            self.losses += 1  # last: who commits meanwhile has not been told yet either
