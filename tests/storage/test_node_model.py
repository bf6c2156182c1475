"""The logs of a node against plain dictionaries, while everything that can happen to them does.

Appends, commits, rolls, truncations, DeleteRecords, retention, compaction by two workers, deletion
and creation, changes of settings, stops, kills and power cuts, all of it while flushes, checkpoints
and passes of compaction are under way, on the simulated loop and disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from pathlib import Path
from random import Random
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from barnabas.broker.settings.cleaner_settings import CleanerSettings
from barnabas.broker.settings.node_config import StorageSettings
from barnabas.broker.storage.compaction.cleaner import LogCleaner
from barnabas.broker.storage.log.log import Log
from barnabas.broker.storage.log_manager import LogManager
from barnabas.protocol.records.batch import build_batch, iterate, records
from tests.sim.simulated_files import SimulatedFiles
from tests.sim.simulated_loop import SimulatedLoop
from tests.storage.log_harness import config, read_all

DIRECTORY = Path("/data")
TOPICS = st.sampled_from(["t", "u"])
KEYS = st.sampled_from([b"a", b"b", b"c", b"a key that is longer than a digest"])
PAIRS = st.lists(
    st.tuples(KEYS, st.one_of(st.none(), st.binary(max_size=60))), min_size=1, max_size=3
)
SETTINGS = st.fixed_dictionaries(
    {
        "cleanup.policy": st.sampled_from(["delete", "compact", "compact,delete"]),
        "segment.bytes": st.sampled_from(["150", "400", "2000"]),
        "retention.bytes": st.sampled_from(["-1", "-1", "300", "0"]),
        "retention.ms": st.sampled_from(["-1", "-1", "20000"]),
        "delete.retention.ms": st.sampled_from(["0", "5000"]),
        "flush.messages": st.sampled_from(["1", "3", "9223372036854775807"]),
        "min.compaction.lag.ms": st.sampled_from(["0", "0", "2000"]),
    }
)
INTERVALS = StorageSettings(
    retention_check_interval_ms=700,
    initial_task_delay_ms=10,
    recovery_point_interval_ms=1500,
    start_offset_interval_ms=1900,
)


class Known:
    """What was appended to one topic's partition, and how far it is committed."""

    def __init__(self) -> None:
        self.pairs: dict[int, tuple[bytes, bytes | None]] = {}
        self.committed = 0
        self.told_start = 0
        """DeleteRecords was answered with this."""
        self.begin = 0
        """What lies below belongs to logs that were emptied: a power cut may bring it back."""

    def cut(self, end_offset: int) -> None:
        self.pairs = {at: pair for at, pair in self.pairs.items() if at < end_offset}
        self.committed = min(self.committed, end_offset)
        self.told_start = min(self.told_start, end_offset) if end_offset >= self.begin else 0
        self.begin = min(self.begin, end_offset)

    def newest(self) -> dict[bytes, int]:
        """Where each key was appended last."""
        return {key: at for at, (key, _) in sorted(self.pairs.items()) if at >= self.begin}


