"""A compacted log against the plain list of what was put into it.

Records, tombstones, transactions, rolls, passes, restarts, and processes that die between any two
changes of the disk, in any order: a reader from the start ends with the same values.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.broker.settings.cleaner_settings import CleanerSettings
from barnabas.protocol.records.compaction.offset_map import ENTRY_BYTES
from barnabas.protocol.records.control import Marker
from tests.sim.simulated_loop import SimulatedLoop
from tests.storage.compaction.compaction_harness import CompactionHarness, Pair, newest
from tests.storage.log_harness import T0
from tests.storage.stopping_files import Died, StoppingFiles, copied, cut

KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"a key that is longer than a digest", b""])
VALUES = st.one_of(st.none(), st.binary(max_size=40))
PAIRS = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=4)


class CompactionMachine(RuleBasedStateMachine):
    """One log, and everything that ever counted in it."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner(loop_factory=lambda: SimulatedLoop(1))
        self.pairs: list[Pair] = []
        self.sequence = 0
        self.tombstones: dict[bytes | None, tuple[int, int]] = {}
        """Of the keys that were deleted last of all: the tombstone's offset, and its time."""

    def teardown(self) -> None:
        self.runner.close()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    @initialize(
        segment_bytes=st.integers(100, 1500),
        interval=st.integers(0, 300),
        retention_ms=st.integers(0, 50),
        keys=st.integers(1, 10),
        buffer_bytes=st.integers(0, 500),
    )
    def begin(
        self, segment_bytes: int, interval: int, retention_ms: int, keys: int, buffer_bytes: int
    ) -> None:
        self.overrides: dict[str, Any] = {
            "segment_bytes": segment_bytes,
            "index_interval_bytes": interval,
            "delete_retention_ms": retention_ms,
            "settings": CleanerSettings(
                map_bytes=keys * ENTRY_BYTES, map_load_factor=1, buffer_bytes=buffer_bytes
            ),
        }
        self.disk = StoppingFiles(lambda: T0)
        self.now_ms = T0
        self.open()

    def open(self) -> None:
        self.harness = CompactionHarness(Path("/data"), self.disk, **self.overrides)
        self.harness.now_ms = self.now_ms
        self.run(self.harness.open())

    @rule(pairs=PAIRS, codec=st.integers(0, 4))
    def put(self, pairs: list[Pair], codec: int) -> None:
        self.note(pairs)
        self.harness.put(*pairs, codec=codec)
        self.pairs += pairs

    def note(self, pairs: list[Pair]) -> None:
        """They are about to be appended, for good."""
        for offset, (key, value) in enumerate(pairs, self.harness.log.end_offset):
            self.tombstones.pop(key, None)
            if value is None:
                self.tombstones[key] = offset, self.now_ms

    @rule(pairs=PAIRS)
    def put_numbered(self, pairs: list[Pair]) -> None:
        self.note(pairs)
        self.harness.put(*pairs, producer_id=9, producer_epoch=0, base_sequence=self.sequence)
        self.sequence += len(pairs)
        self.pairs += pairs

    @rule(pairs=PAIRS, between=PAIRS, marker=st.sampled_from(Marker), rolls=st.booleans())
    def transact(self, pairs: list[Pair], between: list[Pair], marker: Marker, rolls: bool) -> None:
        last = [producer.batches for one, producer in self.harness.log.producers if one == 7]
        sequence = last[0][-1].last_sequence + 1 if last and last[0] else 0
        self.harness.put(
            *pairs,
            producer_id=7,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=True,
        )
        if rolls:
            self.harness.roll()
        for key, _ in pairs:
            self.tombstones.pop(key, None)
        self.note(between)
        self.harness.put(*between)
        self.harness.end_transaction(7, marker)
        if marker is Marker.COMMIT:
            self.pairs += pairs
        self.pairs += between

    @precondition(lambda self: self.harness.log.segments.active.size > 0)
    @rule()
    def roll(self) -> None:
        self.harness.roll()

    @rule(passed=st.integers(1, 100))
    def wait(self, passed: int) -> None:
        self.now_ms += passed
        self.harness.now_ms = self.now_ms

    @rule()
    def clean(self) -> None:
        before = self.harness.first_dirty
        if self.run(self.harness.clean()):
            assert self.harness.first_dirty > before
        assert not self.harness.cleaner.uncleanable

    @rule()
    def restart(self) -> None:
        self.run(self.harness.close())
        self.open()

    @rule(steps=st.integers(0, 60))
    def die_while_cleaning(self, steps: int) -> None:
        self.interrupt(steps, copied)

    @rule(steps=st.integers(0, 60), seed=st.integers(0, 1000))
    def lose_power_while_cleaning(self, steps: int, seed: int) -> None:
        self.run(self.harness.log.flush())
        self.run(self.harness.logs.write_recovery_points())
        self.interrupt(steps, lambda disk: cut(disk, seed))

    def interrupt(self, steps: int, after: Callable[[StoppingFiles], StoppingFiles]) -> None:
        self.disk.arm(steps)
        try:
            self.run(self.harness.clean())
        except Died:
            pass
        self.disk.is_dead = True
        self.disk = after(self.disk)
        self.open()

    @invariant()
    def reads_as_the_plain_list(self) -> None:
        if not hasattr(self, "harness"):
            return
        expected = newest(self.pairs)
        assert self.view() == expected

    @invariant()
    def keeps_tombstones_for_slow_readers(self) -> None:
        """For ``delete.retention.ms`` after a pass, which cannot be before they were written."""
        if not hasattr(self, "harness"):
            return
        held = set(self.harness.offsets())
        since = self.now_ms - self.overrides["delete_retention_ms"]
        assert not {at for at, when in self.tombstones.values() if when > since and at not in held}

    def view(self) -> dict[bytes | None, bytes]:
        """As a reader of committed records sees it."""
        log = self.harness.log
        aborted = [
            transaction
            for one in log.segments.view.segments
            for transaction in one.indexes.transactions
        ]
        return newest(
            [
                (key, value)
                for offset, producer_id, key, value in self.harness.told()
                if not any(
                    transaction.producer_id == producer_id
                    and transaction.first_offset <= offset < transaction.last_offset
                    for transaction in aborted
                )
            ]
        )

    @invariant()
    def finds_every_offset(self) -> None:
        if not hasattr(self, "harness"):
            return
        log = self.harness.log
        held = self.harness.offsets()
        assert held == sorted(set(held))
        for offset in held[::3]:
            data = log.read(offset, bytes_max=1, end=log.end_offset, at_least_one=True)
            assert offset in [producer_id for producer_id, _, _, _ in self.harness.told(data)]


TestCompaction = CompactionMachine.TestCase
TestCompaction.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
