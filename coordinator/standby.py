"""Warm standby: what this node would serve of the offsets partitions that it follows.

Source: docs/spec/coordinator.md §3.4.1 and §3.4.2. A follower of an offsets partition keeps the
offsets cache that a leader would have, so that a takeover reads nothing. It also writes snapshots,
so that a start reads little. Both are only a shorter way to what the log says: whenever there is
doubt they are dropped, and the log is read.

- **Only what is committed is applied.** What lies above the high watermark may be truncated when
  another node is elected; it is kept as bytes (uncommitted_batches.py) and dropped with the log.
- **There is a state exactly while a partition is followed here.** The log is asked for the role
  each time when it may have changed. A state that outlives its replica would be believed by the
  next load of a topic that was made anew.
- **Whoever leads has the loop first.** One task brings the states forward, one after the other, in
  slices of 1 ms with pauses of 4 ms: at most a fifth of the node's time, however far behind it is.
- **A snapshot goes with its log.** A truncation deletes the files that go beyond it, also where
  the state failed and nobody folds the log any more. Once the log has grown past such a file again,
  nothing in its header would tell it from a good one.
- **No snapshot of a damaged log.** It would say of what is lost that it never was.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from enum import Enum
from functools import partial
from typing import Final, TypeVar

from barnabas.protocol.errors import CorruptRequest, Refused

from .config import CoordinatorConfig
from .group_registry import GroupRegistry, LeadershipTerm, LoadState
from .incremental_capture import NotIncremental, capture_increment
from .ports import INCREMENT, OffsetsLog, Replica
from .snapshot_files import Captured, Saved, capture, drop_above, saved, write
from .standby_state import StandbyState

log = logging.getLogger(__name__)

T = TypeVar("T")

SLICE_S: Final = 0.001
"""The longest that the loop is kept from others."""
PAUSE_S: Final = 0.004
"""What others have between two slices."""
GATHER_S: Final = 0.02
"""Commits come one by one: applied together they cost a fraction."""
CHECK_LED_S: Final = 10.0
"""How often the led partitions are looked at for segments that were rolled."""
SKIPPED_CHECKS_MAX: Final = 12
"""So often while some partition is loading."""
RETRY_S: Final = 300.0
"""How long a partition is left alone whose file was not written: the disk may be full."""
STOP_S: Final = 5.0
"""What snapshots may add to a stop."""
TAIL_MIN: Final = 10_000
"""A stop writes no snapshot where fewer records would be read again: that takes no time."""
TAIL_MAX: Final = 50_000
"""So many records may follow a snapshot, or twice as many as there are offsets, before the next.

A killed node reads them again; writing costs as much as reading what is kept.
"""

_WRITES_AT_ONCE: Final = 4
"""Snapshots in memory that wait for the disk, at a stop."""


class _SnapshotKind(Enum):
    """What can be written beside a log."""

    WHOLE = "whole"
    INCREMENT = "increment"


class _RoleChanged(Exception):  # noqa: N818 - what happened, not an error
    """The replica got another role while it was worked on."""


class _StandbyListener:
    """Hears what a followed replica does to its log, before a cut is made.

    Before, because after it nobody can tell which offsets the files on disk had gone beyond.
    """

    def __init__(self, state: StandbyState) -> None:
        self._state = state

    def appended(self, before: int, data: bytes) -> None:
        self._state.appended(before, data)

    def cut(self, offset: int) -> None:
        self._state.cut(offset)
        if offset >= 0:
            drop_above(self._state.replica, offset)


class _SnapshotFilesListener:
    """Hears what a replica whose state failed does to its log: its files go with it."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    def appended(self, before: int, data: bytes) -> None:
        """Nobody folds it."""

    def cut(self, offset: int) -> None:
        if offset >= 0:
            drop_above(self._replica, offset)