class NodeMachine(RuleBasedStateMachine):
    """Two topics of a partition each, in one directory."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[str, Known] = {}
        self.overrides: dict[str, Mapping[str, str]] = {}
        self.epoch = 0

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        found = self.runner.run(work)
        for task in self.tasks:
            assert not task.done(), task
        return found

    @initialize(seed=st.integers(0, 1000), rate=st.sampled_from([300, 3000, 1e9]))
    def begin(self, seed: int, rate: float) -> None:
        self.runner = asyncio.Runner(loop_factory=lambda: SimulatedLoop(seed))
        self.loop = self.runner.get_loop()
        self.disk = SimulatedFiles(self.now_ms)
        self.cleaning = CleanerSettings(threads=2, backoff_ms=300, bytes_per_second=rate)
        self.tasks: list[asyncio.Task[None]] = []
        self.run(self.start())

    def now_ms(self) -> int:
        now: int = self.loop.wall_ms()  # type: ignore[attr-defined]
        return now

    async def start(self) -> None:
        self.logs = LogManager(
            self.disk,
            [DIRECTORY],
            config({"min.cleanable.dirty.ratio": 0, "index.interval.bytes": 100}),
            lambda topic: self.overrides.get(topic, {}),
            self.now_ms,
            intervals=INTERVALS,
            random=Random(1),
        )
        await self.logs.load()
        self.logs.bound_deletion(self.committed)
        self.cleaner = LogCleaner(self.disk, self.logs, self.cleaning, self.committed, self.now_ms)
        self.tasks = [asyncio.create_task(one.run()) for one in (self.logs, self.cleaner)]
        await asyncio.sleep(0)
        for topic in ("t", "u"):
            self.known.setdefault(topic, Known())
            self.logs.create(topic, 0, None)

    async def abandon(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.wait(self.tasks)
        self.tasks = []

    def committed(self, topic: str, partition: int) -> int:
        return self.known[topic].committed

    def log(self, topic: str) -> Log:
        found = self.logs.get(topic, 0)
        assert found is not None
        return found

    @rule(topic=TOPICS, pairs=PAIRS, commits=st.booleans())
    def append(self, topic: str, pairs: list[tuple[bytes, bytes | None]], commits: bool) -> None:
        self.run(self._append(topic, pairs, commits))

    async def _append(self, topic: str, pairs: list[Any], commits: bool) -> None:
        built = build_batch(pairs, timestamp_ms=self.now_ms())
        known, log = self.known[topic], self.log(topic)
        appended = log.append(built, leader_epoch=self.epoch, is_client=True)
        for place, pair in enumerate(pairs):
            known.pairs[appended.base_offset + place] = pair
        if commits:
            known.committed = log.end_offset

    @rule(seconds=st.sampled_from([0.0, 0.0005, 0.003, 0.02, 0.4, 3.0, 30.0]))
    def wait(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    @rule(topic=TOPICS)
    def roll(self, topic: str) -> None:
        async def roll() -> None:
            if self.log(topic).segments.active.size:
                self.log(topic).roll()

        self.run(roll())

    @rule(topic=TOPICS, new=SETTINGS)
    def change_settings(self, topic: str, new: Mapping[str, str]) -> None:
        async def change() -> None:
            self.overrides[topic] = new
            self.logs.reconfigure(topic)

        self.run(change())

    @rule(topic=TOPICS, share=st.floats(0, 1))
    def truncate(self, topic: str, share: float) -> None:
        self.run(self._truncate(topic, share))

    async def _truncate(self, topic: str, share: float) -> None:
        log, known = self.log(topic), self.known[topic]
        offset = log.start_offset + int(share * (log.end_offset - log.start_offset))
        while not log.may_truncate_to(offset):
            await self.logs.write_recovery_points()
        log.truncate_to(offset)
        await log.flush()  # until then a power cut may bring back what was cut
        assert log.end_offset <= max(offset, log.start_offset)
        known.cut(log.end_offset)
        self.epoch += 1

    @rule(topic=TOPICS, above=st.integers(1, 5))
    def begin_anew(self, topic: str, above: int) -> None:
        """As a follower whose leader has deleted more than it has."""

        async def begin() -> None:
            log, known = self.log(topic), self.known[topic]
            log.truncate_fully(log.end_offset + above)
            await self.logs.write_recovery_points()
            known.committed = known.told_start = known.begin = log.end_offset

        self.run(begin())

    @rule(topic=TOPICS, share=st.floats(0, 1))
    def delete_records(self, topic: str, share: float) -> None:
        async def delete() -> None:
            log, known = self.log(topic), self.known[topic]
            offset = int(share * known.committed)
            log.advance_start(offset)
            await self.logs.write_log_starts()
            known.told_start = max(known.told_start, offset)

        self.run(delete())

    @rule(topic=TOPICS)
    def delete_topic(self, topic: str) -> None:
        async def delete() -> None:
            self.logs.delete(topic, 0)
            await self.logs.sync_deletions()
            self.known[topic] = Known()
            log = self.logs.create(topic, 0, None)
            await asyncio.sleep(0)
            await log.flush()

        self.run(delete())

    @rule()
    def restart(self) -> None:
        async def restart() -> None:
            await self.abandon()
            ends = {topic: self.log(topic).end_offset for topic in self.known}
            starts = self.starts()
            await self.logs.close()
            assert self.disk.exists(DIRECTORY / ".kafka_cleanshutdown")
            await self.start()
            self.start_no_higher(starts)
            for topic, end_offset in ends.items():
                self.settled(topic, end_offset)

        self.run(restart())

    @rule()
    def kill(self) -> None:
        async def kill() -> None:
            self.disk = self.disk.after_kill()
            ends = {topic: self.log(topic).end_offset for topic in self.known}
            starts = self.starts()
            await self.abandon()
            await self.start()
            self.start_no_higher(starts)
            for topic, end_offset in ends.items():
                self.settled(topic, end_offset)

        self.run(kill())

    @rule(seed=st.integers(0, 2**32))
    def cut_power(self, seed: int) -> None:
        async def cut() -> None:
            self.disk = self.disk.after_power_cut(Random(seed))
            safe = {topic: self.log(topic).recovery_point for topic in self.known}
            starts = self.starts()
            await self.abandon()
            await self.start()
            self.start_no_higher(starts)
            for topic, end_offset in safe.items():
                self.settled(topic, end_offset)
            self.epoch += 1

        self.run(cut())

    def starts(self) -> dict[str, int]:
        return {topic: self.log(topic).start_offset for topic in self.known}

    def start_no_higher(self, starts: Mapping[str, int]) -> None:
        """No log starts above where it was moved to: that of a deleted one may have been."""
        for topic, start_offset in starts.items():
            assert self.log(topic).start_offset <= start_offset

    def settled(self, topic: str, least: int) -> None:
        """After a start the log ends at ``least`` or above, wherever compaction left no hole."""
        log, known = self.log(topic), self.known[topic]
        held = [at for at in known.newest().values() if log.start_offset <= at < least]
        assert log.end_offset >= max(held, default=-1) + 1
        if log.end_offset >= known.begin:
            assert log.start_offset >= min(known.told_start, log.end_offset)
        known.cut(log.end_offset)

    @invariant()
    def holds_what_it_should(self) -> None:
        if not hasattr(self, "logs"):
            return
        assert self.logs.is_complete
        assert not self.cleaner.uncleanable
        for topic in self.known:
            self.check(self.log(topic), self.known[topic])

    def check(self, log: Log, known: Known) -> None:
        assert log.segments.view.bases[0] <= log.start_offset <= log.end_offset
        data = read_all(log)
        held = [record for at, _ in iterate(data) for record in records(data, at)]
        offsets = [piece.offset for piece in held]
        assert offsets == sorted(set(offsets))
        for piece in held:
            assert known.pairs[piece.offset] == (piece.key, piece.value)
        self.check_newest(log, known, set(offsets))
        for offset in offsets[::4]:
            if offset >= log.start_offset:
                found = log.read(offset, bytes_max=1, end=log.end_offset, at_least_one=True)
                assert offset in [record.offset for record in records(found)]

    def check_newest(self, log: Log, known: Known, offsets: set[int]) -> None:
        for key, at in known.newest().items():
            if at < log.start_offset or at in offsets:
                continue
            older = [one for one in offsets if known.pairs[one][0] == key]
            assert known.pairs[at][1] is None, f"{log}: lost {key!r} at {at}"
            assert not [one for one in older if one >= log.start_offset], f"{log}: back: {key!r}"

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            self.runner.run(self.abandon())
            self.runner.close()


TestNode = NodeMachine.TestCase
TestNode.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
