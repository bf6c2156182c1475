"""One hosted replica of a partition: its role, its high watermark, its acknowledgements.

This is the one place that acknowledges: whoever appended is answered when the high watermark
passes, and only then. So the rules that keep acknowledged records are here, in isr.py (who counts)
and in leader_epoch_truncation.py (what a follower may cut), and nowhere else.

Source: docs/spec/cluster.md §3.1 to §3.3 and §3.6 to §3.8; docs/spec/log.md §6.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from math import inf

from barnabas.broker.storage.log.log import Log, LogAppendInfo
from barnabas.protocol.errors import ErrorCode, Refused

from .followers import Followers
from .isr import maybe_expand_isr
from .partition_context import (
    AppendWatcher,
    FetchWaiter,
    OnComplete,
    PartitionContext,
    PartitionRole,
    PendingIsrChange,
)
from .purgatory import FetchWaiters, HighWatermarkWaiters, LowWatermarkWaiters, UncommittedBytes
from .topic_traffic import TopicTraffic

__all__ = ["FetchWaiter", "OnComplete", "Partition", "PartitionRole"]

log = logging.getLogger(__name__)


class Partition:
    """A replica on this node, led here or not.

    ``high_watermark`` is the first offset that is not committed: the lowest log end of the
    replicas that count, the leader's being what is on disk where ``flush.messages`` asks for that.
    ``isr`` is what the state znode holds. A replica that joins counts before that is written, one
    that leaves counts until it is (isr.py): ``pending_isr_change`` is the change under way.

    What holds at every moment (docs/spec/cluster.md §3.9):

    - log start ≤ high watermark ≤ log end; in one epoch of leadership it never falls;
    - on a leader, high watermark ≤ log end of every member of the maximal ISR;
    - the leader epoch never falls, and is in the log's epoch cache before the first batch of it.
    """

    __slots__ = (
        "_commit_waiters",
        "_is_alone",
        "_uncommitted",
        "context",
        "controller_epoch",
        "epoch_start",
        "fetch_waiters",
        "fetched_this_epoch",
        "followers",
        "high_watermark",
        "index",
        "is_leader",
        "is_of_former_session",
        "is_outside_isr",
        "isr",
        "leader_epoch",
        "leader_id",
        "log",
        "low_watermark_waiters",
        "pending_isr_change",
        "replicas",
        "topic",
        "traffic",
        "watcher",
        "zk_version",
    )

    def __init__(
        self,
        topic: str,
        index: int,
        log: Log,
        high_watermark: int,
        context: PartitionContext,
        traffic: TopicTraffic | None = None,
    ) -> None:
        """``traffic`` is what all partitions of the topic here count on."""
        self.topic = topic
        self.index = index
        self.traffic = traffic or TopicTraffic()
        self.log = log
        # The checkpoint is older than the log: retention or recovery may have passed it by.
        self.high_watermark = min(max(high_watermark, log.start_offset), log.end_offset)
        self.is_leader = False
        self.is_of_former_session = False
        """It leads by the word of a session that is lost: another may lead already."""
        self.leader_id = -1
        self.leader_epoch = -1
        self.controller_epoch = -1
        self.zk_version = -1
        self.isr: Sequence[int] = ()
        self.pending_isr_change: PendingIsrChange | None = None
        self.replicas: Sequence[int] = ()
        self.is_outside_isr = False
        """A follower outside of the in-sync set that has not fetched yet: nobody counts on it."""
        self.followers = Followers()
        self.fetched_this_epoch: set[int] = set()
        """Replicas that have fetched since this epoch of leadership began."""
        self.context = context
        self._is_alone = True
        """Assigned to this node only: what is durable is committed."""
        self.epoch_start = -1
        """Log end when this epoch of leadership began."""
        self.watcher: AppendWatcher | None = None
        self._commit_waiters = HighWatermarkWaiters()
        self.fetch_waiters = FetchWaiters()
        self.low_watermark_waiters = LowWatermarkWaiters()
        self._uncommitted = UncommittedBytes()
        log.on_durable.append(self.advance_high_watermark)

    def __repr__(self) -> str:
        return f"Partition({self.topic}-{self.index}, epoch={self.leader_epoch})"

    # --- roles ---------------------------------------------------------------------------------

    def become_leader(self, role: PartitionRole) -> bool:
        """Lead from now on; the epoch is in the log's cache before anything is written in it.

        False when the role is older than the one held, by the version of the state znode: then
        nothing changes.
        """
        if role.zk_version < self.zk_version:
            return False
        is_new_epoch = role.leader_epoch > self.leader_epoch
        self._adopt(role)
        self.fetched_this_epoch.clear()
        self.followers.begin(
            (node for node in role.replicas if node != role.leader_id),
            role.isr,
            self.context.now(),
            is_new_leader=not self.is_leader,
        )
        if is_new_epoch:
            # Also when nothing is ever written in it: a follower asks about this epoch later, and
            # a leader that never noted it would send it in circles (KAFKA-7415, KAFKA-10706).
            self.log.assign_epoch(role.leader_epoch, self.log.end_offset)
            self.epoch_start = self.log.end_offset
        self.is_leader = True
        # The high watermark stays what it was as a follower: it may be behind what the former
        # leader acknowledged, and moves on when the ISR has fetched from here (KIP-207).
        self._end_fetches()
        self.advance_high_watermark()
        return True

    def become_follower(self, role: PartitionRole) -> bool:
        """Lead no longer: whoever waits here is answered NOT_LEADER_OR_FOLLOWER.

        False, and no change, as in :meth:`become_leader`. Nothing is truncated here: the log may
        hold committed records above this replica's high watermark, which lags by one fetch
        (KIP-101); leader_epoch_truncation.py cuts by leader epoch.
        """
        if role.zk_version < self.zk_version:
            return False
        self._adopt(role)
        self.isr = ()
        self.resign()
        return True

    def resign(self) -> None:
        """Stop leading, whoever does now."""
        self.is_leader = False
        self.pending_isr_change = None
        self.followers.end()
        self.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def fail(self, code: ErrorCode) -> None:
        """Answer everybody who waits; ``code`` is for those who appended."""
        self._uncommitted.clear()
        self._commit_waiters.fail(code)
        self.low_watermark_waiters.fail(code)
        self._end_fetches()

    def retire(self) -> None:
        """The replica is taken away from this node."""
        self.resign()
        self.log.on_durable.remove(self.advance_high_watermark)

    def _end_fetches(self) -> None:
        stable = self.last_stable_offset
        self.fetch_waiters.end(stable if stable < self.high_watermark else None)

    def check_epoch(self, claimed: int) -> None:
        """Raises Refused unless ``claimed`` is this leader's epoch, or -1 for "do not check".

        FENCED (74) is final for the asker, which has to learn of its successor; UNKNOWN (75) may
        pass, because it is this node that has not heard of the new epoch yet (KIP-320).
        """
        if not self.is_leader:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if claimed != -1 and claimed != self.leader_epoch:
            is_old = claimed < self.leader_epoch
            raise Refused(
                ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
            )

    def _adopt(self, role: PartitionRole) -> None:
        assert role.leader_epoch >= self.leader_epoch, f"{self} was told of epoch {role}"
        self.is_of_former_session = False
        self.leader_id = role.leader_id
        self.leader_epoch = role.leader_epoch
        self.controller_epoch = role.controller_epoch
        self.isr = role.isr
        # A change of the ISR that is under way was made for the state before: its completion finds
        # another object here, or none, and is dropped (KAFKA-12686).
        self.pending_isr_change = None
        self.replicas = role.replicas
        self._is_alone = len(role.replicas) == 1
        self.zk_version = role.zk_version

    # --- writing -------------------------------------------------------------------------------

    def append(self, batch: bytearray | memoryview, *, acks: int, is_client: bool) -> LogAppendInfo:
        """Append one batch as leader; writes offsets and epoch into it, keeps nothing of it.

        Raises Refused: 6, 19 (nothing was appended), 56, and what the log refuses.
        """
        if not self.is_leader:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if acks == -1 and len(self.isr) < len(self.replicas) and not self.has_enough_replicas:
            raise Refused(ErrorCode.NOT_ENOUGH_REPLICAS)
        appended = self.log.append(batch, leader_epoch=self.leader_epoch, is_client=is_client)
        if appended.is_duplicate:
            return appended
        end = appended.last_offset + 1
        traffic = self.traffic
        traffic.bytes_in += len(batch)
        traffic.records_in += end - appended.base_offset
        if len(self.isr) > 1:
            self._uncommitted.add(end, len(batch))  # no follower has it: this commits nothing
        elif not (self._uncommitted or self._commit_waiters) and (
            self._high_watermark_candidate() == end
        ):
            # The usual case of one replica: the high watermark moves over this batch and nobody
            # waits for it, so neither the purgatory nor the count of bytes is touched.
            before, self.high_watermark = self.high_watermark, end
            self._wake_fetches(len(batch), before)
        else:
            self._uncommitted.add(end, len(batch))
            self.advance_high_watermark()
        if not self._is_alone:
            self.fetch_waiters.appended(appended.base_offset, batch)
        return appended

    @property
    def has_enough_replicas(self) -> bool:
        """As many in sync as ``min.insync.replicas`` asks for, of those there are at all.

        Capped by the number of replicas as in Kafka 3.7: a topic of one replica is not unwritable
        because the cluster's default asks for two.
        """
        return len(self.isr) >= min(self.log.config.min_insync_replicas, len(self.replicas))

    def when_committed(self, offset: int, on_committed: OnComplete, until: float = inf) -> None:
        """Call ``on_committed`` with the outcome for what lies below ``offset``, perhaps at once.

        NONE when the high watermark is there, NOT_LEADER_OR_FOLLOWER when leadership ends first;
        then the records may survive or not. After ``until`` (loop time) whoever waits has given
        up, and may be called or not.
        """
        if not self.is_leader:
            on_committed(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif offset <= self.high_watermark:
            on_committed(ErrorCode.NONE)
        else:
            self._commit_waiters.add(offset, on_committed, until, self.context.now())

    def advance_high_watermark(self) -> None:
        """Advance the high watermark to the lowest log end that counts; complete its waiters."""
        if not self.is_leader:
            return
        mark = self._high_watermark_candidate()
        if mark <= self.high_watermark:
            return
        assert mark <= self.log.end_offset
        before, self.high_watermark = self.high_watermark, mark
        readable = self._uncommitted.up_to(mark)
        self._commit_waiters.complete_up_to(mark)
        self._wake_fetches(readable or 1, before)

    def _wake_fetches(self, count: int, before: int) -> None:
        if self.fetch_waiters or self.log.producers.transactions:
            mark = self.high_watermark
            self.fetch_waiters.committed(count, before, mark, self.last_stable_offset)

    def _high_watermark_candidate(self) -> int:
        """The first offset that not every replica that counts has, or that a crash could take.

        With fewer in sync than the topic asks for, nothing more is committed: the one replica that
        is left could die, and another could be elected without it (KAFKA-15583).
        """
        end = self.log.durable_offset
        if self._is_alone:
            return end
        if len(self.isr) < len(self.replicas) and not self.has_enough_replicas:
            return self.high_watermark
        pending = self.pending_isr_change
        counted = self.isr if pending is None else {*self.isr, *pending.isr}
        recent = self.context.now() - self.context.lag_max_s
        return self.followers.least_end(end, counted, recent, self.context.live_nodes())

    @property
    def low_watermark(self) -> int:
        """The least log start of the live replicas, as far as this leader was told."""
        others = self.followers.least_start(self.context.live_nodes())
        return self.log.start_offset if others is None else min(self.log.start_offset, others)

    def when_low_watermark_reaches(self, offset: int, on_complete: OnComplete) -> None:
        """Call ``on_complete`` when no live replica starts below ``offset``, perhaps at once.

        With NONE then, with NOT_LEADER_OR_FOLLOWER when leadership ends first.
        """
        if not self.is_leader:
            on_complete(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif offset <= self.low_watermark:
            on_complete(ErrorCode.NONE)
        else:
            self.low_watermark_waiters.add(offset, on_complete)
            self.fetch_waiters.log_start_moved()

    def follower_fetched(self, node: int, offset: int, log_start: int) -> None:
        """A replica has everything below ``offset``; the role and its epoch were checked.

        It joins the in-sync set when isr.py allows it; appends may be acknowledged before this
        returns.
        """
        now = self.context.now()
        self.followers.fetched(node, offset, log_start, self.log.end_offset, now)
        if self.low_watermark_waiters.count:
            self.low_watermark_waiters.complete_up_to(self.low_watermark)
        self.fetched_this_epoch.add(node)
        if node not in self.isr:
            maybe_expand_isr(self, {node})
        if self.high_watermark < self.log.end_offset:
            self.advance_high_watermark()

    # --- following -----------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """Drop what the leader has not; committed records are never among that.

        Only an election outside of the in-sync set makes them so. Raises Refused(56).
        """
        assert not self.is_leader, f"{self} leads: its log is what the others are compared with"
        if offset < self.high_watermark:
            name, mark = f"{self.topic}-{self.index}", self.high_watermark
            log.error("lost committed records partition=%s from=%d to=%d", name, offset, mark)
        self.log.truncate_to(offset)
        self.high_watermark = min(self.high_watermark, self.log.end_offset)

    def drop_damage(self, offset: int, *, is_all: bool) -> None:
        """Drop ``offset`` and what follows it, or everything, to copy it from the leader again.

        The leader has it, and nobody counts on this copy. Raises Refused(56).
        """
        assert self.is_outside_isr, f"{self} is in sync"
        assert not self.is_leader
        if is_all:
            self.log.truncate_fully(offset)
        else:
            self.log.truncate_to(offset)
        self.high_watermark = min(self.high_watermark, self.log.end_offset)
        self.log.note_damage()

    def restart_at(self, offset: int) -> None:
        """Drop everything: the leader's log begins at ``offset``, above the end of this one.

        Raises Refused(56).
        """
        assert not self.is_leader
        assert offset > self.log.end_offset
        self.log.truncate_fully(offset)
        self.high_watermark = offset

    def follow_log_start(self, leaders: int) -> None:
        """Forget what the leader has deleted, as far as it is committed. Raises Refused(56).

        A log start above the high watermark would leave a follower that is elected now without
        records that it has to serve.
        """
        if self.log.start_offset < leaders <= self.high_watermark:
            self.log.advance_start(leaders)

    def follow_high_watermark(self, leaders: int) -> None:
        """Take over the leader's high watermark as far as this log goes; it never falls.

        It lags by one fetch, so a replica that is elected starts from a lower one; but it must
        not start from one that is higher than its own log (docs/spec/cluster.md §3.9, 4).
        """
        assert not self.is_leader
        self.high_watermark = max(self.high_watermark, min(leaders, self.log.end_offset))
        self.log.producers.transactions.settle(self.high_watermark)

    # --- reading -------------------------------------------------------------------------------

    @property
    def last_stable_offset(self) -> int:
        """Up to where consumers of committed records may read: no open transaction is below."""
        return self.log.last_stable_offset(self.high_watermark)

    def read(
        self,
        offset: int,
        *,
        bytes_max: int,
        at_least_one: bool,
        is_follower: bool = False,
        is_committed: bool = False,
    ) -> bytes:
        """Whole batches from the one that holds ``offset``, below :meth:`readable_end`.

        Raises Refused: 1 outside the log, 6 when not led here, 56.
        """
        end = self.readable_end(is_follower=is_follower, is_committed=is_committed)
        return self.log.read(offset, bytes_max=bytes_max, end=end, at_least_one=at_least_one)

    def readable_end(self, *, is_follower: bool = False, is_committed: bool = False) -> int:
        """The high watermark; the log's end for a follower, the last stable offset if so asked.

        Raises Refused(6) when not led here.
        """
        if not self.is_leader:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if is_follower:
            return self.log.end_offset
        return self.last_stable_offset if is_committed else self.high_watermark
