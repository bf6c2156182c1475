"""A follower is ready to coordinate: nothing is read again, nothing stays behind.

Source: docs/spec/coordinator.md §3.4.2.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from barnabas.coordinator import incremental_capture, standby_snapshots, uncommitted_batches
from barnabas.coordinator.ports import SNAPSHOT
from barnabas.coordinator.snapshot_files import saved
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.offsets_topic import offset_key, offset_value
from barnabas.protocol.records.batch import build_batch
from tests.coordinator.coordinator_harness import CoordinatorHarness, partition_of
from tests.coordinator.memory_log import MemoryLog, MemoryPartition, MemoryReplica
from tests.coordinator.test_loading import TickingLoop
from tests.sim.simulated_loop import SimulatedLoop

G = partition_of("g")


def commits(*offsets: int, index: int = 0) -> bytearray:
    return build_batch(
        [(offset_key("g", "orders", index), offset_value(offset, 0, "", 1)) for offset in offsets],
        timestamp_ms=1,
    )


class Following(CoordinatorHarness):
    """A node that follows the partition of group ``g``."""

    def __init__(self, loop: SimulatedLoop | None = None) -> None:
        loop = loop or SimulatedLoop(1)
        log = MemoryLog(loop)
        log.is_replicated = False
        super().__init__(loop=loop, log=log, is_elected=False)
        self.coordinator.on_resigned(G, 0)

    @property
    def hosted(self) -> MemoryPartition:
        return self.log.partition(G)

    def append(self, *offsets: int, index: int = 0) -> None:
        self.hosted.follow(commits(*offsets, index=index))

    def fail_over(self) -> None:
        """Be elected; the other replicas have everything."""
        self.elect(G, 1)
        self.turn()
        self.log.replicate(G)
        self.turn()


@pytest.fixture
def node() -> Any:
    node = Following()
    yield node
    node.close()


def test_after_a_failover_the_first_fetch_is_answered_without_reading_the_log(
    node: Following,
) -> None:
    for offset in range(100):
        node.append(offset)
        node.hosted.follow_mark(offset)
        node.turn(1)
    node.turn()
    node.hosted.reads = 0
    node.fail_over()
    assert node.committed() == 99
    assert node.hosted.reads == 0


def test_what_is_not_committed_is_not_in_the_shadow_and_served_after_one_round_trip(
    node: Following,
) -> None:
    node.append(1)
    node.hosted.follow_mark(1)
    node.append(2)
    node.turn()
    assert node.coordinator.standbys[G].position == 1
    node.elect(G, 1)
    node.turn()
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert node.fetch(topics={"orders": [0]}).code is loading
    node.log.replicate(G)
    assert node.committed() == 2


def test_a_truncation_takes_what_was_not_committed_out_of_the_deltas(node: Following) -> None:
    node.append(1)
    node.hosted.follow_mark(1)
    node.append(2)
    node.append(3, index=1)
    node.turn()
    node.hosted.truncate(1)
    node.append(4)
    node.fail_over()
    assert (node.committed(), node.committed(index=1)) == (4, -1)
    assert node.hosted.reads == 0


def test_a_truncation_below_what_is_committed_makes_the_shadow_anew(node: Following) -> None:
    """Only an election outside of the in-sync set does that."""
    node.append(1)
    node.append(2)
    node.hosted.follow_mark(2)
    node.turn()
    node.hosted.truncate(1)
    node.wait(0.1)
    assert node.coordinator.standbys[G].position == 1
    node.fail_over()
    assert node.committed() == 1


def test_batches_that_nobody_told_of_are_read_from_the_log(node: Following) -> None:
    """An append that fails in the middle has appended something."""
    node.append(1)
    node.hosted.append(commits(2))
    node.append(3, index=1)
    node.hosted.follow_mark(3)
    node.turn()
    assert node.hosted.reads > 0
    node.fail_over()
    assert (node.committed(), node.committed(index=1)) == (2, 3)


def test_deltas_are_bounded(node: Following, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uncommitted_batches, "BYTES_MAX", 300)
    for offset in range(50):
        node.append(offset)
    assert len(node.coordinator.standbys[G].uncommitted) < 5
    node.hosted.follow_mark(50)
    node.wait(0.1)
    node.fail_over()
    assert node.committed() == 49


def test_a_load_that_loses_leadership_hands_back_what_it_has_read(node: Following) -> None:
    node.append(1)
    node.hosted.follow_mark(1)
    node.turn()
    node.append(2)
    node.elect(G, 1)
    node.turn()
    node.log.resign(G)
    node.coordinator.on_resigned(G, 2)
    assert node.coordinator.standbys[G].position == 2
    node.hosted.truncate(1)
    node.wait(0.1)
    assert node.coordinator.standbys[G].position == 1


def test_a_served_partition_is_folded_anew_when_it_is_followed_again(node: Following) -> None:
    node.append(1)
    node.fail_over()
    node.commit(5)
    node.log.replicate(G)
    node.log.resign(G)
    node.coordinator.on_resigned(G, 2)
    node.wait(0.1)
    node.hosted.reads = 0
    node.elect(G, 3)
    node.turn()
    assert node.committed() == 5
    assert node.hosted.reads == 0


def test_a_log_that_cannot_be_folded_has_no_standby_and_the_others_have(
    node: Following, caplog: pytest.LogCaptureFixture
) -> None:
    other = (G + 1) % 4
    node.coordinator.on_resigned(other, 0)
    node.hosted.follow(build_batch([(offset_key("g", "orders", 0), b"\0\x09bad")], timestamp_ms=1))
    node.hosted.follow_mark(1)
    node.log.partition(other).follow(commits(1))
    node.log.partition(other).follow_mark(1)
    node.wait(0.1)
    assert "no standby" in caplog.text
    assert len(node.coordinator.standbys) == 1
    assert node.coordinator.standbys[other].position == 1


def test_a_warm_partition_waits_for_no_cold_one() -> None:
    node = Following(TickingLoop())
    cold = (G + 1) % 4
    pairs = [
        (offset_key(f"group {number}", "orders", 0), offset_value(1, 0, "", 1))
        for number in range(5000)
    ]
    for _ in range(2):
        node.log.partition(cold).append(build_batch(pairs, timestamp_ms=1))
    node.log.replicate(cold)
    node.append(7)
    node.hosted.follow_mark(1)
    node.turn()
    node.elect(cold, 1)
    node.elect(G, 1)
    node.turn(3)
    node.log.replicate(G)
    assert node.committed() == 7
    assert node.coordinator.registry.is_loading
    node.close()


@pytest.mark.parametrize("how", ["deleted", "disk failed", "stopped"])
def test_a_replica_that_goes_leaves_no_shadow_behind(node: Following, how: str) -> None:
    node.append(1)
    node.append(2)
    node.hosted.follow_mark(1)
    node.turn()
    hosted = node.hosted
    state = weakref.ref(node.coordinator.standbys[G].fold)
    hosted.is_gone = True
    if how == "stopped":
        node.coordinator.standbys.close()
    else:
        node.coordinator.on_resigned(G, None if how == "deleted" else 1)
    node.turn()
    assert len(node.coordinator.standbys) == 0
    assert hosted.watcher is None
    gc.collect()
    assert state() is None


def test_groups_that_are_gone_leave_nothing_in_a_shadow(node: Following) -> None:
    for number in range(200):
        key = offset_key(f"g{number}", "orders", 0)
        node.hosted.follow(build_batch([(key, offset_value(1, 0, "", 1))], timestamp_ms=1))
        node.hosted.follow(build_batch([(key, None)], timestamp_ms=1))
    node.hosted.follow_mark(400)
    node.wait(0.1)
    state = node.coordinator.standbys[G]
    assert state.position == 400
    assert state.fold.offsets == {}
    assert len(state.uncommitted) == 0 or state.uncommitted.take(400) is None


def test_a_leader_writes_a_snapshot_when_the_log_since_the_last_one_is_long(
    harness: CoordinatorHarness,
) -> None:
    harness.coordinator.standbys.tail_max = 10
    hosted = harness.log.partition(G)
    for offset in range(9):
        harness.commit(offset)
    harness.wait(standby_snapshots.CHECK_LED_S + 1)
    assert hosted.snapshot is None
    harness.commit(9)
    harness.wait(standby_snapshots.CHECK_LED_S + 1)
    first = hosted.snapshot
    assert first is not None
    harness.commit(10)
    harness.wait(standby_snapshots.CHECK_LED_S + 1)
    assert hosted.snapshot is first
    harness.reload()
    assert harness.committed() == 10


def test_a_follower_writes_a_snapshot_when_the_log_since_the_last_one_is_long(
    node: Following,
) -> None:
    node.coordinator.standbys.tail_max = 10
    for offset in range(25):
        node.append(offset)
        node.hosted.follow_mark(offset)
        node.turn(1)
    node.wait(1)
    assert saved(MemoryReplica(node.log, node.hosted)).offset in range(10, 25)


def test_a_standby_that_failed_still_drops_its_files_with_the_log(node: Following) -> None:
    """Else a compacted log that was emptied and fetched anew grows past a file of the old one."""
    node.coordinator.standbys.tail_max = 10
    for offset in range(25):
        node.append(offset)
        node.hosted.follow_mark(offset + 1)
        node.turn(1)
    node.wait(1)
    assert node.hosted.snapshot is not None
    node.hosted.follow(build_batch([(offset_key("g", "orders", 0), b"\0\x09bad")], timestamp_ms=1))
    node.hosted.follow_mark(26)
    node.wait(1)
    assert len(node.coordinator.standbys) == 0
    assert node.hosted.snapshot is not None
    node.hosted.truncate(0)
    assert node.hosted.files == {}
    node.coordinator.on_resigned(G, 1)
    assert len(node.coordinator.standbys) == 1, "followed anew"
    node.append(7)
    node.fail_over()
    assert node.committed() == 7


def test_nothing_watches_after_a_standby_that_failed_once_the_node_stops(node: Following) -> None:
    node.hosted.follow(build_batch([(offset_key("g", "orders", 0), b"\0\x09bad")], timestamp_ms=1))
    node.hosted.follow_mark(1)
    node.wait(1)
    assert len(node.coordinator.standbys) == 0
    assert node.hosted.watcher is not None
    node.coordinator.standbys.close()
    assert node.hosted.watcher is None


def test_a_follower_writes_no_snapshot_of_a_log_that_is_damaged(node: Following) -> None:
    node.append(0)
    node.hosted.follow_mark(1)
    node.turn()
    node.coordinator.standbys.tail_max = 10
    node.hosted.damage(0)
    for offset in range(1, 25):
        node.append(offset)
        node.hosted.follow_mark(offset + 1)
        node.turn(1)
    node.wait(1)
    assert node.hosted.files == {}


def test_a_file_that_the_disk_did_not_take_is_not_made_again_at_once(
    harness: CoordinatorHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    harness.coordinator.standbys.tail_max = 10
    hosted = harness.log.partition(G)
    hosted.is_full = True
    for offset in range(20):
        harness.commit(offset)
    harness.wait(10 * standby_snapshots.CHECK_LED_S)
    assert hosted.writes == 1
    assert "wrote a" not in caplog.text
    hosted.is_full = False
    harness.wait(standby_snapshots.RETRY_S)
    assert hosted.writes == 2
    assert "wrote a" in caplog.text


def test_no_snapshot_is_written_before_the_log_is_twice_what_it_holds(
    harness: CoordinatorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incremental_capture, "KEYS_MAX", 0)
    harness.coordinator.standbys.tail_max = 1
    hosted = harness.log.partition(G)
    for index in range(4):
        harness.commit(1, index=index)
    for offset in range(3):
        harness.commit(offset)
    harness.wait(standby_snapshots.CHECK_LED_S + 1)
    assert hosted.snapshot is None
    harness.commit(5)
    harness.wait(standby_snapshots.CHECK_LED_S + 1)
    assert hosted.snapshot is not None


def written(
    harness: CoordinatorHarness, monkeypatch: pytest.MonkeyPatch, delay_s: float
) -> list[int]:
    """The partitions of which snapshots are written from now on, each in ``delay_s``."""
    seen: list[int] = []

    async def write(
        replica: MemoryReplica, make: Callable[[], bytes], name: str = SNAPSHOT
    ) -> None:
        seen.extend(n for n, each in harness.log.partitions.items() if each is replica.hosted)
        await asyncio.sleep(delay_s)
        replica.hosted.files[name] = make()

    monkeypatch.setattr(MemoryReplica, "write_snapshot", write)
    return seen


def groups_of_all_partitions() -> list[str]:
    found: dict[int, str] = {}
    for number in range(100):
        found.setdefault(partition_of(f"g{number}"), f"g{number}")
    return list(found.values())


def test_a_stop_writes_each_snapshot_once_while_the_regular_look_wants_them_too(
    harness: CoordinatorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    standbys = harness.coordinator.standbys
    standbys.tail_min = standbys.tail_max = 1
    groups = groups_of_all_partitions()
    for group in groups:
        for offset in range(3):
            harness.commit(offset, group=group)
    seen = written(harness, monkeypatch, delay_s=1.0)
    saving = harness.loop.create_task(_after(standby_snapshots.CHECK_LED_S - 0.5, standbys.save()))
    harness.wait(standby_snapshots.CHECK_LED_S + 10)
    assert saving.done()
    assert sorted(seen) == sorted(map(partition_of, groups))


def test_a_stop_writes_no_snapshot_that_the_regular_look_has_just_written(
    harness: CoordinatorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    standbys = harness.coordinator.standbys
    standbys.tail_min = standbys.tail_max = 1
    for offset in range(3):
        harness.commit(offset)
    seen = written(harness, monkeypatch, delay_s=1.0)
    saving = harness.loop.create_task(_after(standby_snapshots.CHECK_LED_S + 0.5, standbys.save()))
    harness.wait(standby_snapshots.CHECK_LED_S + 5)
    assert saving.done()
    assert seen == [G]


def test_a_stop_begins_with_the_partition_of_which_most_would_be_read_again(
    harness: CoordinatorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    standbys = harness.coordinator.standbys
    standbys.tail_min = 1
    groups = groups_of_all_partitions()
    for number, group in enumerate(groups):
        for offset in range(number + 1):
            harness.commit(offset, group=group)
    seen = written(harness, monkeypatch, delay_s=0.001)
    harness.loop.run_until_complete(standbys.save())
    assert seen == [partition_of(group) for group in reversed(groups)]


async def _after(seconds: float, then: Coroutine[Any, Any, None]) -> None:
    await asyncio.sleep(seconds)
    await then