class Standbys:
    """The state of every offsets partition that is followed here, and the snapshots of all.

    ``_working`` is held for one partition at a time. Two at once would need twice the memory of a
    whole snapshot, and their slices would take the loop twice as often.
    """

    def __init__(
        self,
        offsets_log: OffsetsLog,
        registry: GroupRegistry,
        config: CoordinatorConfig,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._log = offsets_log
        self._registry = registry
        self._config = config
        self._loop = loop
        self._states: dict[int, StandbyState] = {}
        self._due: dict[int, None] = {}
        self._wake = asyncio.Event()
        self._working = asyncio.Lock()
        self._is_closed = False
        self._is_stopping = False
        self._writes = asyncio.Semaphore(_WRITES_AT_ONCE)
        self._failed: dict[int, Replica] = {}
        """Followed, but their log could not be folded: no state until the next change of role."""
        self._not_before: dict[int, float] = {}
        """By partition: the loop's time before which no file is written again."""
        self._not_incremental: dict[int, int] = {}
        """By partition: the base since which no increment can be written."""
        self.tail_min = TAIL_MIN
        self.tail_max = TAIL_MAX
        self._pause_s = PAUSE_S

    def __len__(self) -> int:
        return len(self._states)

    def __getitem__(self, partition: int) -> StandbyState:
        return self._states[partition]

    # -- roles -----------------------------------------------------------------------------------

    def role_changed(self, partition: int, former: StandbyState | None = None) -> None:
        """The role of a partition may have changed: keep a state exactly while it is followed.

        Asked of the log each time, instead of believing the order of notices: a deleted topic, a
        replica that moved away and a failed disk all end here without a state. ``former`` is how
        far a load got before it ended, which spares the new standby to read it again.
        """
        replica = None if self._is_closed else self._log.replica(partition)
        known = self._states.get(partition)
        if known is not None and known.replica is not replica:
            self._drop(partition)
            known = None
        if replica is None or not replica.is_followed:
            self._drop(partition)
            return
        if known is None:
            self._drop(partition)  # the listener that stays after a failure
            is_same = former is not None and former.replica is replica
            state = former if former is not None and is_same else self._new_state(replica)
            state.wake = partial(self._schedule, partition)
            self._states[partition] = state
            replica.watch(_StandbyListener(state))
            saved(replica)  # before anything is appended: deletes what is beyond the end
        self._schedule(partition)

    def take(self, partition: int) -> StandbyState | None:
        """The state of a partition that is led here from now on, for its load.

        It is given away: a leader changes what it serves, and the fold must stay what the log says.
        """
        state = self._states.get(partition)
        self._drop(partition)
        return state

    def close(self) -> None:
        """Give up every state, for good."""
        self._is_closed = True
        for partition in [*self._states, *self._failed]:
            self._drop(partition)

    def _new_state(self, replica: Replica) -> StandbyState:
        return StandbyState(replica, self._config.load_buffer_bytes)

    def _drop(self, partition: int) -> None:
        state = self._states.pop(partition, None)
        self._due.pop(partition, None)
        if state is not None:
            state.wake = _ignore
            state.replica.watch(None)
        failed = self._failed.pop(partition, None)
        if failed is not None:
            failed.watch(None)

    def _fail(self, partition: int) -> None:
        """Give up a state; its replica may be emptied to be fetched anew, and then its files go.

        They would be believed again once the log has grown past them.
        """
        state = self._states.get(partition)
        self._drop(partition)
        if state is not None:
            self._failed[partition] = state.replica
            state.replica.watch(_SnapshotFilesListener(state.replica))

    def _schedule(self, partition: int) -> None:
        self._due[partition] = None
        self._wake.set()

    # -- work ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Bring states forward and write snapshots, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow())
            tasks.create_task(self._check_led())

    async def _follow(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._due:
                partition = next(iter(self._due))
                del self._due[partition]
                async with self._guarded(partition):
                    await self._follow_one(partition)
            await asyncio.sleep(GATHER_S)

    async def _follow_one(self, partition: int) -> None:
        state = self._states.get(partition)
        if state is None:
            return
        await self._forward(partition, state)
        base, position = state.replica.segment_base, state.position
        is_rolled = state.snapshot_checked_segment < base <= position
        if self._is_stopping:
            return  # what is written then is chosen by `save`
        if state.replica.is_damaged or state.damaged is not None:
            return  # a snapshot would say of what is lost that it never was
        # Looked at seldom: to count the offsets of all groups takes longer than to apply a batch.
        if is_rolled or position - state.snapshot_checked_at >= self.tail_max:
            state.snapshot_checked_at = position
            if is_rolled:
                state.snapshot_checked_segment = base
            kept = sum(len(offsets.committed) for offsets in state.replay.offsets.values())
            due = self._due_file(partition, state.replica, kept)
            if due is _SnapshotKind.WHOLE:
                await self._save(partition, state)
            elif due is _SnapshotKind.INCREMENT:
                await self._save_increment(partition, state.replica)

    async def _check_led(self) -> None:
        skipped_checks = 0
        while not self._is_stopping:
            await asyncio.sleep(CHECK_LED_S)
            # Groups that wait for their load come first; one that takes for ever holds up nothing.
            skipped_checks = skipped_checks + 1 if self._registry.is_loading else 0
            if skipped_checks % SKIPPED_CHECKS_MAX:
                continue
            for term in self._registry.terms():
                replica = self._log.replica(term.partition)
                if term.load_state is not LoadState.OWNED or replica is None:
                    continue
                if self._due_file_of_led(term, replica):
                    async with self._guarded(term.partition):
                        # Asked again: a stop may have written it while this waited for its turn.
                        due = self._due_file_of_led(term, replica)
                        if due is _SnapshotKind.WHOLE:
                            await self._save_led(term.partition, replica)
                        elif due is _SnapshotKind.INCREMENT:
                            await self._save_increment(term.partition, replica)

    def _due_file_of_led(self, term: LeadershipTerm, replica: Replica) -> _SnapshotKind | None:
        if self._is_stopping:
            return None
        kept = sum(len(group.offsets.committed) for group in term.groups.values())
        return self._due_file(term.partition, replica, kept)

    def _due_file(self, partition: int, replica: Replica, kept: int) -> _SnapshotKind | None:
        """What is to be written now; ``kept`` offsets are what a whole snapshot would hold.

        A whole one when a segment was rolled since, or when it costs less than what it saves to
        read; an increment when at least as much came since the last one as that holds.
        """
        if self._loop.time() < self._not_before.get(partition, 0.0):
            return None
        start, mark, _ = replica.bounds()
        known = saved(replica)
        ends = max(known.offset, start)
        if ends < replica.segment_base <= mark or mark - ends >= max(self.tail_max, 2 * kept):
            return _SnapshotKind.WHOLE
        base = _base(known, start)
        is_long = mark - ends >= max(self.tail_max, ends - base)
        return (
            _SnapshotKind.INCREMENT
            if is_long and self._not_incremental.get(partition) != base
            else None
        )

    async def save(self, within_s: float = STOP_S) -> None:
        """At a stop in order: snapshots where a next start would have much to read.

        Each is written once, where most is to be read again first. While one is written the next
        is made. What there is no time for is read from the log: a stop that took longer would cost
        the groups more than the next load does.
        """
        self._is_stopping = True
        self._pause_s = 0  # nobody is served any more
        led = [term.partition for term in self._registry.terms()]
        grown = []
        for partition in {*led, *self._states}:
            replica = self._log.replica(partition)
            tail = 0 if replica is None else _tail(replica)
            if tail >= self.tail_min:
                grown.append((-tail, partition))
        missing = {partition for _, partition in grown}
        try:
            async with asyncio.timeout(within_s), asyncio.TaskGroup() as writing:
                for _, partition in sorted(grown):
                    async with self._guarded(partition):
                        made = await self._capture_at_stop(partition)
                        if made is not None:
                            await self._writes.acquire()
                            writing.create_task(self._write_at_stop(partition, *made, missing))
        except TimeoutError:
            log.info(
                "stopped without a snapshot of every offsets partition missing=%s", sorted(missing)
            )

    async def _capture_at_stop(self, partition: int) -> tuple[Replica, Captured] | None:
        replica = self._log.replica(partition)
        if replica is None or replica.is_damaged or _tail(replica) < self.tail_min:
            return None  # the regular check may have written it meanwhile
        captured = await self._increment(partition, replica)
        if captured is None:
            state = self._states.get(partition) or self._new_state(replica)
            await self._forward(partition, state)
            captured = await self._in_slices(partition, replica, capture(state), state)
        return None if captured is None else (replica, captured)

    async def _write_at_stop(
        self, partition: int, replica: Replica, captured: Captured, missing: set[int]
    ) -> None:
        try:
            await self._write(partition, replica, captured)
            missing.discard(partition)
        except Exception:
            log.exception("snapshot failed partition=%d", partition)
        finally:
            self._writes.release()

    @asynccontextmanager
    async def _guarded(self, partition: int) -> AsyncIterator[None]:
        """One partition at a time; a bad one must not stop the others.

        The task of all partitions would end with the first log that cannot be read, and every later
        takeover of this node would be a cold one.
        """
        async with self._working:
            try:
                yield
            except _RoleChanged:
                log.debug("left a partition in the middle partition=%d", partition)
            except (Refused, CorruptRequest) as problem:
                log.error("no standby of an offsets partition=%d: %s", partition, problem)
                self._fail(partition)
            except Exception:
                log.exception("standby failed partition=%d", partition)
                self._fail(partition)

    async def _forward(self, partition: int, state: StandbyState) -> None:
        """Apply what is committed."""
        steps = state.advance(is_to_end=False)
        await self._in_slices(partition, state.replica, steps, state)

    async def _save_led(self, partition: int, replica: Replica) -> None:
        """Write a snapshot of a partition that is led here.

        What is served is not what the log says: appends that timed out may be in it, and a snapshot
        without them would take them back at the next load. So the snapshot before and the log
        since make the next one.
        """
        if replica.is_damaged:
            return  # a snapshot would say of what is lost that it never was
        state = self._new_state(replica)
        await self._forward(partition, state)
        await self._save(partition, state)

    async def _save(self, partition: int, state: StandbyState) -> None:
        captured = await self._in_slices(partition, state.replica, capture(state), state)
        if captured is not None:
            await self._write(partition, state.replica, captured)

    async def _save_increment(self, partition: int, replica: Replica) -> None:
        if not replica.is_damaged:
            captured = await self._increment(partition, replica)
            if captured is not None:
                await self._write(partition, replica, captured)

    async def _increment(self, partition: int, replica: Replica) -> Captured | None:
        """What came since the whole snapshot; None where only a whole one will do."""
        base = _base(saved(replica), replica.bounds()[0])
        if self._not_incremental.get(partition) == base:
            return None
        try:
            return await self._in_slices(partition, replica, capture_increment(replica))
        except NotIncremental:
            self._not_incremental[partition] = base
            return None

    async def _write(self, partition: int, replica: Replica, captured: Captured) -> None:
        if not await write(replica, captured):
            self._not_before[partition] = self._loop.time() + RETRY_S
            return
        self._not_before.pop(partition, None)
        what = "an increment" if captured.name == INCREMENT else "a snapshot"
        log.info("wrote %s partition=%d offset=%d", what, partition, captured.header.offset)

    async def _in_slices(
        self,
        partition: int,
        replica: Replica,
        steps: Generator[None, None, T],
        state: StandbyState | None = None,
    ) -> T:
        """Run ``steps`` to their end, with more time for others than for them.

        The role is looked at after each pause. A replica that was elected meanwhile has given its
        state to the loader, and two must not bring one state forward.

        ``state`` is what they bring forward or look at, if anything.
        """
        kept_state = self._states.get(partition)
        if kept_state is not state:
            kept_state = None
        is_followed = replica.is_followed
        ends = self._loop.time() + SLICE_S
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                result: T = stop.value
                return result
            if self._loop.time() >= ends:
                await asyncio.sleep(self._pause_s)
                if kept_state is not None:
                    has_left = self._states.get(partition) is not kept_state
                else:
                    is_same = self._log.replica(partition) is replica
                    has_left = not is_same or replica.is_followed is not is_followed
                if has_left:
                    steps.close()
                    raise _RoleChanged
                ends = self._loop.time() + SLICE_S


def _tail(replica: Replica) -> int:
    """How many committed records follow what is saved, or are there at all."""
    start, mark, _ = replica.bounds()
    return mark - max(saved(replica).offset, start)


def _base(known: Saved, start: int) -> int:
    """Where an increment begins."""
    return start if known.whole is None else known.whole.offset


def _ignore() -> None:
    """A state that nobody keeps need not be brought forward."""
