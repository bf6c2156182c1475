"""A standby against the plainest fold, whatever happens to its replica and its node.

Source: docs/spec/coordinator.md §3.4 to §3.4.2; §3.9 check C3.9.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.coordinator import incremental_capture, replay
from barnabas.coordinator.ports import INCREMENT, SNAPSHOT
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.offsets_topic import (
    GroupRecord,
    group_key,
    group_value,
    offset_key,
    offset_value,
    old_offset_key,
    parse_key,
)
from barnabas.protocol.records import batch
from barnabas.protocol.records.batch import build_batch, build_batch_of
from barnabas.protocol.records.control import Marker, encode_marker
from tests.coordinator.coordinator_harness import CoordinatorHarness, partition_of
from tests.coordinator.memory_log import MemoryLog, MemoryPartition
from tests.coordinator.offsets_model import content, folded
from tests.sim.simulated_loop import SimulatedLoop

G = partition_of("g")
PUT_BY = replay.LATEST_MAX
INCREMENT_KEYS = incremental_capture.KEYS_MAX
GROUPS = [name for name in (f"g{n}" for n in range(40)) if partition_of(name) == G][:2]

WRITES = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "old put", "drop", "drop", "group", "no group", "odd"]),
        st.sampled_from(GROUPS),
        st.integers(0, 2),
        st.integers(0, 99),
    ),
    min_size=1,
    max_size=6,
)


def records_of(kind: str, group: str, index: int, number: int) -> list[tuple[bytes, bytes | None]]:
    """Who deletes an offset deletes it under both keys: to compaction they are two."""
    written = [record(kind, group, index, number)]
    if kind == "drop":
        written.append((old_offset_key(group, "orders", index), None))
    return written


def record(kind: str, group: str, index: int, number: int) -> tuple[bytes, bytes | None]:
    value = offset_value(number, 0, "note" * (number % 2), 1_795_219_200_000)
    return {
        "put": (offset_key(group, "orders", index), value),
        "old put": (old_offset_key(group, "orders", index), value),
        "drop": (offset_key(group, "orders", index), None),
        "group": (
            group_key(group),
            group_value(
                GroupRecord(
                    protocol_type="consumer",
                    generation=number,
                    current_state_timestamp=1_795_219_200_000,
                )
            ),
        ),
        "no group": (group_key(group), None),
        "odd": (b"\0\x63what comes later", b"?"),
    }[kind]


class StandbyMachine(RuleBasedStateMachine):
    """One replica of one node: followed, led, cut, compacted, taken away, started again."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = SimulatedLoop(1)
        self.log = MemoryLog(self.loop)
        self.log.is_replicated = False
        self.epoch = 0
        self.aside: tuple[str, bytes] | None = None

    @initialize(keys=st.sampled_from([0, 3, 4096]), increment=st.sampled_from([4, 4096, 4096]))
    def begin(self, keys: int, increment: int) -> None:
        replay.LATEST_MAX = keys  # type: ignore[misc]
        incremental_capture.KEYS_MAX = increment  # type: ignore[misc]
        self.start()

    def start(self) -> None:
        """A process, told at once that it follows."""
        self.harness = CoordinatorHarness(
            loop=self.loop, log=self.log, is_elected=False, retention_min=10_000_000
        )
        self.harness.coordinator.standbys.tail_min = 1
        self.hosted.is_gone = False
        self.hosted.leader_epoch = -1
        self.epoch += 1
        self.harness.coordinator.on_resigned(G, self.epoch)

    def teardown(self) -> None:
        replay.LATEST_MAX = PUT_BY  # type: ignore[misc]
        incremental_capture.KEYS_MAX = INCREMENT_KEYS  # type: ignore[misc]
        if hasattr(self, "harness"):
            self.harness.close()

    @property
    def hosted(self) -> MemoryPartition:
        return self.log.partition(G)

    @property
    def is_led(self) -> bool:
        return self.hosted.leader_epoch >= 0

    @property
    def is_followed(self) -> bool:
        return not self.is_led and self.log.replica(G) is not None

    def bounds(self) -> list[int]:
        """Every offset where a batch ends, and the log's start."""
        return [self.hosted.start, *map(batch.next_offset, self.hosted.batches)]

    def last_stable_offset(self) -> int:
        """Where the oldest open transaction begins; the log's end without one."""
        begun: dict[int, int] = {}
        for data in self.hosted.batches:
            if batch.is_control(data):
                begun.pop(batch.producer_id(data), None)
            elif batch.is_transactional(data):
                begun.setdefault(batch.producer_id(data), batch.base_offset(data))
        return min(begun.values(), default=self.hosted.end)

    # -- the log of a follower -------------------------------------------------------------------

    @precondition(lambda self: self.is_followed)
    @rule(writes=WRITES, producer=st.sampled_from([-1, -1, 7, 8]), codec=st.sampled_from([0, 3]))
    def append(self, writes: Any, producer: int, codec: int) -> None:
        pairs = [pair for write in writes for pair in records_of(*write)]
        if producer >= 0:
            pairs = [pair for pair in pairs if pair[0][1] in (0, 1)] or [
                record("put", GROUPS[0], 0, 1)
            ]
            fields = {"producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
            data = build_batch(pairs, timestamp_ms=1, codec=codec, producer_id=producer, **fields)  # type: ignore[arg-type]
        else:
            data = build_batch(pairs, timestamp_ms=1, codec=codec)
        self.hosted.follow(data, self.epoch)

    @precondition(lambda self: self.is_followed)
    @rule(marker=st.sampled_from(list(Marker)), producer=st.sampled_from([7, 8]))
    def end_transaction(self, marker: Marker, producer: int) -> None:
        data = build_batch(
            [encode_marker(marker, 0)],
            timestamp_ms=1,
            producer_id=producer,
            producer_epoch=0,
            is_transactional=True,
            is_control=True,
        )
        self.hosted.follow(data, self.epoch)

    @precondition(lambda self: self.is_followed)
    @rule(which=st.integers(0, 1000))
    def mark(self, which: int) -> None:
        bounds = self.bounds()
        self.hosted.follow_mark(bounds[which % len(bounds)])

    @precondition(lambda self: self.is_followed)
    @rule()
    def mark_all(self) -> None:
        self.hosted.follow_mark(self.hosted.end)

    @precondition(lambda self: self.is_followed)
    @rule(which=st.integers(0, 1000), is_unclean=st.booleans())
    def truncate(self, which: int, is_unclean: bool) -> None:
        bounds = self.bounds()
        offset = bounds[which % len(bounds)]
        if not is_unclean:
            offset = max(offset, self.hosted.high_watermark)
        self.hosted.truncate(offset)
        self.epoch += 1

    @precondition(lambda self: not self.hosted.is_gone)
    @rule(which=st.integers(0, 1000))
    def lose_the_oldest(self, which: int) -> None:
        bounds = [bound for bound in self.bounds() if bound <= self.hosted.high_watermark]
        if self.is_led or not bounds:
            return
        self.hosted.start = start = bounds[which % len(bounds)]
        kept = [data for data in self.hosted.batches if batch.next_offset(data) > start]
        self.hosted.batches = kept
        self.hosted.follow_mark(0)

    @rule()
    def roll(self) -> None:
        self.hosted.segment_base = self.hosted.end

    @rule()
    def compact(self) -> None:
        """Keep the last plain record of each key; tombstones go the second time.

        Never of the last batch: a segment is rolled by an append, so the active one has a batch.
        Never from an open transaction on: its marker would bring back what was deleted meanwhile.
        """
        hosted, latest = self.hosted, {}
        end = min(hosted.segment_base, hosted.high_watermark, self.last_stable_offset())
        if hosted.batches:
            end = min(end, batch.base_offset(hosted.batches[-1]))
        old = [data for data in hosted.batches if batch.next_offset(data) <= end]
        for data in old:
            if not batch.is_transactional(data):
                latest.update({record.key: record.offset for record in batch.records(data)})
        new = []
        for data in old:
            if batch.is_control(data):
                new.append(data)
                continue
            is_transactional = batch.is_transactional(data)
            kept = [
                each
                for each in batch.records(data)
                if latest.get(each.key, -1) <= each.offset
                and (is_transactional or each.value is not None or each.offset >= hosted.cleaned)
            ]
            if kept:
                again = build_batch_of(
                    kept,
                    producer_id=batch.producer_id(data),
                    is_transactional=is_transactional,
                )
                batch.assign(again, kept[0].offset, batch.leader_epoch(data))
                new.append(again)
        hosted.batches[: len(old)] = new
        hosted.cleaned = max(hosted.cleaned, end)

    # -- roles and lives -------------------------------------------------------------------------

    @precondition(lambda self: self.is_followed)
    @rule(is_replicated=st.booleans())
    def elect(self, is_replicated: bool) -> None:
        self.epoch += 1
        self.hosted.epochs.append((self.epoch, self.hosted.end))
        self.harness.elect(G, self.epoch)
        if is_replicated:
            self.log.replicate(G)

    @precondition(lambda self: self.is_led)
    @rule(group=st.sampled_from(GROUPS), index=st.integers(0, 2), offset=st.integers(0, 99))
    def commit(self, group: str, index: int, offset: int) -> None:
        self.harness.commit(offset, group=group, index=index)
        self.log.replicate(G)

    @precondition(lambda self: self.is_led)
    @rule()
    def replicate(self) -> None:
        self.log.replicate(G)

    @precondition(lambda self: self.is_led)
    @rule()
    def resign(self) -> None:
        self.epoch += 1
        self.log.resign(G)
        self.harness.coordinator.on_resigned(G, self.epoch)

    @precondition(lambda self: not self.hosted.is_gone)
    @rule()
    def take_away(self) -> None:
        """The replica moves to another node, and comes back empty."""
        self.log.resign(G)
        self.hosted.is_gone = True
        self.harness.coordinator.on_resigned(G, None)
        assert len(self.harness.coordinator.standbys) == 0
        del self.log.partitions[G]
        self.epoch += 1
        self.harness.coordinator.on_resigned(G, self.epoch)

    @precondition(lambda self: self.is_followed)
    @rule(writes=WRITES)
    def stop_before_the_leader_dies(self, writes: Any) -> None:
        """What the leader had sent and nobody committed is kept by no file of a stop in order."""
        for write in writes:
            self.hosted.follow(build_batch(records_of(*write), timestamp_ms=1), self.epoch)
        self.loop.run_until_complete(self.harness.coordinator.save())
        self.hosted.truncate(max(self.hosted.start, self.hosted.high_watermark))
        self.epoch += 1
        self.restart(is_clean=False, lost=0)

    @rule(is_clean=st.booleans(), lost=st.integers(0, 5))
    def restart(self, is_clean: bool, lost: int) -> None:
        self.log.resign(G)
        if is_clean:
            self.loop.run_until_complete(self.harness.coordinator.save())
        self.hosted.watcher = None
        self.harness._running.cancel()
        self.harness.turn()
        if not is_clean and lost:
            bounds = self.bounds()
            self.hosted.truncate(bounds[max(0, len(bounds) - lost)])
            self.epoch += 1
        self.start()

    @precondition(lambda self: self.is_led or self.is_followed)
    @rule()
    def save(self) -> None:
        """As at a stop that somebody thinks better of; without transactions it is an increment."""
        standbys = self.harness.coordinator.standbys
        self.loop.run_until_complete(standbys.save())
        standbys._is_stopping = False

    @precondition(lambda self: self.hosted.files)
    @rule(name=st.sampled_from([SNAPSHOT, INCREMENT]))
    def lose_a_snapshot(self, name: str) -> None:
        """One may be older than the other, or alone: nothing is renamed together."""
        self.hosted.files.pop(name, None)

    @precondition(lambda self: self.hosted.files)
    @rule(name=st.sampled_from([SNAPSHOT, INCREMENT]))
    def keep_a_snapshot_aside(self, name: str) -> None:
        if name in self.hosted.files:
            self.aside = name, self.hosted.files[name]

    @precondition(lambda self: self.aside)
    @rule()
    def find_the_old_snapshot_again(self) -> None:
        """A power cut brought back what was replaced, or deleted when the log was cut."""
        assert self.aside is not None
        self.hosted.files[self.aside[0]] = self.aside[1]

    @precondition(lambda self: self.hosted.files)
    @rule(where=st.integers(0, 10_000), bit=st.integers(0, 7))
    def damage_a_snapshot(self, where: int, bit: int) -> None:
        names = sorted(self.hosted.files)
        name = names[where % len(names)]
        data = bytearray(self.hosted.files[name])
        data[where // len(names) % len(data)] ^= 1 << bit
        self.hosted.files[name] = bytes(data)

    @precondition(lambda self: self.is_led)
    @rule()
    def let_a_minute_pass(self) -> None:
        self.log.replicate(G)
        self.harness.wait(11)

    # -- what must hold --------------------------------------------------------------------------

    @invariant()
    def cache_and_fold_are_equal(self) -> None:
        if not hasattr(self, "harness"):
            return
        self.harness.wait(0.2)
        hosted = self.hosted
        if self.is_followed:
            kept_state = self.harness.coordinator.standbys[G]
            # a load that lost leadership has left what it read above the mark
            assert hosted.high_watermark <= kept_state.position <= hosted.end
            assert content(kept_state.fold) == folded(hosted.batches, kept_state.position)
        elif hosted.high_watermark == hosted.end:
            expected = folded(hosted.batches, hosted.end)
            served = {
                (group.group_id, *partition): (commit.offset, commit.record_offset)
                for group in self.harness.coordinator.registry
                for partition, commit in group.offsets.committed.items()
            }
            assert served == expected.offsets
            asked = self.harness.fetch(group=GROUPS[0], topics={"orders": [0]})
            assert asked.code is ErrorCode.NONE

    @invariant()
    def nothing_is_left_behind(self) -> None:
        if hasattr(self, "harness"):
            assert len(self.harness.coordinator.standbys) == int(self.is_followed)


assert all(parse_key(record("put", name, 0, 0)[0]) for name in GROUPS)
TestStandby = StandbyMachine.TestCase
TestStandby.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
