"""The process that is going to lose its power: it recovers, checks, then writes and reports.

It runs the shipped log code with all its background work. What it reports it says before it does
it (appends, truncations) or after it is done (durable): so that whatever was heard holds when the
process dies at any instant.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import logging
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from barnabas.broker.settings.cleaner_settings import CleanerSettings
from barnabas.broker.settings.log_config import LogConfig
from barnabas.broker.settings.node_config import StorageSettings
from barnabas.broker.storage.compaction.cleaner import LogCleaner
from barnabas.broker.storage.compaction.worker import LoopWorker
from barnabas.broker.storage.files import DiskFiles
from barnabas.broker.storage.log.log import Log
from barnabas.broker.storage.log_manager import LogManager
from barnabas.broker.storage.retention import RetentionPass, TimeAndSize
from barnabas.broker.storage.segment.batch_headers import header_at
from barnabas.protocol.errors import Refused
from barnabas.protocol.records.batch import build_batch, iterate, next_offset, records
from tests.crash.history import KEYS, BrokenPromise, History
from tests.storage.log_harness import T0, Clock

TOPICS: Final = {
    "each": {"flush.messages": "1"},
    "ten": {"flush.messages": "10"},
    "often": {"flush.ms": "20"},
    "never": {},
    "short": {"flush.messages": "20", "retention.bytes": "20000"},
    "keyed": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"},
}
COMPACTED: Final = "keyed"
FIRST_OFFSETS: Final = {topic: 100_000 * index for index, topic in enumerate(TOPICS)}
"""Far apart, so that an old block of one log never fits another by chance: nothing in a batch says
which partition it is of. What is reported counts from here."""
INTERVALS: Final = StorageSettings(
    flush_scheduler_interval_ms=10,
    recovery_point_interval_ms=40,
    start_offset_interval_ms=30,
    high_watermark_interval_ms=15,
    retention_check_interval_ms=25,
)
TRUNCATED_MAX: Final = 30
VALUE_BYTES_MAX: Final = 1500
STUCK_S: Final = 15
"""A life so long is not meant to be: it shows where it hangs."""


@dataclass(frozen=True)
class Orders:
    """What one process is to do, given to it when it is born."""

    root: Path
    seed: int
    histories: dict[str, History]
    first_id: int
    is_power_cut: bool
    """What the process before this one died of; else it was killed or stopped."""
    is_clean_stop: bool
    """Stop in order when told to."""
    report: int
    """The descriptor of a pipe."""


class Writer:
    """One life: recover, check, write until the end."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._random = Random(orders.seed)
        self._next_id = orders.first_id
        self._segment_bytes = self._random.choice((2_000, 8_000, 40_000))
        defaults = LogConfig(
            segment_bytes=self._segment_bytes, index_interval_bytes=500, file_delete_delay_ms=20
        )
        self._logs = LogManager(
            DiskFiles(),
            [orders.root / "data"],
            defaults,
            TOPICS.__getitem__,
            Clock(),
            intervals=INTERVALS,
            random=self._random,
        )
        self._cleaner = LogCleaner(
            DiskFiles(),
            self._logs,
            CleanerSettings(backoff_ms=10),
            self._stable_offset,
            Clock(),
            lambda: LoopWorker(DiskFiles()),
        )
        self._retention = RetentionPass(TimeAndSize(), Clock(), lambda log: log.end_offset)
        self._epoch = 0

    def _stable_offset(self, topic: str, partition: int) -> int:
        log = self._logs.get(topic, partition)
        return log.end_offset if log else 0

    def say(self, what: str, topic: str = "", **details: Any) -> None:
        """Report; the parent hears it even when this process is gone a moment later."""
        line = json.dumps({"what": what, "topic": topic, "at": time.monotonic(), **details})
        os.write(self._orders.report, line.encode() + b"\n")

    async def live(self) -> None:
        """Until the disk fails, or for good when stopped in order."""
        counts = _Counts()
        logging.getLogger("barnabas").addHandler(counts)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await self._logs.load()
        seconds = loop.time() - began
        for topic in TOPICS:
            self._check(topic)
        # A new log is listed within a minute; a crash before that is of no interest here.
        await self._logs.write_recovery_points()
        self.say("loaded", seconds=seconds, found=counts.found)
        stop = asyncio.Event()
        if self._orders.is_clean_stop:
            loop.call_later(0.05, stop.set)
        keeping = asyncio.create_task(self._logs.run())
        cleaning = asyncio.create_task(self._cleaner.run())
        writing = asyncio.create_task(self._write())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([keeping, writing, stopping], return_when=asyncio.FIRST_COMPLETED)
        for task in (writing, cleaning, keeping):
            task.cancel()
        await asyncio.wait([keeping, cleaning, writing])
        await self._logs.close()
        if stopping.done():
            self.say("stopped")

    def _check(self, topic: str) -> None:
        """Raises BrokenPromise when a log is not what it must be."""
        history = self._orders.histories[topic]
        log = self._logs.get(topic, 0)
        first = FIRST_OFFSETS[topic]
        log = log or self._logs.create(topic, 0, bytes(16))
        if is_new := log.end_offset <= first:
            log.truncate_fully(first)
        found = contents(log)
        accepted = history.accept(
            log.start_offset - first,
            log.end_offset - first,
            found,
            is_power_cut=self._orders.is_power_cut,
            is_compacted=topic == COMPACTED,
        )
        if not is_new:
            check_lookups(log, list(found), self._random)
            check_checkpoints(self._logs, log, first + history.longest)
        self._epoch = max(self._epoch, log.epochs.latest + 1)
        self.say("accepted", topic, ids=accepted)
        log.on_durable.append(lambda: self.say("durable", topic, offset=log.recovery_point - first))

    async def _write(self) -> None:
        self._logs.record_high_watermarks(
            lambda: [(listed.topic, 0, listed.end_offset) for listed in self._logs.logs()]
        )
        actions = [
            *(self._append, self._flush, self._roll, self._truncate, self._pause),
            *(self._delete_records, self._retain),
        ]
        weights = [70, 4, 3, 2, 19, 1, 1]
        while True:
            action = self._random.choices(actions, weights)[0]
            topic = self._random.choice(tuple(TOPICS))
            log = self._logs.get(topic, 0)
            assert log is not None
            try:
                await action(log)
            except Refused:
                await asyncio.sleep(3600)  # the disk is gone, and soon this process too

    async def _append(self, log: Log) -> None:
        count = self._random.randint(1, 5)
        ids = list(range(self._next_id, self._next_id + count))
        self._next_id += count
        size = self._random.randrange(VALUE_BYTES_MAX)
        built = build_batch(
            [(b"%d" % (record_id % KEYS), b"%d." % record_id + bytes(size)) for record_id in ids],
            timestamp_ms=T0 + ids[0],
        )
        self.say("append", log.topic, base=log.end_offset - FIRST_OFFSETS[log.topic], ids=ids)
        log.append(built, leader_epoch=self._epoch, is_client=True)

    async def _flush(self, log: Log) -> None:
        await log.flush()

    async def _roll(self, log: Log) -> None:
        if log.segments.active.size:
            log.roll()

    async def _truncate(self, log: Log) -> None:
        if log.topic == COMPACTED:
            return  # what is compacted is committed: nobody cuts that
        low = max(log.start_offset, log.end_offset - TRUNCATED_MAX)
        offset = self._random.randint(low, log.end_offset)
        while not log.may_truncate_to(offset):
            await self._logs.write_recovery_points()
        end = _boundary(log, offset)
        self.say("truncate", log.topic, offset=end - FIRST_OFFSETS[log.topic])
        log.truncate_to(offset)
        assert log.end_offset == end
        self._epoch += 1
        await self._logs.write_recovery_points()

    async def _delete_records(self, log: Log) -> None:
        if log.topic == COMPACTED:
            return
        offset = self._random.randint(log.start_offset, log.end_offset)
        self.say("begin", log.topic, offset=offset - FIRST_OFFSETS[log.topic])
        log.advance_start(offset)
        await self._logs.write_log_starts()
        self.say("begun", log.topic, offset=offset - FIRST_OFFSETS[log.topic])

    async def _retain(self, log: Log) -> None:
        for listed in self._logs.logs():
            if listed.topic != COMPACTED:
                self.say(
                    "begin", listed.topic, offset=listed.end_offset - FIRST_OFFSETS[listed.topic]
                )
        await self._retention.run(self._logs.logs())

    async def _pause(self, log: Log) -> None:
        await asyncio.sleep(self._random.random() * 0.004)


