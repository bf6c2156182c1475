"""Taking over a partition of a state topic after an election, in slices beside other work.

Source: docs/spec/coordinator.md §3.4, §9 pitfalls 3 to 6; docs/spec/transactions.md §3.2, §10.2.
What holds of every load:

- **All or nothing.** A partition is owned with everything that is in its log, or not at all. Kafka
  logs an error and serves what it has read; its consumers find no offset and start anew. Here a
  failed load answers 16 and is tried again. Groups, or transactional ids, come into the registry
  in one step, so that a load which loses leadership half-way leaves none behind (KAFKA-2841,
  KAFKA-10614).
- **To the log's end, not to the high watermark.** Records above it belong to this leader: they
  will be committed, or leadership is lost.
- **Served only once the high watermark has reached that end.** Else a second failover could take
  back what was already told to a consumer, or a decision whose first markers were sent.
- **By offset, not by count.** Compaction leaves gaps and batches without records; a load that
  counts records stops at the first of them (KAFKA-9065, standby_state.py).
- **One task, slices of 2 ms.** A node that takes over a hundred partitions goes on serving those
  that it has, and its beacons go out in time.

How a load goes: :meth:`Loader.begin` after an election, :meth:`Loader._steps` reads to the end and
makes what is to be served, :meth:`Loader._on_committed` hands it over when the high watermark is
there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator
from functools import partial
from typing import Final, Generic, TypeVar

from barnabas.protocol.errors import CorruptRequest, Refused

from .fold import Fold, Folding
from .ports import StateLog
from .standby_state import StandbyState
from .terms import LeadershipTerm, LoadState

log = logging.getLogger(__name__)

SLICE_S: Final = 0.002
"""The longest the loader keeps the loop to itself: heartbeats and commits wait no longer for it."""
_RETRY_FIRST_S: Final = 0.1
_RETRY_MOST_S: Final = 10.0
_RETRY_DOUBLINGS: Final = 10

T = TypeVar("T", bound=LeadershipTerm)
F = TypeVar("F", bound=Fold)
C = TypeVar("C")
Steps = Generator[None, None, None]


class _LeadershipLost(Exception):  # noqa: N818 - what happened, not an error
    """Leadership ended while a partition was loading; the coordinator is about to be told, or was.

    Not a failure of the log: the next election of this partition begins a term of its own.
    """


class _Load(Generic[T, F]):
    """How far the load of one term has come.

    A load is found by its partition, and compared by identity after each wait: an election in
    between has put another in its place, and the old one must not hand over anything.
    """

    __slots__ = ("began", "state", "steps", "term")

    def __init__(self, term: T, began: float, state: StandbyState[F] | None) -> None:
        self.term = term
        self.began = began
        self.state = state
        self.steps: Steps | None = None
        """None while it waits: for the high watermark, or for another try."""

    @property
    def remaining(self) -> int:
        return 0 if self.state is None else self.state.remaining


class Loader(Generic[T, F, C]):
    """Loads partitions, the one with the least to read first: a warm one waits for no cold one.

    A partition with a standby has a few records to read, one without may have millions. In the
    order of elections, groups of the first kind would wait for minutes behind the second.

    ``loaded`` is called with all that a term has when it may be served. A load that fails is tried
    again, later each time, as long as the term runs; its keys are answered 16 meanwhile.
    """

    def __init__(
        self,
        state_log: StateLog,
        folding: Folding[T, F, C],
        load_buffer_bytes: int,
        loop: asyncio.AbstractEventLoop,
        loaded: Callable[[T, C], None],
    ) -> None:
        """``load_buffer_bytes`` is read at a time; a larger batch is still read whole."""
        self._log = state_log
        self._folding = folding
        self._load_buffer_bytes = load_buffer_bytes
        self._loop = loop
        self._loaded = loaded
        self._loads: dict[int, _Load[T, F]] = {}
        self._wake = asyncio.Event()
        self.after_slice: Callable[[], None] = lambda: None
        """Called after each slice of a load."""
        self.loads = 0
        """How many loads came to their end, and how long they took."""
        self.seconds = 0.0
        self.seconds_longest = 0.0

    def __len__(self) -> int:
        return len(self._loads)

    def begin(self, term: T, state: StandbyState[F] | None = None) -> None:
        """Load a term that just began, from where its ``state`` has come to.

        An earlier term of the same leadership hands over what it has read: where only the
        leader epoch has grown, a load of a minute must not begin anew. What was served is never
        handed over, because its groups have changed since.
        """
        former = self.end(term.partition)
        load = _Load(term, self._loop.time(), state or former)
        term.began = term.began or load.began
        term.was_warm = load.state is not None and load.state.position >= 0
        self._loads[term.partition] = load
        self._continue(load)

    def end(self, partition: int) -> StandbyState[F] | None:
        """The partition is not led here any more: what was read of it, if that is not served."""
        load = self._loads.pop(partition, None)
        if load is None:
            return None
        if load.steps is not None:
            load.steps.close()
        return load.state

    async def run(self) -> None:
        """Load whatever is there to be loaded, for ever.

        The choice is made anew after each slice: a warm partition that is elected while a cold one
        loads is served first.
        """
        while True:
            await self._wake.wait()
            active = [load for load in self._loads.values() if load.steps is not None]
            if not active:
                self._wake.clear()
                continue
            self._slice(min(active, key=lambda load: load.remaining))
            self.after_slice()
            await asyncio.sleep(0)

    def _continue(self, load: _Load[T, F]) -> None:
        load.steps = self._steps(load)
        self._wake.set()

    def _slice(self, load: _Load[T, F]) -> None:
        """One slice of one load; what goes wrong with it does not hold up the others."""
        steps = load.steps
        assert steps is not None
        ends = self._loop.time() + SLICE_S
        try:
            while self._loop.time() < ends:
                next(steps)
            return
        except StopIteration:
            if load.steps is steps:
                load.steps = None
        except _LeadershipLost:
            self._retry_later(load)
        except (Refused, CorruptRequest) as problem:
            self._failed(load, str(problem))
        except Exception as problem:
            log.exception("load failed partition=%s-%d", self._folding.topic, load.term.partition)
            self._failed(load, repr(problem))

    def _steps(self, load: _Load[T, F]) -> Steps:
        """Read to the log's end, then have the result served once all of it is committed.

        What is to be served is made before the high watermark is there; nobody sees it.
        """
        term = load.term
        state = self._state_for(load)
        yield from state.advance(is_to_end=True)
        end = state.position
        contents = yield from self._folding.contents(state.fold, term)
        on_complete = partial(self._on_committed, load, end, contents)
        self._log.when_committed(term.partition, end, on_complete)

    def _state_for(self, load: _Load[T, F]) -> StandbyState[F]:
        partition = load.term.partition
        replica = self._log.replica(partition)
        if replica is None or self._log.bounds(partition) is None:
            raise _LeadershipLost
        # A replica that was deleted and made anew has another log: what was read of the old one
        # must not be continued.
        state = load.state
        if state is None or state.replica is not replica:
            state = load.state = StandbyState(replica, self._folding, self._load_buffer_bytes)
        return state

    def _on_committed(self, load: _Load[T, F], end: int, contents: C, is_committed: bool) -> None:
        """The high watermark passed what was read: serve it, all at once."""
        term = load.term
        if self._loads.get(term.partition) is not load:
            return  # the term ended while it waited (KAFKA-2841)
        bounds = self._log.bounds(term.partition)
        if not is_committed or bounds is None:
            self._retry_later(load)
        elif bounds[2] > end:
            self._continue(load)  # somebody else appended meanwhile: this is outdated
        else:
            assert load.state is not None
            seconds = self._loop.time() - load.began
            self.loads += 1
            term.load_seconds = seconds
            self.seconds += seconds
            self.seconds_longest = max(self.seconds_longest, seconds)
            state, size = load.state, self._folding.size(contents)
            log.log(
                logging.INFO if size else logging.DEBUG,
                "loaded partition=%s-%d epoch=%d %s=%d records=%d ms=%.0f",
                self._folding.topic,
                term.partition,
                term.leader_epoch,
                self._folding.contents_name,
                size,
                state.fold.count,
                seconds * 1000,
            )
            del self._loads[term.partition]
            if state.damaged is not None:
                contents = self._folding.loaded_past_damage(
                    term, state.fold, state.damaged, contents
                )
            term.loaded_end = end
            self._loaded(term, contents)

    def _failed(self, load: _Load[T, F], why: str) -> None:
        """Do not own what could not be read whole; try again, from the start, while it is led.

        From the start, because nothing says how much of what was read can be believed. Its keys
        are answered 16, not 14: a client then asks for the coordinator anew, and finds another
        node as soon as an operator has moved the partition.
        """
        term = load.term
        load.state = None
        if term.load_state is not LoadState.FAILED:
            term.become(LoadState.FAILED)
        topic = self._folding.topic
        log.error("not served partition=%s-%d: %s", topic, term.partition, why)
        self._retry_later(load)

    def _retry_later(self, load: _Load[T, F]) -> None:
        """Try once more after a while, unless the term is over by then.

        The delay doubles up to 10 s, over all attempts of the term: a log that stays damaged is
        not read in a loop, and a disk that comes back is noticed within seconds.
        """
        load.steps = None
        term = load.term
        delay = min(_RETRY_FIRST_S * 2**term.attempts, _RETRY_MOST_S)
        term.attempts = min(term.attempts + 1, _RETRY_DOUBLINGS)
        self._loop.call_later(delay, self._retry, load)

    def _retry(self, load: _Load[T, F]) -> None:
        if self._loads.get(load.term.partition) is load:
            self._continue(load)
