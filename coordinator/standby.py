"""Warm standby: what this node would serve of the partitions of a state topic that it follows.

Source: docs/spec/coordinator.md §3.4.2; docs/spec/transactions.md §10.2. A follower of such a
partition keeps the fold that a leader would have, so that a takeover reads nothing. It is only a
shorter way to what the log says: whenever there is doubt it is dropped, and the log is read.

- **Only what is committed is applied.** What lies above the high watermark may be truncated when
  another node is elected; it is kept as bytes (uncommitted_batches.py) and dropped with the log.
- **There is a state exactly while a partition is followed here.** The log is asked for the role
  each time when it may have changed. A state that outlives its replica would be believed by the
  next load of a topic that was made anew.
- **Whoever leads has the loop first.** One task brings the states forward, one after the other, in
  slices of 1 ms with pauses of 4 ms: at most a fifth of the node's time, however far behind it is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, Generic, TypeVar

from barnabas.protocol.errors import CorruptRequest, Refused

from .fold import Fold, Folding
from .ports import FollowerListener, Replica, StateLog
from .standby_state import StandbyState

log = logging.getLogger(__name__)

F = TypeVar("F", bound=Fold)
R = TypeVar("R")

SLICE_S: Final = 0.001
"""The longest that the loop is kept from others."""
PAUSE_S: Final = 0.004
"""What others have between two slices."""
GATHER_S: Final = 0.02
"""Commits come one by one: applied together they cost a fraction."""


class _RoleChanged(Exception):  # noqa: N818 - what happened, not an error
    """The replica got another role while it was worked on."""


class Standbys(Generic[F]):
    """The state of every partition of one topic that is followed here.

    ``_working`` is held for one partition at a time: the slices of two would take the loop twice as
    often.
    """

    def __init__(
        self,
        state_log: StateLog,
        folding: Folding[Any, F, Any],
        load_buffer_bytes: int,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """``load_buffer_bytes`` is read at a time; a larger batch is still read whole."""
        self._log = state_log
        self._folding = folding
        self._load_buffer_bytes = load_buffer_bytes
        self._loop = loop
        self._states: dict[int, StandbyState[F]] = {}
        self._due: dict[int, None] = {}
        self._wake = asyncio.Event()
        self._working = asyncio.Lock()
        self._is_closed = False
        self._pause_s = PAUSE_S

    def __len__(self) -> int:
        return len(self._states)

    def __getitem__(self, partition: int) -> StandbyState[F]:
        return self._states[partition]

    def states(self) -> list[tuple[int, StandbyState[F]]]:
        """Every state that is kept here, by partition."""
        return sorted(self._states.items())

    # -- roles -----------------------------------------------------------------------------------

    def role_changed(self, partition: int, former: StandbyState[F] | None = None) -> None:
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
            replica.watch(self._listener(state))
            self._folding.saved_offset(replica)  # deletes what is beyond the end, before it grows
        self._schedule(partition)

    def take(self, partition: int) -> StandbyState[F] | None:
        """The state of a partition that is led here from now on, for its load.

        It is given away: a leader changes what it serves, and the fold must stay what the log says.
        """
        state = self._states.get(partition)
        self._drop(partition)
        return state

    def close(self) -> None:
        """Give up every state, for good."""
        self._is_closed = True
        for partition in list(self._states):
            self._drop(partition)

    def _new_state(self, replica: Replica) -> StandbyState[F]:
        return StandbyState(replica, self._folding, self._load_buffer_bytes)

    def _listener(self, state: StandbyState[F]) -> FollowerListener:
        """Who hears what a followed replica does to its log."""
        return state

    def _drop(self, partition: int) -> None:
        state = self._states.pop(partition, None)
        self._due.pop(partition, None)
        if state is not None:
            state.wake = _ignore
            state.replica.watch(None)

    def _fail(self, partition: int) -> None:
        """Give up a state whose log cannot be folded."""
        self._drop(partition)

    def _schedule(self, partition: int) -> None:
        self._due[partition] = None
        self._wake.set()

    # -- work ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Bring states forward, until cancelled."""
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
        await self._brought_forward(partition, state)

    async def _brought_forward(self, partition: int, state: StandbyState[F]) -> None:
        """What is committed was applied to ``state``."""

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
                log.debug("left in the middle partition=%s-%d", self._folding.topic, partition)
            except (Refused, CorruptRequest) as problem:
                log.error("no standby partition=%s-%d: %s", self._folding.topic, partition, problem)
                self._fail(partition)
            except Exception:
                log.exception("standby failed partition=%s-%d", self._folding.topic, partition)
                self._fail(partition)

    async def _forward(self, partition: int, state: StandbyState[F]) -> None:
        """Apply what is committed."""
        steps = state.advance(is_to_end=False)
        await self._in_slices(partition, state.replica, steps, state)

    async def _in_slices(
        self,
        partition: int,
        replica: Replica,
        steps: Generator[None, None, R],
        state: StandbyState[F] | None = None,
    ) -> R:
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
                result: R = stop.value
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


def _ignore() -> None:
    """A state that nobody keeps need not be brought forward."""