def contents(log: Log) -> dict[int, int]:
    """The ids a log holds, by offset, read as a consumer does; checksums are looked at."""
    ids: dict[int, int] = {}
    offset = log.start_offset
    while offset < log.end_offset:
        try:
            data = log.read(offset, bytes_max=1 << 16, end=log.end_offset, at_least_one=True)
            batches = [(at, list(records(data, at))) for at, _ in iterate(data)]
        except Refused as refusal:
            raise BrokenPromise(f"{log}: could not be read at {offset}: {refusal}") from refusal
        if not batches:
            if log.topic != COMPACTED:
                raise BrokenPromise(f"{log}: nothing was read at {offset}")
            break
        for at, held in batches:
            for record in held:
                if record.offset >= offset:
                    ids[record.offset - FIRST_OFFSETS[log.topic]] = int(
                        (record.value or b"").split(b".")[0]
                    )
            offset = next_offset(data, at)
    return ids


def check_lookups(log: Log, offsets: list[int], random: Random) -> None:
    """Some offsets are found where they are."""
    for _ in range(5 if offsets else 0):
        offset = random.choice(offsets) + FIRST_OFFSETS[log.topic]
        data = log.read(offset, bytes_max=1, end=log.end_offset, at_least_one=True)
        if not any(record.offset == offset for record in records(data)):
            raise BrokenPromise(f"{log}: offset {offset} is not found")


def check_checkpoints(logs: LogManager, log: Log, longest: int) -> None:
    """A recovery point may be old, it never lies; the high watermark is inside the log."""
    points = logs.directories[0].recovery_points
    if points.get((log.topic, 0), 0) > longest:
        raise BrokenPromise(f"{log}: its recovery point is {points[log.topic, 0]}")
    mark = logs.high_watermark(log.topic, 0)
    if not log.start_offset <= mark <= log.end_offset:
        raise BrokenPromise(f"{log}: its high watermark is {mark}")


def _boundary(log: Log, offset: int) -> int:
    """Where a truncation to ``offset`` ends: batches are never cut."""
    if offset >= log.end_offset:
        return log.end_offset
    data = log.read(offset, bytes_max=1, end=log.end_offset, at_least_one=True)
    return min(offset, header_at(data).base_offset)


class _Counts(logging.Handler):
    """How often recovery met what, by the first words of its warnings."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: dict[str, int] = {}

    def emit(self, record: logging.LogRecord) -> None:
        kind = re.split(r" \w+=|:| %s", record.msg)[0]
        self.found[kind] = self.found.get(kind, 0) + 1


def run(orders: Orders) -> None:
    """The whole life of the process; a broken promise is reported like the rest."""
    faulthandler.dump_traceback_later(STUCK_S)
    writer = Writer(orders)
    try:
        asyncio.run(writer.live())
    except BrokenPromise as broken:
        writer.say("broken", message=str(broken))
