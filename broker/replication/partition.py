"""One hosted replica of a partition: who leads it, how far it is committed, who waits for it.

Source: docs/spec/cluster.md §3.1 to §3.3 and §3.6 to §3.8; docs/spec/log.md §6. This is the one
place that acknowledges: whoever appended is told when the high watermark passes, and only then.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from math import inf

from barnabas.broker.storage.log.log import Log, LogAppendInfo
from barnabas.protocol.errors import ErrorCode, Refused

from .commit_waits import CommitWaits
from .followers import Followers
from .partition_context import (
    AppendWatcher,
    FetchWaiter,
    OnComplete,
    PartitionContext,
    PartitionRole,
    PendingIsrChange,
)
from .readers import Readers, Unread
from .start_waits import StartWaits

__all__ = ["FetchWaiter", "OnComplete", "Partition", "PartitionRole"]

log = logging.getLogger(__name__)


class Partition:
    """A replica on this node, led here or not.

    ``high_watermark`` is the first offset that is not committed: the least log end of the
    replicas in sync, the leader's being what is on disk where ``flush.messages`` asks for that.
    ``isr`` is what stands in the state znode. A replica that joins counts before that is written,
    one that leaves counts until it is: ``pending`` is the change under way.
    """

    __slots__ = (
        "_around",
        "_is_alone",
        "_told",
        "_unread",
        "controller_epoch",
        "epoch_start",
        "followers",
        "heard",
        "high_watermark",
        "index",
        "is_leader",
        "is_of_former_life",
        "is_outside",
        "isr",
        "leader_epoch",
        "leader_id",
        "log",
        "pending",
        "readers",
        "replicas",
        "starts",
        "topic",
        "watcher",
        "zk_version",
    )

    def __init__(
        self, topic: str, index: int, log: Log, high_watermark: int, around: PartitionContext
    ) -> None:
        self.topic = topic
        self.index = index
        self.log = log
        self.high_watermark = min(max(high_watermark, log.start_offset), log.end_offset)
        self.is_leader = False
        self.is_of_former_life = False
        """It leads by the word of a session that is lost: another may lead already."""
        self.leader_id = -1
        self.leader_epoch = -1
        self.controller_epoch = -1
        self.zk_version = -1
        self.isr: Sequence[int] = ()
        self.pending: PendingIsrChange | None = None
        self.replicas: Sequence[int] = ()
        self.is_outside = False
        """A follower outside of the in-sync set that has not fetched yet: nobody counts on it."""
        self.followers = Followers()
        self.heard: set[int] = set()
        self._around = around
        self._is_alone = True
        self.epoch_start = -1
        """Log end when this epoch of leadership began."""
        self.watcher: AppendWatcher | None = None
        self._told = CommitWaits()
        self.readers = Readers()
        self.starts = StartWaits()
        self._unread = Unread()
        log.on_durable.append(self.advance)

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
        self.heard.clear()
        self.followers.begin(
            (node for node in role.replicas if node != role.leader_id),
            role.isr,
            self._around.now(),
            is_new_leader=not self.is_leader,
        )
        if is_new_epoch:
            self.log.assign_epoch(role.leader_epoch, self.log.end_offset)
            self.epoch_start = self.log.end_offset
        self.is_leader = True
        self._wake()
        self.advance()
        return True

    def become_follower(self, role: PartitionRole) -> bool:
        """Lead no longer: whoever waits here is told NOT_LEADER_OR_FOLLOWER.

        False, and no change, as in :meth:`become_leader`.
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
        self.pending = None
        self.followers.end()
        self.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def fail(self, code: ErrorCode) -> None:
        """Tell everybody who waits that nothing will come; ``code`` is for those who appended."""
        self._unread.clear()
        self._told.fail(code)
        self.starts.fail(code)
        self._wake()

    def retire(self) -> None:
        """The replica is taken away from this node."""
        self.resign()
        self.log.on_durable.remove(self.advance)

    def _wake(self) -> None:
        stable = self.last_stable_offset
        self.readers.end(stable if stable < self.high_watermark else None)

    def check_epoch(self, claimed: int) -> None:
        """Raises Refused unless ``claimed`` is this leader's epoch, or -1 for "do not check"."""
        if not self.is_leader:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if claimed != -1 and claimed != self.leader_epoch:
            is_old = claimed < self.leader_epoch
            raise Refused(
                ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
            )

    def _adopt(self, role: PartitionRole) -> None:
        assert role.leader_epoch >= self.leader_epoch, f"{self} was told of epoch {role}"
        self.is_of_former_life = False
        self.leader_id = role.leader_id
        self.leader_epoch = role.leader_epoch
        self.controller_epoch = role.controller_epoch
        self.isr = role.isr
        self.pending = None
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
        if len(self.isr) > 1:
            self._unread.add(end, len(batch))  # no follower has it: nothing is committed by this
        elif not (self._unread or self._told) and self._committable() == end:
            before, self.high_watermark = self.high_watermark, end
            self._tell_readers(len(batch), before)
        else:
            self._unread.add(end, len(batch))
            self.advance()
        if not self._is_alone:
            self.readers.appended(appended.base_offset, batch)
        return appended

    @property
    def has_enough_replicas(self) -> bool:
        """As many in sync as ``min.insync.replicas`` asks for, of those there are at all."""
        return len(self.isr) >= min(self.log.config.min_insync_replicas, len(self.replicas))

    def when_committed(self, offset: int, told: OnComplete, until: float = inf) -> None:
        """Have ``told`` the outcome for what lies below ``offset``, perhaps before this returns.

        NONE when the high watermark is there, NOT_LEADER_OR_FOLLOWER when leadership ends first.
        After ``until`` (loop time) whoever waits has given up, and may be told or not.
        """
        if not self.is_leader:
            told(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif offset <= self.high_watermark:
            told(ErrorCode.NONE)
        else:
            self._told.add(offset, told, until, self._around.now())

    def advance(self) -> None:
        """Move the high watermark as far as it may go, and tell whoever waits for that."""
        if not self.is_leader:
            return
        mark = self._committable()
        if mark <= self.high_watermark:
            return
        assert mark <= self.log.end_offset
        before, self.high_watermark = self.high_watermark, mark
        readable = self._unread.up_to(mark)
        self._told.reach(mark)
        self._tell_readers(readable or 1, before)

    def _tell_readers(self, count: int, before: int) -> None:
        if self.readers or self.log.producers.transactions:
            mark = self.high_watermark
            self.readers.committed(count, before, mark, self.last_stable_offset)

    def _committable(self) -> int:
        """The first offset that not every replica in sync has, or that a crash could take.

        With fewer in sync than the topic asks for, nothing more is committed (KAFKA-15583).
        """
        end = self.log.durable_offset
        if self._is_alone:
            return end
        if len(self.isr) < len(self.replicas) and not self.has_enough_replicas:
            return self.high_watermark
        counted = self.isr if self.pending is None else {*self.isr, *self.pending.isr}
        recent = self._around.now() - self._around.lag_max_s
        return self.followers.least_end(end, counted, recent, self._around.live_nodes())

    @property
    def low_watermark(self) -> int:
        """The least log start of the live replicas, as far as this leader was told."""
        others = self.followers.least_start(self._around.live_nodes())
        return self.log.start_offset if others is None else min(self.log.start_offset, others)

    def when_all_start_at(self, offset: int, told: OnComplete) -> None:
        """Have ``told`` the outcome when no live replica starts below ``offset``.

        Perhaps before this returns. NONE then, NOT_LEADER_OR_FOLLOWER when leadership ends first.
        """
        if not self.is_leader:
            told(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif offset <= self.low_watermark:
            told(ErrorCode.NONE)
        else:
            self.starts.add(offset, told)

    # --- the in-sync set -----------------------------------------------------------------------

    def follower_fetched(self, node: int, offset: int, log_start: int) -> None:
        """A replica has everything below ``offset``; the role and its epoch were checked.

        It joins the in-sync set when it has all that is committed and all that former leaders
        wrote; appends may be acknowledged before this returns.
        """
        now = self._around.now()
        self.followers.fetched(node, offset, log_start, self.log.end_offset, now)
        if self.starts.count:
            self.starts.moved(self.low_watermark)
        self.heard.add(node)
        if node not in self.isr:
            self.let_join({node})
        if self.high_watermark < self.log.end_offset:
            self.advance()

    def let_join(self, nodes: Collection[int] | None = None) -> None:
        """Take one of ``nodes`` into the in-sync set; None: of all heard lately in this epoch.

        Asked again when a change is through: who has nothing to fetch is not looked at for long.
        """
        if not self.is_leader or self.pending is not None:
            return
        least = max(self.high_watermark, self.epoch_start)
        since = self._around.now() - self._around.lag_max_s
        ready = self.followers.with_all(least, since).intersection(nodes or self.heard)
        for node in sorted(ready.intersection(self._around.live_nodes()).difference(self.isr))[:1]:
            self._propose((*self.isr, node))

    def drop_laggards(self) -> None:
        """Take replicas out of the in-sync set that have been behind for too long."""
        if not self.is_leader or self.pending is not None or len(self.isr) == 1:
            return
        since = self._around.now() - self._around.lag_max_s
        if lagging := self.followers.lagging(self.isr, self.log.end_offset, since):
            self._propose([node for node in self.isr if node not in lagging])

    def _propose(self, isr: Sequence[int]) -> None:
        change = self.pending = PendingIsrChange(
            self, isr, self.leader_epoch, self.controller_epoch, self.zk_version
        )
        self._around.propose(change)

    def isr_written(self, change: PendingIsrChange, isr: Sequence[int], zk_version: int) -> None:
        """The state znode has ``isr`` in this epoch; nothing changes when ``change`` is outdated.

        That is what was proposed, or what an earlier proposal left there.
        """
        if self.pending is not change:
            return
        log.info("changed in-sync set %s from=%s to=%s", self, list(self.isr), list(isr))
        self.pending = None
        self.isr = tuple(isr)
        self.zk_version = zk_version
        self.advance()
        self.let_join()

    def isr_given_up(self, change: PendingIsrChange) -> None:
        """The state znode is gone: the partition is being deleted."""
        if self.pending is change:
            self.pending = None

    # --- following -----------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """Drop what the leader has not; committed records are never among that.

        Only an election outside of the in-sync set makes them so. Raises Refused(56).
        """
        if offset < self.high_watermark:
            place, mark = f"{self.topic}-{self.index}", self.high_watermark
            log.error("lost committed records partition=%s from=%d to=%d", place, offset, mark)
        self.log.truncate_to(offset)
        self.high_watermark = min(self.high_watermark, self.log.end_offset)

    def drop_damage(self, offset: int, *, is_all: bool) -> None:
        """Drop ``offset`` and what follows it, or everything, to copy it from the leader again.

        The leader has it, and nobody counts on this copy. Raises Refused(56).
        """
        assert self.is_outside, f"{self} is in sync"
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
        assert offset > self.log.end_offset
        self.log.truncate_fully(offset)
        self.high_watermark = offset

    def follow_log_start(self, leaders: int) -> None:
        """Forget what the leader has deleted, as far as it is committed. Raises Refused(56)."""
        if self.log.start_offset < leaders <= self.high_watermark:
            self.log.advance_start(leaders)

    def follow_high_watermark(self, leaders: int) -> None:
        """Take over the leader's high watermark as far as this log goes; it never falls."""
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
