"""Coordinators load what the node's own cleaner has left of the logs of their topics.

Source: docs/spec/transactions.md §3.2 and §4.3; docs/spec/coordinator.md §3.4; docs/spec/log.md §5.
What is written to the log goes through a real log on disk, is compacted there twice, and is loaded
by a coordinator that knows nothing else: it must be what the first one had.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random

from barnabas.coordinator.transactions.transaction import Metadata
from barnabas.coordinator.transactions.transaction_state import PREPARED, TransactionState
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records import batch
from tests.coordinator.coordinator_harness import CoordinatorHarness, codes_of
from tests.coordinator.coordinator_harness import partition_of as group_partition_of
from tests.coordinator.memory_log import MemoryLog, MemoryPartition
from tests.coordinator.test_txn_deletions import forget
from tests.coordinator.test_txn_model import live
from tests.coordinator.transactions.transactions_harness import (
    TransactionsHarness,
    codes,
    identity,
    partition_of,
)
from tests.sim.simulated_loop import SimulatedLoop
from tests.storage.compaction.compaction_harness import DAY_MS, CompactionHarness
from tests.storage.log_harness import read_all


def compacted(
    loop: SimulatedLoop, directory: Path, written: MemoryPartition
) -> tuple[MemoryPartition, int]:
    """The same partition after the cleaner has been there, and how many records it dropped."""
    return loop.run_until_complete(_compacted(directory, written))


async def _compacted(directory: Path, written: MemoryPartition) -> tuple[MemoryPartition, int]:
    harness = await CompactionHarness(directory, delete_retention_ms=DAY_MS).open()
    half = len(written.batches) // 2
    for number, data in enumerate(written.batches):
        if number == half:
            harness.roll()
            await harness.clean()
            harness.now_ms += 2 * DAY_MS  # what was deleted so far may go with the next pass
        elif number % 10 == 9:
            harness.roll()
        harness.log.append(bytearray(data), leader_epoch=0, is_client=False)
    harness.roll()
    await harness.clean()
    assert harness.log.end_offset == written.end
    read = read_all(harness.log)
    batches = [bytearray(read[at : at + size]) for at, size in batch.iterate(read)]
    await harness.close()
    left = MemoryPartition(batches=batches, end=written.end, high_watermark=written.end)
    return left, _record_count(written) - _record_count(left)


def _record_count(partition: MemoryPartition) -> int:
    return sum(len(list(batch.records(data))) for data in partition.batches)


# -- __transaction_state --------------------------------------------------------------------------

IDS = [name for name in (f"id-{number}" for number in range(40)) if partition_of(name) == 0][:8]


class TransactionStory:
    """Producers that begin, write, end and vanish, on ids of one partition."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.node = TransactionsHarness(expiration_ms=1000, expiration_check_interval_ms=100)
        self.producers: dict[str, tuple[int, int]] = {}

    def run(self) -> None:
        for _ in range(120):
            self.step(self.rng.choice(IDS))
        self.node.markers.is_prompt = False
        for _ in range(10):
            self.step(self.rng.choice(IDS))

    def step(self, name: str) -> None:
        what = self.rng.choice(
            ["begin", "add", "add", "commit", "commit", "abort", "abort", "wait"]
        )
        producer = self.producers.get(name)
        if what == "begin" or producer is None:
            code, *given = identity(self.node.init(name))
            if not code:
                self.producers[name] = given[0], given[1]
        elif what == "add":
            partitions = {"orders": self.rng.sample(range(8), 3), "clicks": [0]}
            codes(self.node.add(producer, partitions, name=name))
        elif what == "wait":
            self.node.wait(1.2 if self.rng.random() < 0.1 else 0.01)  # the longer one expires ids
        else:
            self.node.end(producer, is_commit=what == "commit", name=name)
        self.node.turn()


def kept(node: TransactionsHarness) -> dict[str, Metadata]:
    """What a coordinator has of each id that it knows; the log keeps partitions by topic."""
    found = {name: node.coordinator.registry.find(name) for name in IDS}
    return {
        name: replace(one.metadata, partitions=tuple(sorted(one.metadata.partitions)))
        for name, one in found.items()
        if one is not None
    }


