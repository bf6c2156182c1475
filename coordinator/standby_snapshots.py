"""Standbys of offsets partitions, and the snapshots of those that are followed or led here.

Source: docs/spec/coordinator.md §3.4.1. A snapshot lets a start read little. It is only a shorter
way to what the log says: whenever there is doubt it is deleted, and the log is read.

- **A snapshot goes with its log.** A truncation deletes the files that go beyond it, also where
  the state failed and nobody folds the log any more. Once the log has grown past such a file again,
  nothing in its header would tell it from a good one.
- **No snapshot of a damaged log.** It would say of what is lost that it never was.
"""

from __future__ import annotations

import asyncio
import logging
from enum import Enum
from typing import Final

from .config import CoordinatorConfig
from .group_folding import GroupFolding
from .group_registry import GroupRegistry, GroupTerm
from .incremental_capture import NotIncremental, capture_increment
from .ports import INCREMENT, FollowerListener, Replica, StateLog
from .replay import Replay
from .snapshot_files import Captured, Saved, capture, drop_above, saved, write
from .standby import Standbys
from .standby_state import StandbyState
from .terms import LoadState

log = logging.getLogger(__name__)

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


class _StandbyListener:
    """Hears what a followed replica does to its log, before a cut is made.

    Before, because after it nobody can tell which offsets the files on disk had gone beyond.
    """

    def __init__(self, state: StandbyState[Replay]) -> None:
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


class GroupStandbys(Standbys[Replay]):
    """The state of every offsets partition that is followed here, and the snapshots of all.

    One partition is worked on at a time: two at once would need twice the memory of a whole
    snapshot.
    """

    def __init__(
        self,
        state_log: StateLog,
        registry: GroupRegistry,
        folding: GroupFolding,
        config: CoordinatorConfig,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(state_log, folding, config.load_buffer_bytes, loop)
        self._registry = registry
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

    def close(self) -> None:
        """Give up every state, for good."""
        super().close()
        for partition in list(self._failed):
            self._drop(partition)

    async def run(self) -> None:
        """Bring states forward and write snapshots, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(super().run())
            tasks.create_task(self._check_led())

    def _listener(self, state: StandbyState[Replay]) -> FollowerListener:
        return _StandbyListener(state)

    def _drop(self, partition: int) -> None:
        super()._drop(partition)
        failed = self._failed.pop(partition, None)
        if failed is not None:
            failed.watch(None)

    def _fail(self, partition: int) -> None:
        """Give up a state; its replica may be emptied to be fetched anew, and then its files go.

        They would be believed again once the log has grown past them.
        """
        state = self._states.get(partition)
        super()._fail(partition)
        if state is not None:
            self._failed[partition] = state.replica
            state.replica.watch(_SnapshotFilesListener(state.replica))

    # -- when a file is due ----------------------------------------------------------------------

    async def _brought_forward(self, partition: int, state: StandbyState[Replay]) -> None:
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
            kept = sum(offsets.kept for offsets in state.fold.offsets.values())
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

    def _due_file_of_led(self, term: GroupTerm, replica: Replica) -> _SnapshotKind | None:
        if self._is_stopping:
            return None
        kept = sum(group.offsets.kept for group in term.groups.values())
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

    # -- at a stop -------------------------------------------------------------------------------

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

    # -- files -----------------------------------------------------------------------------------

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

    async def _save(self, partition: int, state: StandbyState[Replay]) -> None:
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
        if self._not_incremental.get(partition) == base or self._has_open_groups(partition):
            return None
        try:
            return await self._in_slices(partition, replica, capture_increment(replica))
        except NotIncremental:
            self._not_incremental[partition] = base
            return None

    def _has_open_groups(self, partition: int) -> bool:
        """Whether offsets are staged in transactions, perhaps since before the whole snapshot.

        An increment is not read then: it may lack the tombstone that dropped them.
        """
        state, term = self._states.get(partition), self._registry.term_at(partition)
        return bool((state and state.fold.open_groups) or (term and term.open_groups))

    async def _write(self, partition: int, replica: Replica, captured: Captured) -> None:
        if not await write(replica, captured):
            self._not_before[partition] = self._loop.time() + RETRY_S
            return
        self._not_before.pop(partition, None)
        what = "an increment" if captured.name == INCREMENT else "a snapshot"
        log.info("wrote %s partition=%d offset=%d", what, partition, captured.header.offset)


def _tail(replica: Replica) -> int:
    """How many committed records follow what is saved, or are there at all."""
    start, mark, _ = replica.bounds()
    return mark - max(saved(replica).offset, start)


def _base(known: Saved, start: int) -> int:
    """Where an increment begins."""
    return start if known.whole is None else known.whole.offset
