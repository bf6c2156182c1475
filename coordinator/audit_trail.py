"""The audit trail: who changed which committed offset, recorded in the topic `__barnabas_audit`.

Source: docs/spec/coordinator.md §3.8.

- *What is recorded*: what administrators do. That is OffsetDelete, DeleteGroups, everything that
  our tools do, and commits without a generation to a group that has had members. With
  ``offsets.history.enable`` every commit is. A commit inside a transaction is recorded when its
  marker comes: before, and after an abort, it has changed nothing.
- *Who waits*: only who changes something by hand. The response is held until the record is written,
  so that no kill of the coordinator loses a change that was acknowledged. While the topic cannot be
  written the response is sent after :data:`HELD_S`, or at once.
- *Who does not*: everybody else, and a connection that goes on committing from outside the group.
  That is a consumer without membership, and would be held at each commit.
- *Bounds*: what waits to be written is bounded in bytes; what does not fit is counted as lost. The
  writer rests four times as long as it works, so that it takes a fifth of the node's time at most.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Final, Protocol, TypeAlias

from barnabas.protocol.audit_topic import COMMIT, AuditRecord, audit_key, audit_value
from barnabas.protocol.errors import ErrorCode

from .audit_queue import AuditedChange, AuditQueue, pause_s
from .config import CoordinatorConfig
from .group import Group, Respond
from .group_state import GroupState
from .offsets import Commit, Served, TopicPartition, TransactionalCommit
from .offsets_journal import Entry, OnCommitted
from .ports import AuditLog, Caller

log = logging.getLogger(__name__)

_DEAD: Final = GroupState.DEAD
_UNKNOWN_CALLER: Final = Caller(client_id="", host="", principal="")
_new_change: Final = tuple.__new__
"""What the constructor of a named tuple does, at half its price."""

WAITING_BYTES_MAX: Final = 16 << 20
"""So much of what waits is kept, as far as it can be estimated."""
CHANGE_BYTES: Final = 400
"""What one change takes without its metadata."""
NOTED_AT_ONCE_BYTES: Final = 1 << 20
"""So much is noted within the turn that deletes it; the rest of a long request is noted later."""
REMOVED_MAX: Final = 1 << 19
"""So many deleted offsets wait to be noted: they come out of the cache, whose bound this is not."""
REMOVED_AT_ONCE: Final = 500
"""So many of them are noted before each batch."""
GATHER_S: Final = 0.01
"""What comes within this time is written together."""
RESTS: Final = 4
"""How many times as long as it wrote it rests."""
HELD_S: Final = 5.0
"""How long an answer waits for its records: what was asked for is done, whether recorded or not."""
RELEASED_AT_ONCE: Final = 250
"""So many held answers are given in one turn."""
OUTSIDE_S: Final = 600.0
"""Who commits from outside to a group again within this time, on one connection, is a consumer."""
OUTSIDE_GROUPS_MAX: Final = 16
"""For so many groups that is remembered of one connection."""
DRAIN_S: Final = 2.0
"""How long a stop in order waits for what is not written yet."""

Removed: TypeAlias = Sequence[tuple[TopicPartition, Commit]]
"""Offsets that were served before they were deleted."""


class StagedCommit(Protocol):
    """Commits on their way through the log; ``on_committed`` settles them and calls ``respond``."""

    respond: Respond

    def on_committed(self, code: ErrorCode, record_offset: int) -> None:
        """The append ended."""


class HeldResponse:
    """A response that is sent when everything is recorded that it acknowledges.

    It stands in the place of ``respond``: the handler calls it with the response.
    """

    __slots__ = ("_answer", "_has_answer", "_is_closed", "_respond", "_timer", "_waiting")

    def __init__(self, respond: Respond) -> None:
        self._respond = respond
        self._answer: Any = None
        self._has_answer = False
        self._is_closed = False
        self._waiting = 0
        self._timer: asyncio.TimerHandle | None = None

    def __call__(self, answer: Any) -> None:
        """Keep the response back."""
        self._answer = answer
        self._has_answer = True

    @property
    def is_waiting(self) -> bool:
        """Whether some of its changes are not recorded yet."""
        return self._waiting > 0

    def add_record(self) -> None:
        """One more change has to be recorded first."""
        self._waiting += 1

    def record_written(self) -> bool:
        """One of them is recorded; True when that was the last one, and the response is sent."""
        self._waiting -= 1
        if not self._is_closed or self._waiting:
            return False
        self.release()
        return True

    def close(self, timer: asyncio.TimerHandle | None) -> None:
        """No more changes are coming; ``timer`` bounds the wait, without one it is over."""
        self._is_closed = True
        self._timer = timer
        if timer is None:
            self.release()

    def release(self) -> None:
        """Send the response, once.

        The caller is forgotten: a record may wait for minutes and must not keep its connection.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._has_answer:
            self._has_answer = False
            answer, self._answer = self._answer, None
            respond, self._respond = self._respond, _ignore
            try:
                respond(answer)
            except Exception:  # our bug: the writer goes on, and others get their answer
                log.exception("answer failed after its records")


