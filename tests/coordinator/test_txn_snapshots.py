"""Offsets inside of transactions in the snapshot beside the log: a load needs nothing below it.

Source: docs/spec/transactions.md §4.3; docs/spec/coordinator.md §3.4.1.
"""

from __future__ import annotations

import pytest

from barnabas.coordinator.ports import SNAPSHOT
from barnabas.coordinator.snapshot_files import saved
from barnabas.protocol.records import batch
from tests.coordinator.coordinator_harness import (
    NONE,
    UNSTABLE,
    CoordinatorHarness,
    G,
    Make,
    codes_of,
    stable_codes,
)
from tests.coordinator.memory_log import MemoryLog, MemoryReplica
from tests.coordinator.test_txn_deletions import forget
from tests.sim.simulated_loop import SimulatedLoop


@pytest.fixture
def stopped(make_harness: Make) -> CoordinatorHarness:
    """A node that has stopped in order; producers 7, 8 and 9 have offsets staged.

    Partition 0 was committed at 1 and is staged at 10 by producer 7, 1 at 11 by 8, 2 at 12 by both
    of them one after the other, 3 at 13 by 9.
    """
    node = make_harness()
    node.coordinator.standbys.tail_min = 1
    node.commit(1)
    node.txn_commit(10)
    node.txn_commit(11, index=1, producer_id=8)
    node.txn_commit(12, index=2)
    node.txn_commit(22, index=2, producer_id=8)
    node.txn_commit(13, index=3, producer_id=9)
    node.loop.run_until_complete(node.coordinator.save())
    assert set(node.log.partition(G).files) == {SNAPSHOT}
    return node


def started_again(node: CoordinatorHarness, make_harness: Make) -> CoordinatorHarness:
    """The next life of the node; its log has lost all that the snapshot spares reading."""
    hosted = node.log.partition(G)
    until = saved(MemoryReplica(node.log, hosted)).offset
    assert until == 6
    hosted.batches = [data for data in hosted.batches if batch.base_offset(data) >= until]
    hosted.leader_epoch, hosted.watcher = -1, None
    loop = SimulatedLoop(1)
    log = MemoryLog(loop)
    log.partitions[G] = hosted
    return make_harness(loop=loop, log=log)


def test_what_is_staged_is_staged_after_a_load(
    stopped: CoordinatorHarness, make_harness: Make
) -> None:
    node = started_again(stopped, make_harness)
    assert [node.committed(index=index) for index in range(4)] == [1, -1, -1, -1]
    assert stable_codes(node, 0, 1, 2, 3) == [UNSTABLE] * 4


@pytest.mark.parametrize("is_before", [True, False], ids=["in the tail", "after the load"])
def test_markers_behind_the_snapshot_end_what_it_holds(
    stopped: CoordinatorHarness, make_harness: Make, is_before: bool
) -> None:
    def end(node: CoordinatorHarness) -> None:
        node.end_transaction(is_commit=False, producer_id=8)
        node.end_transaction(producer_id=7)

    if is_before:
        end(stopped)
    node = started_again(stopped, make_harness)
    if not is_before:
        end(node)
    assert [node.committed(index=index) for index in range(4)] == [10, -1, 12, -1]
    assert stable_codes(node, 0, 1, 2, 3) == [NONE, NONE, NONE, UNSTABLE]
    node.end_transaction(producer_id=9)
    assert node.committed(index=3) == 13


def test_the_order_of_records_counts_across_the_snapshot(
    stopped: CoordinatorHarness, make_harness: Make
) -> None:
    """Producer 8 staged behind 7, and a plain commit came behind both."""
    stopped.commit(50)
    stopped.txn_commit(60, index=1, producer_id=8)
    node = started_again(stopped, make_harness)
    for producer in (8, 7):
        node.end_transaction(producer_id=producer)
    assert [node.committed(index=index) for index in range(3)] == [50, 60, 22]


def test_what_was_deleted_behind_the_snapshot_does_not_come_back(
    stopped: CoordinatorHarness, make_harness: Make
) -> None:
    """T4.6: the tombstone reaches what the snapshot holds as staged."""
    assert forget(stopped) == [NONE]
    node = started_again(stopped, make_harness)
    assert codes_of(node.fetch(topics={"orders": [0]}, is_stable=True)) == [NONE]
    node.end_transaction()
    assert node.committed() == -1
    assert node.committed(index=2) == 12
