"""The group coordinator of a node: what it is made of, and its way in.

Source: docs/spec/coordinator.md. Reading order: group_registry.py says which groups may be served;
join_group.py, membership.py, offset_commit.py, txn_commits.py, offset_fetch.py,
group_administration.py and find_coordinator.py each serve their APIs; rebalance.py moves groups
through their states; offsets_journal.py writes; loader.py reads back; offset_expiration.py removes
what has expired.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Container
from typing import Protocol

from barnabas.protocol.errors import ErrorCode

from .audit_trail import AuditTrail
from .commit_meter import CommitMeter
from .config import CoordinatorConfig
from .consumer_groups.classic_members import ClassicMembers
from .consumer_groups.consumer_group import ConsumerGroup
from .consumer_groups.consumer_heartbeats import ConsumerHeartbeatHandler
from .consumer_groups.conversion import GroupConversion
from .consumer_groups.described_groups import ConsumerGroupDescriptions
from .consumer_groups.group_machine import ConsumerGroupMachine
from .consumer_groups.group_settings import SettingsOf, node_settings
from .consumer_groups.group_writes import GroupWrites
from .consumer_groups.topic_catalog import NoTopics, TopicCatalog
from .cooperative import CooperativeScheduler
from .deleted_topics import DeletedTopics
from .find_coordinator import FindCoordinatorHandler
from .group import Group
from .group_administration import GroupAdministration
from .group_folding import GroupFolding
from .group_registry import GroupRegistry, GroupTerm
from .join_group import JoinGroupHandler
from .loader import Loader
from .membership import MembershipHandler
from .offset_commit import OffsetCommitHandler
from .offset_expiration import OffsetExpiration
from .offset_fetch import OffsetFetchHandler
from .offsets import Offsets
from .offsets_journal import Journal
from .ports import (
    AuditLog,
    StateLog,
    Topics,
    TransactionLookup,
    TransactionVerification,
    ZooKeeperOffsets,
)
from .rebalance import Rebalancer
from .standby_snapshots import GroupStandbys
from .timer import TimerQueue
from .txn_commits import TransactionalCommits
from .zookeeper_offsets import ZooKeeperOffsetsHandler

log = logging.getLogger(__name__)


class OnLoaded(Protocol):
    """Told that an offsets partition was loaded."""

    def __call__(
        self, partition: int, *, epoch: int, seconds: float, is_warm: bool, size: int
    ) -> None:
        """``size`` is how many groups it has; ``is_warm`` that a standby was brought up."""


class GroupCoordinator:
    """Keeps groups and their offsets for the offsets partitions that this node leads.

    Each API is one attribute, called as ``(request, version, caller, respond)``: ``respond`` gets
    the response message exactly once, perhaps before the call returns. FindCoordinator takes the
    name of the listener instead of the caller. The host says which partitions are led, with
    :meth:`on_elected` and :meth:`on_resigned`, and owns :meth:`run`.
    """

    def __init__(
        self,
        *,
        node_id: int,
        config: CoordinatorConfig,
        log: StateLog,
        topics: Topics,
        zookeeper_offsets: ZooKeeperOffsets | None,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
        random: random.Random,
        lease_problem: Callable[[], ErrorCode] = lambda: ErrorCode.NONE,
        audit_log: AuditLog | None = None,
        transaction_lookup: TransactionLookup | None = None,
        verification: TransactionVerification | None = None,
        catalog: TopicCatalog | None = None,
        settings_of: SettingsOf | None = None,
    ) -> None:
        """``lease_problem``: why no offset may be told now; NONE while this node's lease holds.

        ``audit_log`` is where changes by hand are recorded; None records nothing.
        ``transaction_lookup`` finds coordinators of transactions; None where those are off.
        ``verification`` asks transaction coordinators; None where there are no transactions.
        ``catalog`` has topics with their ids; None where groups of the new protocol (KIP-848) are
        off. ``settings_of`` gives what is set for such a group; None leaves it at ``config``.
        """
        self.node_id = node_id
        self.config = config
        self.on_loaded: list[OnLoaded] = []
        """Told of every offsets partition that is served from now on."""
        self.when_loaded: Callable[[], None] = lambda: None
        """Called each time when nothing is left to be loaded."""
        self.registry = GroupRegistry(topics.may_lead)
        self._timers = TimerQueue(loop)
        self._journal = Journal(log, config, loop, now_ms)
        self._scheduler = scheduler = CooperativeScheduler(loop)
        self._rebalancer = Rebalancer(
            config, self.registry, self._timers, self._journal, now_ms, scheduler
        )
        self._catalog = catalog or NoTopics()
        self._build_consumer_groups(settings_of or node_settings(config), loop, now_ms)
        folding = GroupFolding(now_ms)
        self.loader = Loader(log, folding, config.load_buffer_bytes, loop, self._on_loaded)
        self.standbys = GroupStandbys(log, self.registry, folding, config, loop)
        self.expiration = OffsetExpiration(
            self.registry, self._rebalancer, self._journal, config, loop, now_ms
        )
        self._zookeeper = ZooKeeperOffsetsHandler(zookeeper_offsets, topics, config, scheduler)
        self._discovery = FindCoordinatorHandler(topics, transaction_lookup, loop, scheduler)
        self.audit_trail = AuditTrail(audit_log, config, loop, now_ms, random)
        self._serve_transactions(topics, now_ms, verification)
        self._serve(topics, now_ms, random, lease_problem)

    def _serve_transactions(
        self,
        topics: Topics,
        now_ms: Callable[[], int],
        verification: TransactionVerification | None,
    ) -> None:
        self._transactional_commits = TransactionalCommits(
            self.registry,
            topics,
            self._journal,
            self._rebalancer,
            self.config,
            now_ms,
            self.audit_trail,
            self._scheduler,
            verification,
            self._catalog,
        )
        self.txn_offset_commit = self._transactional_commits.txn_offset_commit
        self.transaction_ended = self._transactional_commits.transaction_ended
        """To be called for each committed marker of an offsets partition, in the log's order."""

    def _build_consumer_groups(
        self,
        settings_of: SettingsOf,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
    ) -> None:
        """What keeps groups of the new protocol."""
        self.consumer_groups = ConsumerGroupMachine(
            self.config,
            self.registry,
            self._timers,
            GroupWrites(self._journal),
            self._catalog,
            settings_of,
            loop,
            now_ms,
            self._scheduler,
        )
        self._conversion = GroupConversion(
            self.registry, self.consumer_groups, self._rebalancer, self.config, now_ms
        )

    def _serve(
        self,
        topics: Topics,
        now_ms: Callable[[], int],
        rng: random.Random,
        lease_problem: Callable[[], ErrorCode],
    ) -> None:
        """Give every API its attribute."""
        registry, rebalancer = self.registry, self._rebalancer
        self.find_coordinator = self._discovery.find_coordinator
        commits = OffsetCommitHandler(
            registry,
            topics,
            self._journal,
            rebalancer,
            self.config,
            now_ms,
            self._zookeeper,
            self.audit_trail,
            self._catalog,
        )
        self.offset_commit = commits.offset_commit
        self.offset_commit_in_turns = commits.offset_commit_in_turns
        """The same of very many partitions: work in turns, to be driven to its end."""
        fetches = OffsetFetchHandler(registry, self._zookeeper, lease_problem)
        self.offset_fetch = fetches.offset_fetch
        self.offset_fetch_now = fetches.offset_fetch_now
        """The same without waiting, from version 1 on: ``(request, version)`` gives the answer."""
        self.offset_fetch_in_turns = fetches.offset_fetch_in_turns
        """The same of very many groups or partitions: work in turns that returns the answer."""
        classic = ClassicMembers(self.consumer_groups, self.config, rng)
        joins = JoinGroupHandler(registry, rebalancer, self.config, rng, self._conversion, classic)
        self.join_group = joins.join_group
        heartbeats = ConsumerHeartbeatHandler(
            registry, self.consumer_groups, self._conversion, self.config, rng
        )
        self.consumer_group_heartbeat = heartbeats.heartbeat
        descriptions = ConsumerGroupDescriptions(
            registry, self.consumer_groups.writes, self._catalog, self.config, self._scheduler
        )
        self.consumer_group_describe = descriptions.describe
        membership = MembershipHandler(registry, rebalancer, self._scheduler, classic)
        self.sync_group = membership.sync_group
        self.heartbeat = membership.heartbeat
        self.leave_group = membership.leave_group
        self._administration = GroupAdministration(
            registry, topics, self._journal, rebalancer, self.audit_trail, self._scheduler
        )
        self.describe_groups = self._administration.describe_groups
        self.list_groups = self._administration.list_groups
        self.delete_groups = self._administration.delete_groups
        self.offset_delete = self._administration.offset_delete
        self._deleted_topics = DeletedTopics(registry, self._journal, rebalancer, self._scheduler)

    def measure_commits(self, clock: Callable[[], float]) -> CommitMeter:
        """Measure batches of the journal from now on; ``clock`` gives seconds."""
        meter = self._journal.meter = CommitMeter(clock)
        return meter

    # -- life --------------------------------------------------------------------------------

    def start(self, partition_count: int) -> None:
        """Serve from now on; every group belongs to one of ``partition_count`` partitions.

        The count is that of the offsets topic; it never changes, or groups would move without
        their offsets, but when the topic is deleted (:meth:`offsets_topic_lost`).
        """
        self.registry.start(partition_count)
        log.info("started coordinator node=%d partitions=%d", self.node_id, partition_count)
        self._discovery.retry_pending()

    def offsets_topic_lost(self) -> None:
        """It was deleted: every group is over, 15 is answered until the next :meth:`start`.

        Leader epochs of the next topic of this name begin at 0 again.
        """
        self.resign()
        self.registry.stop()
        self.registry.forget_epochs()
        log.warning("lost the offsets topic: all groups and their offsets are gone")

    def topics_changed(self) -> None:
        """The node knows more than before, or may answer again for what it leads."""
        self._discovery.retry_pending()

    async def run(self) -> None:
        """Load, expire and serve the oldest versions until cancelled; fails if any part does."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.loader.run(), name="offsets loader")
            tasks.create_task(self.standbys.run(), name="offsets standby")
            tasks.create_task(self.expiration.run(), name="offsets expiry")
            tasks.create_task(self._zookeeper.run(), name="offsets in zookeeper")
            tasks.create_task(self.audit_trail.run(), name="audit trail")

    async def save(self) -> None:
        """Before a stop in order: write snapshots where the next start would have much to read.

        What is noted of changes is written before, while the other nodes still listen.
        """
        await self.audit_trail.drain()
        await self.standbys.save()

    def stop(self) -> None:
        """Write what is staged, resign everywhere and answer 15 from now on."""
        self._deleted_topics.finish()
        self._journal.flush()
        self._discovery.close()
        self.standbys.close()
        self.resign()
        self.registry.stop()
        self._timers.close()
        log.info("stopped coordinator node=%d", self.node_id)

    # -- elections ---------------------------------------------------------------------------

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        """This node leads an offsets partition: 14 for its groups until it is loaded."""
        former = self.registry.term_at(partition)
        term = self.registry.elected(partition, leader_epoch)
        if term is not None:
            log.debug("elected partition=%d epoch=%d", partition, leader_epoch)
            self._deleted_topics.elected(term, former)
            self.loader.begin(term, self.standbys.take(partition))

    def on_resigned(self, partition: int, leader_epoch: int | None) -> None:
        """This node leads it no longer: 16 for its groups, pending requests included.

        ``leader_epoch`` is None when the replica was deleted, which is never outdated. Said also
        of a partition that was never led: the standby asks the log what the replica is now.
        """
        term = self.registry.resigned(partition, leader_epoch)
        self.standbys.role_changed(partition, None if term is None else self.loader.end(partition))
        if term is None:
            return
        level = logging.INFO if term.groups else logging.DEBUG
        log.log(level, "resigned partition=%d groups=%d", partition, len(term.groups))
        self._transactional_commits.resigned(partition)
        term.open_groups = {}
        groups, term.groups = term.groups, {}  # no cycle: freed at once, without the collector
        for group in groups.values():
            self._rebalancer.mark_dead(group, ErrorCode.NOT_COORDINATOR)
            group.offsets = Offsets()  # members and their timers hold the group in cycles

    def resign(self) -> None:
        """Lead nothing until the next elections."""
        for term in self.registry.terms():
            self.on_resigned(term.partition, None)

    def topics_deleted(self, names: Collection[str]) -> None:
        """Topics are gone: no group keeps an offset of theirs."""
        self._deleted_topics.topics_deleted(names)

    def topics_known(self, topics: Container[str]) -> None:
        """These topics exist; said whenever that may have changed, before :meth:`topics_deleted`.

        Nobody commits to one before it is said, unless it was known before.
        """
        self._deleted_topics.topics_known(topics)

    def _on_loaded(self, term: GroupTerm, groups: list[Group]) -> None:
        self.registry.install(term, groups)
        for told in self.on_loaded:
            told(
                term.partition,
                epoch=term.leader_epoch,
                seconds=term.load_seconds or 0.0,
                is_warm=term.was_warm,
                size=len(groups),
            )
        if not self.loader:
            self.when_loaded()
        for group in groups:
            if isinstance(group, ConsumerGroup):
                self.consumer_groups.prepare(group)
                self.consumer_groups.resume(group)
            else:
                self._rebalancer.prepare_timers(group)
                self._rebalancer.resume(group)
        if term.deleted_topics:
            self._deleted_topics.clean(groups, term.deleted_topics)