class _Removal:
    """Deleted offsets of one group that are not in the queue yet."""

    __slots__ = ("action", "caller", "change", "done", "group_id", "held", "removed", "time_ms")

    def __init__(
        self,
        caller: Caller,
        action: str,
        change: str,
        group_id: str,
        removed: Removed,
        held: HeldResponse,
        time_ms: int,
    ) -> None:
        self.caller = caller
        self.action = action
        self.change = change
        self.group_id = group_id
        self.removed = removed
        self.held = held
        self.time_ms = time_ms
        self.done = 0


class AuditTrail:
    """Notes changes, and writes them; without an audit log there is none."""

    def __init__(
        self,
        audit_log: AuditLog | None,
        config: CoordinatorConfig,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
        rng: random.Random,
    ) -> None:
        self.is_enabled = audit_log is not None
        """Whether changes by hand are recorded at all."""
        self.records_all = self.is_enabled and config.history_enable
        """Whether every commit is."""
        self.written = 0
        self.lost = 0
        """Changes that were recorded, and those that found no room, since the start."""
        self.is_behind = False
        """Something could not be recorded for long: nobody is made to wait until all is again."""
        self._audit_log = audit_log
        self._loop = loop
        self._now_ms = now_ms
        self._random = rng
        self._queue = AuditQueue()
        self._removals: deque[_Removal] = deque()
        self._removed_left = 0
        self._answers: dict[HeldResponse, int] = {}
        """Answers that are held, the oldest first, and what was written when they began to wait."""
        self._failures = 0
        self._waiting_bytes = self._accepted = 0
        self._lost_logged = 0
        self._woken = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def waiting(self) -> int:
        """Records that are accepted and not written yet."""
        return self._accepted - self.written + self._removed_left

    def is_by_hand(self, caller: Caller, group: Group, member_id: str, generation: int) -> bool:
        """Whether a commit is an administrator's: by a tool of ours, or from outside the group."""
        if caller.tool is not None:
            return self.is_enabled
        is_outside = generation < 0 and not member_id
        return is_outside and group.protocol_type is not None and self.is_enabled

    def record_commit(
        self,
        staged: StagedCommit,
        group: Group,
        partition: TopicPartition,
        commit: Commit,
        caller: Caller,
        *,
        is_by_hand: bool,
    ) -> OnCommitted:
        """What settles ``commit``, with a note of what it changed."""
        offsets = group.offsets
        change = self.change_of(caller) if is_by_hand else ""
        held = self._hold_response(staged, group, caller) if is_by_hand else None
        settle = staged.on_committed

        def on_committed(code: ErrorCode, record_offset: int) -> None:
            old = offsets.committed.get(partition)
            settle(code, record_offset)
            if not code and (offsets.committed.get(partition) is commit or group.state is _DEAD):
                self._enqueue_commit(caller, change, group, partition, old, commit, held)
            if held is not None:
                self.respond_when_recorded(held)

        return on_committed

    def record_commits(
        self,
        staged: StagedCommit,
        group: Group,
        commits: Sequence[tuple[TopicPartition, Commit]],
        caller: Caller,
        *,
        is_by_hand: bool,
    ) -> OnCommitted:
        """The same for several commits of one request."""
        offsets = group.offsets
        change = self.change_of(caller) if is_by_hand else ""
        held = self._hold_response(staged, group, caller) if is_by_hand else None
        settle = staged.on_committed

        def note(before: Sequence[Commit | None]) -> None:
            is_dead, served = group.state is _DEAD, offsets.committed
            for (partition, commit), old in zip(commits, before, strict=True):
                if is_dead or served.get(partition) is commit:
                    self._enqueue_commit(caller, change, group, partition, old, commit, held)

        def on_committed(code: ErrorCode, record_offset: int) -> None:
            served = offsets.committed
            before = [served.get(partition) for partition, _ in commits]
            settle(code, record_offset)
            if not code:
                note(before)
            if held is not None:
                self.respond_when_recorded(held)

        return on_committed

    def record_transaction(self, group: Group, served: Sequence[Served]) -> None:
        """Record what the end of a transaction put into service; nobody waits for it.

        Who committed is known unless the group has moved since: the log does not tell.
        """
        for partition, old, new in served:
            caller, change = None, ""
            if isinstance(new, TransactionalCommit):
                caller, change = new.caller, new.change
                new.caller = None  # an offset that is served must not keep it
            if self.records_all or change:
                about = (group, partition, old, new, None)
                self._enqueue_commit(caller or _UNKNOWN_CALLER, change, *about)

    def _hold_response(
        self, staged: StagedCommit, group: Group, caller: Caller
    ) -> HeldResponse | None:
        """The held answer of a commit by hand; None where a consumer would have to wait."""
        if caller.tool is None and self._is_repeated_commit(caller, group.group_id):
            return None
        staged.respond = held = HeldResponse(staged.respond)
        return held

    def _is_repeated_commit(self, caller: Caller, group_id: str) -> bool:
        """Whether this connection has committed to the group from outside lately.

        A consumer that assigns itself partitions of a group which once had members does so all the
        time: it must not wait for the audit topic, nor anything else on its connection.
        """
        outside, now = caller.outside, self._loop.time()
        last = outside.pop(group_id, None)
        if len(outside) >= OUTSIDE_GROUPS_MAX:
            del outside[next(iter(outside))]
        outside[group_id] = now
        return last is not None and now - last < OUTSIDE_S

    def record_removed(
        self,
        caller: Caller,
        action: str,
        change: str,
        group_id: str,
        removed: Removed,
        held: HeldResponse,
    ) -> None:
        """Record that these offsets of a group were deleted, by OffsetDelete or DeleteGroups.

        Of a request that names very many some are queued later; its response waits for those, too.
        """
        if not (self.is_enabled and removed):
            return
        if self._removed_left + len(removed) > REMOVED_MAX:
            self.lost += len(removed)
            return
        now = self._now_ms()
        self._removals.append(_Removal(caller, action, change, group_id, removed, held, now))
        self._removed_left += len(removed)
        held.add_record()
        self._woken.set()
        self._idle.clear()
        if self._waiting_bytes < NOTED_AT_ONCE_BYTES:
            self._enqueue_removals()

    def _enqueue_removals(self) -> None:
        """Queue some of what was deleted, the oldest first, while there is room."""
        left = REMOVED_AT_ONCE
        while self._removals and left:
            removal = self._removals[0]
            caller, action, change = removal.caller, removal.action, removal.change
            for partition, old in islice(removal.removed, removal.done, removal.done + left):
                if not self._has_room(CHANGE_BYTES + len(old.metadata)):
                    return
                about = (removal.group_id, partition, old, None, removal.held)
                self._enqueue(caller, action, change, *about, time_ms=removal.time_ms)
                removal.done += 1
                self._removed_left -= 1
                left -= 1
            if removal.done == len(removal.removed):
                self._removals.popleft()
                self._record_written(removal.held)

    def respond_when_recorded(self, held: HeldResponse) -> None:
        """Send a held response as soon as all its changes are recorded."""
        if held.is_waiting and not self.is_behind:
            self._answers[held] = self.written
            held.close(self._loop.call_later(HELD_S, self._hold_expired, held))
        else:
            held.close(None)

    def _hold_expired(self, held: HeldResponse) -> None:
        """Send a response that waited too long.

        If nothing was written meanwhile the topic is out of order, and nobody is held any longer;
        else there are only very many records before this one.
        """
        written = self._answers.pop(held)
        held.release()
        if not self.is_behind and (self._queue.has_refused or written == self.written):
            self.is_behind = True
            log.warning(
                "answers before changes by hand are recorded: the audit topic cannot be written "
                "waiting=%d",
                self.waiting,
            )
            self._release_all()

    def _release_all(self) -> None:
        """Give the answers that are held, some in each turn."""
        for held in list(islice(self._answers, RELEASED_AT_ONCE)):
            del self._answers[held]
            held.release()
        if self._answers:
            self._loop.call_soon(self._release_all)

    def _record_written(self, held: HeldResponse) -> None:
        if held.record_written():
            self._answers.pop(held, None)

    async def run(self) -> None:
        """Write what is noted, until cancelled."""
        queue = self._queue
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(queue.retry_at if queue.has_refused else None):
                    await self._woken.wait()
            self._woken.clear()
            # For an answer that waits no more is gathered than comes while others are written.
            await asyncio.sleep(0 if queue.is_urgent or self._removals else GATHER_S)
            while True:
                self._enqueue_removals()
                is_retry = queue.is_due(self._loop.time()) and not queue.is_urgent
                if not (is_retry or queue.is_ready):
                    break
                await self._write_some(is_retry=is_retry)
            if not queue.has_refused:
                self._idle.set()

    async def drain(self) -> None:
        """Wait until everything is written, or for DRAIN_S; :meth:`run` does it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                await self._idle.wait()
        left = self._accepted - self.written + self._removed_left
        if left:
            log.warning("stopped with audit records to write records=%d", left)

    def change_of(self, caller: Caller) -> str:
        """What a tool calls its change, else a name that nothing else has."""
        said = "" if caller.tool is None else caller.tool.change
        return said or f"{self._random.getrandbits(48):012x}"

    def _enqueue_commit(
        self,
        caller: Caller,
        change: str,
        group: Group,
        partition: TopicPartition,
        old: Commit | None,
        new: Commit,
        held: HeldResponse | None,
    ) -> None:
        if self.records_all or _differs(old, new) or (change and _was_loaded(old, group)):
            self._enqueue(caller, COMMIT, change, group.group_id, partition, old, new, held)

    def _has_room(self, size: int) -> bool:
        return self._waiting_bytes + size <= WAITING_BYTES_MAX

    def _enqueue(
        self,
        caller: Caller,
        action: str,
        change: str,
        group_id: str,
        partition: TopicPartition,
        old: Commit | None,
        new: Commit | None,
        held: HeldResponse | None,
        time_ms: int = -1,
    ) -> None:
        size = CHANGE_BYTES
        if old is not None:
            size += len(old.metadata)
        if new is not None:
            size += len(new.metadata)
        if not self._has_room(size):
            self.lost += 1
            return
        self._woken.set()
        if self._accepted == self.written:
            self._idle.clear()
        now = self._now_ms() if time_ms < 0 else time_ms
        fields = (size, now, caller, action, change, group_id, partition, old, new, held)
        self._queue.add(_new_change(AuditedChange, fields))
        if held is not None:
            held.add_record()
        self._waiting_bytes += size
        self._accepted += 1

    async def _write_some(self, *, is_retry: bool) -> None:
        """Write one batch; what the topic does not take waits, and others go before it."""
        assert self._audit_log is not None
        queue, entries = self._queue, list[Entry]()

        def build(change_to_write: AuditedChange) -> int:
            value = audit_value(_record(change_to_write))
            entries.append((audit_key(change_to_write.group), value))
            return len(value)

        began = self._loop.time()
        taken = queue.take(build, is_retry=is_retry)
        await asyncio.sleep((self._loop.time() - began) * RESTS)
        left = {id(entry) for entry in await self._audit_log.write(entries)}
        refused = []
        for change_to_write, entry in zip(taken, entries, strict=True):
            if id(entry) in left:
                refused.append(change_to_write)
            else:
                self._written(change_to_write)
        has_progress = len(refused) < len(taken)
        queue.give_back(refused, self._loop.time(), is_retry=is_retry)
        if is_retry:
            queue.retried(self._loop.time(), has_progress=has_progress)
        if has_progress:
            self._failures = 0
            self.is_behind = self.is_behind and queue.has_refused
        self._log_lost()
        if not (has_progress or is_retry):
            await asyncio.sleep(pause_s(self._failures))
            self._failures += 1

    def _written(self, change_to_write: AuditedChange) -> None:
        self.written += 1
        self._waiting_bytes -= change_to_write.size
        if change_to_write.held is not None:
            self._record_written(change_to_write.held)

    def _log_lost(self) -> None:
        lost, self._lost_logged = self.lost - self._lost_logged, self.lost
        if lost:
            log.warning("lost audit records, too many at once records=%d", lost)


def _differs(old: Commit | None, new: Commit) -> bool:
    return old is None or (old.offset, old.metadata) != (new.offset, new.metadata)


def _was_loaded(old: Commit | None, group: Group) -> bool:
    """Whether the offset is of an earlier coordinator, which may have been killed just then.

    A tool that had no answer of it repeats what is served already: nothing else would be recorded.
    """
    return old is not None and old.record_offset < group.term.loaded_end


def _ignore(_answer: Any) -> None:
    """Who was answered already."""


def _record(change_to_write: AuditedChange) -> AuditRecord:
    caller, old, new = change_to_write.caller, change_to_write.old, change_to_write.new
    topic, index = change_to_write.partition
    return AuditRecord(
        time_ms=change_to_write.time_ms,
        action=change_to_write.action,
        change=change_to_write.change,
        principal=caller.principal,
        host=caller.host,
        client_id=caller.client_id,
        group=change_to_write.group,
        topic=topic,
        partition=index,
        old_offset=None if old is None else old.offset,
        old_leader_epoch=-1 if old is None else old.leader_epoch,
        old_metadata="" if old is None else old.metadata,
        new_offset=None if new is None else new.offset,
        new_leader_epoch=-1 if new is None else new.leader_epoch,
        new_metadata="" if new is None else new.metadata,
        reason="" if caller.tool is None else caller.tool.reason,
    )
