"""Reading an offsets partition after an election, in slices that leave the loop to others.

Source: coordinator.md section 3.4. A partition is owned only with everything that was in its log,
and only once the high watermark has reached the end that was read: a second failover can then not
take back what was served.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from barnabas.protocol.errors import CorruptRequest, Refused
from barnabas.protocol.records import batch
from barnabas.protocol.records.control import parse_marker
from barnabas.protocol.records.failures import CorruptRecords

from .config import CoordinatorConfig
from .group import Group
from .ownership import Directory, Standing, Term
from .ports import OffsetsLog
from .replay import NO_PRODUCER, Replay

log = logging.getLogger(__name__)

SLICE_S: Final = 0.002
"""The longest the loader keeps the loop to itself."""
_RECORDS_BETWEEN_LOOKS: Final = 32
_RETRY_FIRST_S: Final = 0.1
_RETRY_MOST_S: Final = 10.0
_RETRY_DOUBLINGS: Final = 10

Loaded = Callable[[Term, list[Group]], None]


class _Over(Exception):  # noqa: N818 - what happened, not an error
    """Leadership ended while a partition was loading; the coordinator will be told, or was."""


class _Job:
    """How far the load of one term has come."""

    __slots__ = ("began", "position", "records", "replay", "term")

    def __init__(self, term: Term, began: float) -> None:
        self.term = term
        self.began = began
        self.replay = Replay()
        self.position = -1
        self.records = 0


class Loader:
    """Loads one partition after the other, in order of election.

    ``loaded`` is called with all groups of a term when they may be served. A load that fails is
    tried again, later each time, as long as the term runs; the gate says 16 meanwhile.
    """

    def __init__(
        self,
        offsets_log: OffsetsLog,
        directory: Directory,
        config: CoordinatorConfig,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
        loaded: Loaded,
    ) -> None:
        self._log = offsets_log
        self._directory = directory
        self._config = config
        self._loop = loop
        self._now_ms = now_ms
        self._loaded = loaded
        self._jobs: asyncio.Queue[_Job] = asyncio.Queue()
        self._slice_ends = 0.0

    def begin(self, term: Term) -> None:
        """Queue the load of a term that just began, or that failed before."""
        if self._directory.is_current(term):
            self._jobs.put_nowait(_Job(term, self._loop.time()))

    async def run(self) -> None:
        """Load whatever is queued, for ever."""
        while True:
            job = await self._jobs.get()
            try:
                await self._load(job)
            except _Over:
                self._again(job.term)
            except (Refused, CorruptRequest) as problem:
                self._failed(job.term, str(problem))
            except Exception as problem:  # a bad partition must not stop the others
                log.exception("load failed partition=%d", job.term.partition)
                self._failed(job.term, repr(problem))

    async def _load(self, job: _Job) -> None:
        """Read to the log's end, then have the result served once all of it is committed."""
        self._slice_ends = self._loop.time() + SLICE_S
        await self._read(job)
        end = job.position
        groups = []
        for group in job.replay.groups(job.term, self._now_ms()):
            groups.append(group)
            if len(groups) % _RECORDS_BETWEEN_LOOKS == 0:
                await self._breathe(job.term)
        self._check(job.term)
        done = partial(self._committed, job, end, groups)
        self._log.when_committed(job.term.partition, end, done)

    async def _read(self, job: _Job) -> None:
        partition = job.term.partition
        while True:
            self._check(job.term)
            bounds = self._log.bounds(partition)
            if bounds is None:
                raise _Over
            start, _, end = bounds
            if job.position < start:
                job.position = start
            if job.position >= end:
                return
            data = self._log.read(partition, job.position, self._config.load_buffer_bytes)
            before = job.position
            await self._apply(job, data)
            if job.position == before:
                raise CorruptRecords(f"nothing to read at {before} below the end {end}")

    async def _apply(self, job: _Job, data: bytes) -> None:
        """All whole batches of one read; the next begins after the last one's last offset.

        Not after its last record: compaction leaves gaps, and batches without records (KAFKA-9065).
        """
        for position, size in batch.iterate(data):
            if not batch.crc_is_valid(data, position, size):
                base = batch.base_offset(data, position)
                raise CorruptRecords(f"checksum of the batch at offset {base}")
            following = batch.next_offset(data, position)
            if following <= job.position:
                continue
            await self._apply_batch(job, data, position)
            job.position = following

    async def _apply_batch(self, job: _Job, data: bytes, position: int) -> None:
        replay = job.replay
        is_control = batch.is_control(data, position)
        is_transactional = batch.is_transactional(data, position)
        producer_id = batch.producer_id(data, position) if is_transactional else NO_PRODUCER
        for record in batch.records(data, position):
            if record.offset < job.position:
                continue
            if is_control:
                marker = parse_marker(record.key)
                if marker is not None:
                    replay.end_transaction(producer_id, marker)
            else:
                replay.apply(record.offset, record.key, record.value, producer_id=producer_id)
            job.records += 1
            if job.records % _RECORDS_BETWEEN_LOOKS == 0:
                await self._breathe(job.term)

    async def _breathe(self, term: Term) -> None:
        """Let others run when the slice is used up."""
        if self._loop.time() >= self._slice_ends:
            await asyncio.sleep(0)
            self._check(term)
            self._slice_ends = self._loop.time() + SLICE_S

    def _check(self, term: Term) -> None:
        if not self._directory.is_current(term):
            raise _Over

    def _committed(self, job: _Job, end: int, groups: list[Group], is_committed: bool) -> None:
        """The high watermark passed what was read: serve it, all at once."""
        term = job.term
        if not self._directory.is_current(term):
            return
        bounds = self._log.bounds(term.partition)
        if not is_committed or bounds is None:
            self._again(term)
        elif bounds[2] > end:
            self.begin(term)  # somebody else appended meanwhile: what was made of it is outdated
        else:
            took_ms = (self._loop.time() - job.began) * 1000
            log.info(
                "loaded partition=%d epoch=%d groups=%d records=%d ms=%.0f",
                term.partition,
                term.leader_epoch,
                len(groups),
                job.records,
                took_ms,
            )
            self._loaded(term, groups)

    def _failed(self, term: Term, why: str) -> None:
        """Do not own what could not be read whole; try again while the term runs."""
        if not self._directory.is_current(term):
            return
        if term.standing is not Standing.FAILED:
            term.become(Standing.FAILED)
        log.error("offsets partition not served partition=%d: %s", term.partition, why)
        self._again(term)

    def _again(self, term: Term) -> None:
        """Try once more after a while, unless the term is over by then."""
        delay = min(_RETRY_FIRST_S * 2**term.attempts, _RETRY_MOST_S)
        term.attempts = min(term.attempts + 1, _RETRY_DOUBLINGS)
        self._loop.call_later(delay, self.begin, term)
