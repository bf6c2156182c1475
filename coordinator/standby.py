"""Warm standby: what this node would serve of the offsets partitions that it follows.

Source: coordinator.md section 3.4.2; design decision 6. One task brings the shadows forward, one
after the other, in short slices with pauses between them: whoever leads has the loop first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, TypeVar

from barnabas.protocol.errors import CorruptRequest, Refused

from .config import CoordinatorConfig
from .ownership import Directory, Standing, Term
from .ports import OffsetsLog, Replica
from .shadow import Shadow
from .snapshot import SnapshotHeader
from .snapshot_files import capture, drop_above, saved_offset, write

log = logging.getLogger(__name__)

T = TypeVar("T")

SLICE_S: Final = 0.001
PAUSE_S: Final = 0.004
GATHER_S: Final = 0.02
"""Commits come one by one: applied together they cost a fraction."""
LOOK_S: Final = 10.0
"""How often the led partitions are looked at for segments that were rolled."""
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
_Captured = tuple[SnapshotHeader, list[bytes]]


class _Left(Exception):  # noqa: N818 - what happened, not an error
    """The replica got another role while it was worked on."""


class _Follower:
    """Hears what a followed replica does to its log."""

    def __init__(self, shadow: Shadow) -> None:
        self._shadow = shadow

    def appended(self, before: int, data: bytes) -> None:
        self._shadow.appended(before, data)

    def cut(self, offset: int) -> None:
        self._shadow.cut(offset)
        if offset >= 0:
            drop_above(self._shadow.replica, offset)


class Standbys:
    """The shadow of every offsets partition followed here, and the snapshots of all."""

    def __init__(
        self,
        offsets_log: OffsetsLog,
        directory: Directory,
        config: CoordinatorConfig,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._log = offsets_log
        self._directory = directory
        self._config = config
        self._loop = loop
        self._shadows: dict[int, Shadow] = {}
        self._due: dict[int, None] = {}
        self._wake = asyncio.Event()
        self._working = asyncio.Lock()
        self._is_closed = False
        self._is_stopping = False
        self._writes = asyncio.Semaphore(_WRITES_AT_ONCE)
        self.tail_min = TAIL_MIN
        self.tail_max = TAIL_MAX
        self._pause_s = PAUSE_S

    def __len__(self) -> int:
        return len(self._shadows)

    def __getitem__(self, partition: int) -> Shadow:
        return self._shadows[partition]

    # -- roles -----------------------------------------------------------------------------------

    def review(self, partition: int, former: Shadow | None = None) -> None:
        """The role of a partition may have changed: keep a shadow exactly while it is followed.

        ``former`` is a shadow that a load got so far before it ended.
        """
        replica = None if self._is_closed else self._log.replica(partition)
        known = self._shadows.get(partition)
        if known is not None and known.replica is not replica:
            self._drop(partition)
            known = None
        if replica is None or not replica.is_followed:
            self._drop(partition)
            return
        if known is None:
            is_same = former is not None and former.replica is replica
            shadow = former if former is not None and is_same else self._shadow_of(replica)
            shadow.wake = partial(self._notice, partition)
            self._shadows[partition] = shadow
            replica.watch(_Follower(shadow))
            saved_offset(replica)  # before anything is appended: deletes what is beyond the end
        self._notice(partition)

    def take(self, partition: int) -> Shadow | None:
        """The shadow of a partition that is led here from now on."""
        shadow = self._shadows.get(partition)
        self._drop(partition)
        return shadow

    def close(self) -> None:
        """Give up every shadow, for good."""
        self._is_closed = True
        for partition in list(self._shadows):
            self._drop(partition)

    def _shadow_of(self, replica: Replica) -> Shadow:
        return Shadow(replica, self._config.load_buffer_bytes)

    def _drop(self, partition: int) -> None:
        shadow = self._shadows.pop(partition, None)
        self._due.pop(partition, None)
        if shadow is not None:
            shadow.wake = _nobody
            shadow.replica.watch(None)

    def _notice(self, partition: int) -> None:
        self._due[partition] = None
        self._wake.set()

    # -- work ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Bring shadows forward and write snapshots, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow())
            tasks.create_task(self._look_at_led())

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
        shadow = self._shadows.get(partition)
        if shadow is None:
            return
        await self._forward(partition, shadow)
        base, position = shadow.replica.segment_base, shadow.position
        is_rolled = shadow.looked_at_segment < base <= position
        if self._is_stopping:
            return  # what is written then is chosen by `save`
        if is_rolled or position - shadow.looked_at >= self.tail_max:
            shadow.looked_at = position
            if is_rolled:
                shadow.looked_at_segment = base
            kept = sum(len(each.committed) for each in shadow.replay.offsets.values())
            if _is_due(shadow.replica) or self._is_long(shadow.replica, kept):
                await self._save(partition, shadow)

    async def _look_at_led(self) -> None:
        while not self._is_stopping:
            await asyncio.sleep(LOOK_S)
            for term in self._directory.terms():
                replica = self._log.replica(term.partition)
                if term.standing is not Standing.OWNED or replica is None:
                    continue
                if self._is_led_due(term, replica):
                    async with self._guarded(term.partition):
                        # Asked again: a stop may have written it while this waited for its turn.
                        if self._is_led_due(term, replica):
                            await self._save_led(term.partition, replica)

    def _is_led_due(self, term: Term, replica: Replica) -> bool:
        if self._is_stopping:
            return False
        kept = sum(len(group.offsets.committed) for group in term.groups.values())
        return _is_due(replica) or self._is_long(replica, kept)

    async def save(self, within_s: float = STOP_S) -> None:
        """At a stop in order: snapshots where a next start would have much to read.

        Each is written once, where most is to be read again first. While one is written the next
        is made. What there is no time for is read from the log.
        """
        self._is_stopping = True
        self._pause_s = 0  # nobody is served any more
        led = [term.partition for term in self._directory.terms()]
        grown = []
        for partition in {*led, *self._shadows}:
            replica = self._log.replica(partition)
            tail = 0 if replica is None else _tail(replica)
            if tail >= self.tail_min:
                grown.append((-tail, partition))
        missing = {partition for _, partition in grown}
        try:
            async with asyncio.timeout(within_s), asyncio.TaskGroup() as writing:
                for _, partition in sorted(grown):
                    async with self._guarded(partition):
                        made = await self._made_at_stop(partition)
                        if made is not None:
                            await self._writes.acquire()
                            writing.create_task(self._write_at_stop(partition, *made, missing))
        except TimeoutError:
            log.info(
                "stopped without a snapshot of every offsets partition missing=%s", sorted(missing)
            )

    async def _made_at_stop(self, partition: int) -> tuple[Shadow, _Captured] | None:
        replica = self._log.replica(partition)
        shadow = self._shadows.get(partition)
        if replica is None or replica.is_damaged or _tail(replica) < self.tail_min:
            return None  # the regular look may have written it meanwhile
        if shadow is None:
            shadow = self._shadow_of(replica)
        await self._forward(partition, shadow)
        captured = await self._in_slices(partition, shadow, capture(shadow))
        return None if captured is None else (shadow, captured)

    async def _write_at_stop(
        self, partition: int, shadow: Shadow, captured: _Captured, missing: set[int]
    ) -> None:
        try:
            await self._write(partition, shadow, captured)
            missing.discard(partition)
        except Exception:
            log.exception("snapshot failed partition=%d", partition)
        finally:
            self._writes.release()

    def _is_long(self, replica: Replica, kept: int) -> bool:
        """Whether a start would have much to read; ``kept`` offsets are what a snapshot holds."""
        return _tail(replica) >= max(self.tail_max, 2 * kept)

    @asynccontextmanager
    async def _guarded(self, partition: int) -> AsyncIterator[None]:
        """One partition at a time; a bad one must not stop the others."""
        async with self._working:
            try:
                yield
            except _Left:
                log.debug("left a partition in the middle partition=%d", partition)
            except (Refused, CorruptRequest) as problem:
                log.error("no standby of an offsets partition=%d: %s", partition, problem)
                self._drop(partition)
            except Exception:
                log.exception("standby failed partition=%d", partition)
                self._drop(partition)

    async def _forward(self, partition: int, shadow: Shadow) -> None:
        """Apply what is committed."""
        await self._in_slices(partition, shadow, shadow.advance(is_to_end=False))

    async def _save_led(self, partition: int, replica: Replica) -> None:
        """What is served is not what the log says: appends that timed out may be in it.

        So the snapshot before and the log since make the next one.
        """
        if replica.is_damaged:
            return  # a snapshot would say of what is lost that it never was
        shadow = self._shadow_of(replica)
        await self._in_slices(partition, shadow, shadow.advance(is_to_end=False))
        await self._save(partition, shadow)

    async def _save(self, partition: int, shadow: Shadow) -> None:
        captured = await self._in_slices(partition, shadow, capture(shadow))
        if captured is not None:
            await self._write(partition, shadow, captured)

    async def _write(self, partition: int, shadow: Shadow, captured: _Captured) -> None:
        header, frames = captured
        await write(shadow.replica, header, frames)
        log.info("wrote a snapshot partition=%d offset=%d", partition, header.offset)

    async def _in_slices(
        self, partition: int, shadow: Shadow, steps: Generator[None, None, T]
    ) -> T:
        """Run ``steps`` to their end, with more time for others than for them."""
        is_ward = self._shadows.get(partition) is shadow
        ends = self._loop.time() + SLICE_S
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                result: T = stop.value
                return result
            if self._loop.time() >= ends:
                await asyncio.sleep(self._pause_s)
                if self._has_left(partition, shadow, is_ward=is_ward):
                    steps.close()
                    raise _Left
                ends = self._loop.time() + SLICE_S

    def _has_left(self, partition: int, shadow: Shadow, *, is_ward: bool) -> bool:
        if is_ward:
            return self._shadows.get(partition) is not shadow
        return self._log.replica(partition) is not shadow.replica or shadow.replica.is_followed


def _tail(replica: Replica) -> int:
    """How many committed records follow the last snapshot, or are there at all."""
    start, mark, _ = replica.bounds()
    return mark - max(saved_offset(replica), start)


def _is_due(replica: Replica) -> bool:
    """Whether a segment was rolled since the last snapshot, and what is below it is committed."""
    start, mark, _ = replica.bounds()
    return max(saved_offset(replica), start) < replica.segment_base <= mark


def _nobody() -> None:
    """A shadow that nobody keeps need not be brought forward."""
