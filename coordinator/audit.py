"""The trail of changed offsets: noted as they are served, written to the audit topic behind that.

Source: docs/spec/coordinator.md §3.8. Recorded is what administrators do (commits without a
generation to a group that has had members, everything that our tools do, OffsetDelete,
DeleteGroups); with ``offsets.history.enable`` every commit. Who changes something by hand is
answered when the record is written, so that no kill of the coordinator loses one that was
acknowledged; while the topic cannot be written, after :data:`HELD_S` or at once. Nobody else waits:
what waits to be written is bounded, what does not fit is counted as lost, and writing takes a fifth
of the node's time at most.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from barnabas.protocol.audit_topic import COMMIT, AuditRecord, audit_key, audit_value
from barnabas.protocol.errors import ErrorCode

from .config import CoordinatorConfig
from .group import Group, Reply
from .group_state import GroupState
from .journal import Entry, Told
from .offsets import Commit, TopicPartition
from .ports import AuditLog, Caller

log = logging.getLogger(__name__)

_DEAD: Final = GroupState.DEAD
_new_change: Final = tuple.__new__
"""What the constructor of a named tuple does, at half its price."""

WAITING_BYTES_MAX: Final = 16 << 20
"""So much of what waits is kept, as far as it can be estimated."""
CHANGE_BYTES: Final = 400
"""What one change takes without its metadata."""
AT_ONCE: Final = 128
AT_ONCE_BYTES: Final = 256 << 10
"""So much goes into one batch: it is built in less than 2 ms."""
GATHER_S: Final = 0.01
"""What comes within this time is written together."""
RESTS: Final = 4
"""How many times as long as it wrote it rests."""
RETRY_S: Final = 0.1
RETRY_S_MAX: Final = 2.0
HELD_S: Final = 5.0
"""How long an answer waits for its records: what was asked for is done, whether recorded or not."""
DRAIN_S: Final = 2.0
"""How long a stop in order waits for what is not written yet."""


class Staged(Protocol):
    """Commits on their way through the log; ``decided`` settles them and calls ``reply``."""

    reply: Reply

    def decided(self, code: ErrorCode, record_offset: int) -> None:
        """The append ended."""


class Held:
    """An answer that is given when all that it tells is recorded; the handler's reply."""

    __slots__ = ("_answer", "_has_answer", "_is_closed", "_reply", "_timer", "_waiting")

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self._answer: Any = None
        self._has_answer = False
        self._is_closed = False
        self._waiting = 0
        self._timer: asyncio.TimerHandle | None = None

    def __call__(self, answer: Any) -> None:
        """The answer, to be kept back."""
        self._answer = answer
        self._has_answer = True

    @property
    def is_waiting(self) -> bool:
        """Whether some of what was noted is not recorded."""
        return self._waiting > 0

    def noted(self) -> None:
        """A change is going to be recorded that the answer tells."""
        self._waiting += 1

    def recorded(self) -> None:
        """One of these is."""
        self._waiting -= 1
        if self._is_closed and not self._waiting:
            self.release()

    def close(self, timer: asyncio.TimerHandle | None) -> None:
        """Nothing more will be noted; ``timer`` ends the wait, without one it is over."""
        self._is_closed = True
        self._timer = timer
        if timer is None:
            self.release()

    def release(self) -> None:
        """Answer now, and only once."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._has_answer:
            self._has_answer = False
            answer, self._answer = self._answer, None
            self._reply(answer)


class _Change(NamedTuple):
    size: int
    time_ms: int
    caller: Caller
    action: str
    change: str
    group: str
    partition: TopicPartition
    old: Commit | None
    new: Commit | None
    held: Held | None
    """Whose answer waits for it."""


class Trail:
    """Notes changes, and writes them; without an audit log there is none."""

    def __init__(
        self,
        audit_log: AuditLog | None,
        config: CoordinatorConfig,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
        randomness: random.Random,
    ) -> None:
        self.is_kept = audit_log is not None
        """Whether changes by hand are recorded at all."""
        self.keeps_all = self.is_kept and config.history_enable
        """Whether every commit is."""
        self.written = 0
        self.lost = 0
        """Changes that were recorded, and those that found no room, since the start."""
        self.is_behind = False
        """Nothing could be recorded for long: nobody is made to wait until something is again."""
        self._audit_log = audit_log
        self._loop = loop
        self._now_ms = now_ms
        self._random = randomness
        self._waiting: deque[_Change] = deque()
        self._waiting_bytes = self._noted = 0
        self._lost_told = 0
        self._woken = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def is_by_hand(self, caller: Caller, group: Group, member_id: str, generation: int) -> bool:
        """Whether a commit is an administrator's: by a tool of ours, or from outside the group."""
        if caller.tool is not None:
            return self.is_kept
        is_outside = generation < 0 and not member_id
        return is_outside and group.protocol_type is not None and self.is_kept

    def watch_one(
        self,
        staged: Staged,
        group: Group,
        partition: TopicPartition,
        commit: Commit,
        caller: Caller,
        *,
        is_by_hand: bool,
    ) -> Told:
        """What settles ``commit``, with a note of what it changed."""
        served = group.offsets.committed
        change = self._change_of(caller) if is_by_hand else ""
        held = self._held(staged) if is_by_hand else None
        told = staged.decided

        def decided(code: ErrorCode, record_offset: int) -> None:
            old = served.get(partition)
            told(code, record_offset)
            if not code and (served.get(partition) is commit or group.state is _DEAD):
                self._note_commit(caller, change, group.group_id, partition, old, commit, held)
            if held is not None:
                self.answer(held)

        return decided

    def watch(
        self,
        staged: Staged,
        group: Group,
        commits: Sequence[tuple[TopicPartition, Commit]],
        caller: Caller,
        *,
        is_by_hand: bool,
    ) -> Told:
        """The same for several commits of one request."""
        served = group.offsets.committed
        change = self._change_of(caller) if is_by_hand else ""
        held = self._held(staged) if is_by_hand else None
        told = staged.decided

        def note(before: Sequence[Commit | None]) -> None:
            is_dead = group.state is _DEAD
            for (partition, commit), old in zip(commits, before, strict=True):
                if is_dead or served.get(partition) is commit:
                    self._note_commit(caller, change, group.group_id, partition, old, commit, held)

        def decided(code: ErrorCode, record_offset: int) -> None:
            before = [served.get(partition) for partition, _ in commits]
            told(code, record_offset)
            if not code:
                note(before)
            if held is not None:
                self.answer(held)

        return decided

    @staticmethod
    def _held(staged: Staged) -> Held:
        staged.reply = held = Held(staged.reply)
        return held

    def note_removed(
        self,
        caller: Caller,
        action: str,
        group_id: str,
        removed: Iterable[tuple[TopicPartition, Commit]],
        held: Held,
    ) -> None:
        """These offsets of a group are gone, by OffsetDelete or DeleteGroups."""
        if self.is_kept:
            change = self._change_of(caller)
            for partition, old in removed:
                self._note(caller, action, change, group_id, partition, old, None, held)

    def answer(self, held: Held) -> None:
        """Everything is noted that an answer tells: give it when that is recorded."""
        if held.is_waiting and not self.is_behind:
            held.close(self._loop.call_later(HELD_S, self._too_late, held))
        else:
            held.close(None)

    def _too_late(self, held: Held) -> None:
        if not self.is_behind:
            self.is_behind = True
            log.warning(
                "answers before changes by hand are recorded: the audit topic cannot be written "
                "waiting=%d",
                len(self._waiting),
            )
        held.release()

    async def run(self) -> None:
        """Write what is noted, until cancelled."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            # For an answer that waits no more is gathered than comes while others are written.
            has_held = any(noted.held is not None for noted in self._waiting)
            await asyncio.sleep(0 if has_held else GATHER_S)
            while self._waiting:
                await self._write_some()
            self._idle.set()

    async def drain(self) -> None:
        """Wait until everything is written, or for DRAIN_S; :meth:`run` does it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                await self._idle.wait()
        left = self._noted - self.written
        if left:
            log.warning("stopped with audit records to write records=%d", left)

    def _change_of(self, caller: Caller) -> str:
        """What a tool calls its change, else a name that nothing else has."""
        said = "" if caller.tool is None else caller.tool.change
        return said or f"{self._random.getrandbits(48):012x}"

    def _note_commit(
        self,
        caller: Caller,
        change: str,
        group_id: str,
        partition: TopicPartition,
        old: Commit | None,
        new: Commit,
        held: Held | None,
    ) -> None:
        if self.keeps_all or _differs(old, new):
            self._note(caller, COMMIT, change, group_id, partition, old, new, held)

    def _note(
        self,
        caller: Caller,
        action: str,
        change: str,
        group_id: str,
        partition: TopicPartition,
        old: Commit | None,
        new: Commit | None,
        held: Held | None,
    ) -> None:
        size = CHANGE_BYTES
        if old is not None:
            size += len(old.metadata)
        if new is not None:
            size += len(new.metadata)
        if self._waiting_bytes + size > WAITING_BYTES_MAX:
            self.lost += 1
            return
        if self._noted == self.written:
            self._woken.set()
            self._idle.clear()
        now = self._now_ms()
        fields = (size, now, caller, action, change, group_id, partition, old, new, held)
        self._waiting.append(_new_change(_Change, fields))
        if held is not None:
            held.noted()
        self._waiting_bytes += size
        self._noted += 1

    async def _write_some(self) -> None:
        began = self._loop.time()
        taken, entries = self._take()
        building_s = self._loop.time() - began
        await asyncio.sleep(building_s * RESTS)
        await self._deliver(entries)
        self.is_behind = False
        self.written += len(taken)
        for noted in taken:
            self._waiting_bytes -= noted.size
            if noted.held is not None:
                noted.held.recorded()
        self._tell_lost()

    def _take(self) -> tuple[list[_Change], list[Entry]]:
        taken: list[_Change] = []
        entries: list[Entry] = []
        size = 0
        while self._waiting and len(taken) < AT_ONCE and size < AT_ONCE_BYTES:
            noted = self._waiting.popleft()
            value = audit_value(_record(noted))
            taken.append(noted)
            entries.append((audit_key(noted.group), value))
            size += len(value)
        return taken, entries

    async def _deliver(self, entries: Sequence[Entry]) -> None:
        """Write them, however long that takes; others wait meanwhile, or are lost."""
        assert self._audit_log is not None
        pause_s = RETRY_S
        while True:
            entries = await self._audit_log.write(entries)
            if not entries:
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_S_MAX)

    def _tell_lost(self) -> None:
        lost, self._lost_told = self.lost - self._lost_told, self.lost
        if lost:
            log.warning("lost audit records, too many at once records=%d", lost)


def _differs(old: Commit | None, new: Commit) -> bool:
    return old is None or (old.offset, old.metadata) != (new.offset, new.metadata)


def _record(noted: _Change) -> AuditRecord:
    caller, old, new = noted.caller, noted.old, noted.new
    topic, index = noted.partition
    return AuditRecord(
        time_ms=noted.time_ms,
        action=noted.action,
        change=noted.change,
        principal=caller.principal,
        host=caller.host,
        client_id=caller.client_id,
        group=noted.group,
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