def check_heir(heir: TransactionsHarness, expected: dict[str, Metadata]) -> None:
    """It has what the first one had, owes the same markers, and serves every id."""
    heir.markers.is_prompt = False
    for partition in range(2):
        heir.elect(partition, 1)
    heir.turn()
    assert kept(heir) == expected
    prepared = [one for one in expected.values() if one.state in PREPARED]
    assert {one.producer_id: set(one.partitions) for one in heir.markers.writes} == {
        one.producer_id: set(one.partitions) for one in prepared
    }
    heir.markers.write_all()
    heir.turn()
    for name in expected:
        code = identity(heir.init(name))[0]
        assert code in (ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS), name


def test_a_compacted_transaction_log_loads_as_if_it_were_whole(tmp_path: Path) -> None:
    dropped, seen, seeds = 0, Counter[TransactionState](), range(8)
    for seed in seeds:
        story = TransactionStory(seed)
        with closing(story.node):
            story.run()
            expected = kept(story.node)
            written = story.node.log.partition(0)
        loop = SimulatedLoop(1)
        log = MemoryLog(loop)
        log.partitions[0], count = compacted(loop, tmp_path / str(seed), written)
        dropped += count
        with closing(TransactionsHarness(loop=loop, log=log, is_elected=False)) as heir:
            check_heir(heir, expected)
        seen.update(one.state for one in expected.values())
        seen[TransactionState.DEAD] += len(IDS) - len(expected)
    assert dropped > 50 * len(seeds)
    assert len(+seen) == 7, seen


# -- __consumer_offsets ---------------------------------------------------------------------------

GROUPS = [
    name for name in (f"g-{number}" for number in range(40)) if group_partition_of(name) == 0
][:3]
STAYS_OPEN = 9
"""A producer that begins late and ends never: nothing from there on is compacted."""


def tell_offsets(node: CoordinatorHarness, rng: Random) -> None:
    """Plain commits, transactions of two producers and deletions, then one that stays open."""
    for number in range(150):
        group, index = rng.choice(GROUPS), rng.randrange(4)
        match rng.choice(["plain", "staged", "staged", "end", "forget"]):
            case "plain":
                node.commit(number, group=group, index=index)
            case "staged":
                producer = rng.choice([7, 8])
                node.txn_commit(number, group=group, index=index, producer_id=producer)
            case "end":
                end(node, rng, rng.choice([7, 8]))
            case _:
                forget(node, index, group)
    for producer in (7, 8):
        end(node, rng, producer)
    for number in range(10):
        group, index = rng.choice(GROUPS), rng.randrange(4)
        node.txn_commit(1000 + number, group=group, index=index, producer_id=STAYS_OPEN)
        node.commit(2000 + number, group=rng.choice(GROUPS), index=rng.randrange(4))


def end(node: CoordinatorHarness, rng: Random, producer: int) -> None:
    is_commit = rng.random() < 0.6
    node.end_transaction(is_commit=is_commit, producer_id=producer, group=GROUPS[0])


def test_compacted_offsets_with_transactions_load_as_if_they_were_whole(tmp_path: Path) -> None:
    dropped, seeds = 0, range(8)
    for seed in seeds:
        with closing(CoordinatorHarness()) as node:
            tell_offsets(node, Random(seed))
            expected = live(node)
            loop = SimulatedLoop(1)
            log = MemoryLog(loop)
            log.partitions[0], count = compacted(loop, tmp_path / str(seed), node.log.partition(0))
            dropped += count
            node.end_transaction(producer_id=STAYS_OPEN, group=GROUPS[0])
            committed = live(node)
        with closing(CoordinatorHarness(loop=loop, log=log)) as heir:
            assert live(heir) == expected
            assert set(expected.staged) == {STAYS_OPEN}
            for group, topic, index in expected.staged[STAYS_OPEN]:
                asked = heir.fetch(group=group, topics={topic: [index]}, is_stable=True)
                assert codes_of(asked) == [ErrorCode.UNSTABLE_OFFSET_COMMIT]
            heir.end_transaction(producer_id=STAYS_OPEN, group=GROUPS[0])
            assert live(heir) == committed
    assert dropped > 50 * len(seeds)
