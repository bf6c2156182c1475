"""A log against a list: whatever happens, it is a prefix of what was appended, and long enough.

Appends, rolls, flushes, truncations, deletions, clean stops, killed processes, torn tails, power
cuts, a full disk and garbage in every file beside the batches, in any order, on the simulated disk
(docs/spec/reliability.md §3 P11 and P18).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from random import Random
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.broker.storage.cooperative import at_once
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.records.batch import build_batch, iterate, records
from tests.sim.simulated_files import SimulatedFiles
from tests.sim.simulated_loop import SimulatedLoop
from tests.storage.log_harness import T0, LogHarness, read_all

DIRECTORY = Path("/data/t-0")
TAILS = ["garbage", "zeros", "stale"]


class LogMachine(RuleBasedStateMachine):
    """One log, and the list of the values that it should hold."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner(loop_factory=lambda: SimulatedLoop(1))
        self.values: list[bytes] = []
        self.start = 0
        self.count = 0
        self.sequence = 0
        self.producer_epoch = 0

    def teardown(self) -> None:
        self.runner.close()

    def run(self, work: Coroutine[Any, Any, Any]) -> None:
        self.runner.run(work)

    @initialize(
        segment_bytes=st.integers(100, 2000),
        interval=st.integers(0, 500),
        segment_ms=st.integers(1, 100),
    )
    def begin(self, segment_bytes: int, interval: int, segment_ms: int) -> None:
        self.disk = SimulatedFiles(lambda: T0)
        self.harness = LogHarness(
            DIRECTORY,
            self.disk,
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            segment_ms=segment_ms,
        )

    @rule(sizes=st.lists(st.integers(0, 300), min_size=1, max_size=4), time=st.integers(0, 300))
    def append(self, sizes: list[int], time: int) -> None:
        values = [b"%d." % (self.count + i) + b"." * size for i, size in enumerate(sizes)]
        self.count += len(values)
        built = build_batch(
            [(None, value) for value in values],
            timestamp_ms=T0 + time,
            producer_id=7,
            producer_epoch=self.producer_epoch,
            base_sequence=self.sequence,
        )
        self.sequence += len(values)
        appended = self.harness.log.append(built, leader_epoch=self.producer_epoch, is_client=True)
        assert appended.base_offset == len(self.values)
        self.values += values

    @precondition(lambda self: self.harness.log.segments.active.size > 0)
    @rule()
    def roll(self) -> None:
        self.harness.log.roll()

    @rule()
    def flush(self) -> None:
        self.run(self.harness.log.flush())
        assert self.harness.log.recovery_point == len(self.values)

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        self.start = data.draw(st.integers(self.start, len(self.values)))
        self.harness.log.advance_start(self.start)

    @rule()
    def retain(self) -> None:
        """What lies below the start goes, by whole segments."""
        log = self.harness.log
        bases = log.segments.view.bases
        log.delete_oldest(sum(base <= self.start for base in bases[1:]))
        self.run(log.flush())

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, len(self.values)))
        self.harness.log.truncate_to(offset)
        self.run(self.harness.log.flush())
        self.resume(self.harness.log.end_offset)

    @rule()
    def restart(self) -> None:
        self.harness.recovery_point = len(self.values)
        self.run(self.harness.restart(self.start))
        assert self.harness.log.end_offset == len(self.values)

    @rule(garbage=st.binary(max_size=200), kind=st.sampled_from(TAILS), lag=st.integers(0, 9))
    def kill(self, garbage: bytes, kind: str, lag: int) -> None:
        active = self.harness.log.segments.active
        file = self.disk.open_append(active.path(".log"))
        if kind == "zeros":
            garbage = bytes(len(garbage))
        elif kind == "stale" and active.size:
            garbage = active.read(0, next(iter(active.entries())).size)
        file.append(garbage)
        self.crash(lag)
        assert self.harness.log.end_offset == len(self.values)

    @rule(data=st.data(), garbage=st.binary(max_size=100), is_clean=st.booleans())
    def spoil(self, data: st.DataObject, garbage: bytes, *, is_clean: bool) -> None:
        """Everything beside the batches may be garbage at a start."""
        if is_clean:
            self.run(self.harness.log.close())
            self.harness.recovery_point = len(self.values)
        else:
            self.run(self.harness.log.flush())
            self.harness.recovery_point = self.harness.log.recovery_point
        names = [name for name in self.disk.list_directory(DIRECTORY) if not name.endswith(".log")]
        for name in data.draw(st.lists(st.sampled_from([*names, "quarantine"]), max_size=3)):
            content = data.draw(st.sampled_from([garbage, b"", bytes(len(garbage))]))
            self.disk.write_atomically(DIRECTORY / name, content)
        self.run(self.harness.reload(is_clean=is_clean, start_offset=self.start))
        assert self.harness.log.end_offset == len(self.values)

    @rule(is_killed=st.booleans(), lag=st.integers(0, 9))
    def fill_the_disk(self, *, is_killed: bool, lag: int) -> None:
        """Nothing is appended then; everything is read, also by a process that starts now."""
        self.disk.is_full = True
        one = build_batch([(None, b"x")], timestamp_ms=T0)
        with pytest.raises(Refused) as refused:
            self.harness.log.append(one, leader_epoch=self.producer_epoch, is_client=True)
        assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        if is_killed:
            self.crash(lag)
        self.holds_what_was_appended()
        self.disk.is_full = False
        if self.harness.log.is_full:
            at_once(self.harness.log.verify_again())
        assert self.harness.log.end_offset == len(self.values)

    @rule(seed=st.integers(0, 2**32), lag=st.integers(0, 9))
    def power_cut(self, seed: int, lag: int) -> None:
        safe = self.harness.log.recovery_point
        self.disk = self.harness.files = self.disk.after_power_cut(Random(seed))
        self.crash(lag)
        assert self.harness.log.end_offset >= safe
        self.resume(self.harness.log.end_offset)

    def crash(self, lag: int) -> None:
        """Start again; the checkpoint may be older than the recovery point, never newer."""
        self.harness.recovery_point = max(0, self.harness.log.recovery_point - lag)
        self.run(self.harness.crash(self.start))

    def resume(self, end_offset: int) -> None:
        """The log is shorter: a new leader epoch and a new producer epoch go on from there."""
        del self.values[end_offset:]
        self.start = min(self.start, end_offset)
        self.producer_epoch += 1
        self.sequence = 0

    @invariant()
    def holds_what_was_appended(self) -> None:
        if not hasattr(self, "harness"):
            return
        data = read_all(self.harness.log)
        held = [record for at, _ in iterate(data) for record in records(data, at)]
        held = [piece for piece in held if piece.offset >= self.start]
        assert self.harness.log.start_offset == self.start
        assert [piece.offset for piece in held] == list(range(self.start, len(self.values)))
        assert [piece.value for piece in held] == self.values[self.start :]

    @invariant()
    def finds_every_batch(self) -> None:
        if not hasattr(self, "harness"):
            return
        log = self.harness.log
        for offset in range(self.start, len(self.values), 3):
            data = log.read(offset, bytes_max=1, end=log.end_offset, at_least_one=True)
            assert any(record.offset == offset for record in records(data))

    @invariant()
    def knows_its_producer(self) -> None:
        if not hasattr(self, "harness") or not self.sequence or self.start == len(self.values):
            return  # a start forgets the producers of a log without records, as Kafka's does
        gap = build_batch(
            [(None, b"x")],
            timestamp_ms=T0,
            producer_id=7,
            producer_epoch=self.producer_epoch,
            base_sequence=self.sequence + 1,
        )
        with pytest.raises(Refused) as refused:
            self.harness.log.append(gap, leader_epoch=self.producer_epoch, is_client=True)
        assert refused.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


TestLog = LogMachine.TestCase
TestLog.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


class LongLogMachine(LogMachine):
    """The same, more often and longer."""


TestLogAtLength = pytest.mark.nightly(LongLogMachine.TestCase)
TestLogAtLength.settings = settings(max_examples=1500, stateful_step_count=50, deadline=None)
